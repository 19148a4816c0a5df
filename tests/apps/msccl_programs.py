#!/usr/bin/env python3
"""Algorithms of MSCCL as XML, made from their published descriptions: msccl_programs.py NAME RANKS

    ring        allreduce by a ring of two channels: Cowan and others, MSCCLang (ASPLOS 2023), "Ring
                AllReduce". Each half of the vector goes round by itself; sums are passed on as they are made, `rrs`
    all_pairs   allreduce in two steps: the same, "All Pairs AllReduce". Each GPU gets all parts of one
                chunk in scratch, adds them there, and sends the sum to all
    doubling    allgather by recursive doubling: Thakur, Rabenseifner, Gropp (2005); ranks: a power of two"""

import sys
import xml.etree.ElementTree as ElementTree


class Program:
    """GPUs with thread blocks, which are made as their peers and channel are first named."""

    def __init__(self, name, collective, ranks, chunks):
        self.algo = ElementTree.Element(
            "algo",
            name=name,
            coll=collective,
            ngpus=str(ranks),
            nchunksperloop=str(chunks),
            nchannels="2",
            proto="Simple",
            inplace="1",
        )
        self.gpus = [
            ElementTree.SubElement(
                self.algo, "gpu", id=str(rank), i_chunks=str(chunks), o_chunks=str(chunks), s_chunks=str(ranks * chunks)
            )
            for rank in range(ranks)
        ]

    def block(self, rank, send, recv, channel):
        wanted = {"send": str(send), "recv": str(recv), "chan": str(channel)}
        for block in self.gpus[rank]:
            if all(block.get(key) == value for key, value in wanted.items()):
                return block
        return ElementTree.SubElement(self.gpus[rank], "tb", id=str(len(self.gpus[rank])), **wanted)

    @staticmethod
    def step(block, kind, source, target, count=1, wait=None):
        """Returns where it is, for steps that wait for it."""
        number = len(block)
        ElementTree.SubElement(
            block,
            "step",
            s=str(number),
            type=kind,
            srcbuf=source[0],
            srcoff=str(source[1]),
            dstbuf=target[0],
            dstoff=str(target[1]),
            cnt=str(count),
            depid=str(wait[0]) if wait else "-1",
            deps=str(wait[1]) if wait else "-1",
            hasdep="0",
        )
        return int(block.get("id")), number

    def text(self):
        ElementTree.indent(self.algo)
        return ElementTree.tostring(self.algo, encoding="unicode") + "\n"


def ring(ranks, channels=2):
    program = Program("ring", "allreduce", ranks, ranks * channels)
    for rank in range(ranks):
        for channel in range(channels):
            block = program.block(rank, (rank + 1) % ranks, (rank - 1) % ranks, channel)
            # The chunk of channel c that begins at this GPU, and those that come after it.
            chunks = [("i", ((rank - back) % ranks) * channels + channel) for back in range(ranks)]
            program.step(block, "s", chunks[0], chunks[0])
            for at in range(1, ranks - 1):
                program.step(block, "rrs", chunks[at], chunks[at])
            program.step(block, "rrcs", chunks[ranks - 1], chunks[ranks - 1])
            for at in range(ranks - 2):
                program.step(block, "rcs", chunks[at], chunks[at])
            program.step(block, "r", chunks[ranks - 2], chunks[ranks - 2])
    return program.text()


def all_pairs(ranks):
    program = Program("all_pairs", "allreduce", ranks, ranks)
    for rank in range(ranks):
        others = [peer for peer in range(ranks) if peer != rank]
        blocks = {peer: program.block(rank, peer, peer, 0) for peer in others}
        came = {}
        for peer in others:
            program.step(blocks[peer], "s", ("i", peer), ("s", rank))
            came[peer] = program.step(blocks[peer], "r", ("i", rank), ("s", peer))
        summed = None
        for peer in others:
            summed = program.step(blocks[others[0]], "re", ("s", peer), ("i", rank), wait=came[peer])
        for peer in others:
            program.step(blocks[peer], "s", ("i", rank), ("i", rank), wait=summed if peer != others[0] else None)
            program.step(blocks[peer], "r", ("i", peer), ("i", peer))
    return program.text()


def doubling(ranks):
    program = Program("doubling", "allgather", ranks, ranks)
    for rank in range(ranks):
        wait = None
        distance = 1
        while distance < ranks:
            peer = rank ^ distance
            block = program.block(rank, peer, peer, 0)
            own = rank // distance * distance
            theirs = peer // distance * distance
            program.step(block, "s", ("o", own), ("o", own), distance, wait)
            wait = program.step(block, "r", ("o", theirs), ("o", theirs), distance)
            distance *= 2
    return program.text()


PROGRAMS = {"ring": ring, "all_pairs": all_pairs, "doubling": doubling}

if __name__ == "__main__":
    sys.stdout.write(PROGRAMS[sys.argv[1]](int(sys.argv[2])))
