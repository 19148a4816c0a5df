#!/usr/bin/env python3
"""Sample traces, as a run writes them, without a run: report_trace.py KIND FILE [EVENTS]

What a kind is about says KINDS below; `large` has so many events. All are the same each time."""

import json
import random
import sys

HOSTILE = "</script><script>alert(1)</script>\" onload='x' <!-- & \u202e\u0001 \\ \U0001f600"


class Trace:
    """Ranks with clocks, which call, wait and send; nothing is written in the order in which it happens to all."""

    def __init__(self, file, ranks, hosts, rails, command="train --model resnet50 --epochs 2", seed=7):
        self.file = file
        self.random = random.Random(seed)
        self.ranks = ranks
        self.hosts = hosts
        self.rails = rails  # name -> (MB/s, us)
        self.command = command
        self.now = [0.0] * ranks
        self.number = 0
        self.lines = 0
        self.part_of = {}
        self.lost = {}  # rail -> (from, to) of its outage

    def error_of_clock(self, host):
        return 0.8 * host

    def host(self, rank):
        return f"n{1 + rank * self.hosts // self.ranks}"

    def header(self, calls, lost=0, notes=()):
        links = [
            {"rank": rank, "host": self.host(rank), "name": name, "rate_MBps": rate, "latency_us": latency}
            for rank in range(self.ranks)
            for name, (rate, latency) in self.rails.items()
        ]
        other = {
            "flx": "0.4.0",
            "command": self.command,
            "job": "4711.0",
            "ranks": self.ranks,
            "hosts": self.hosts,
            "calls": calls,
            "lost_calls": lost,
            "began_since_1970_s": 1795667400.25,
            "notes": list(notes),
            "clocks": [
                {"host": f"n{h + 1}", "offset_us": 3.5 * h, "drift_ppm": 0.02 * h, "error_us": self.error_of_clock(h)}
                for h in range(self.hosts)
            ],
            "links": links,
        }
        self.file.write('{"displayTimeUnit":"ns","otherData":%s,"traceEvents":[\n' % json.dumps(other))
        for rank in range(self.ranks):
            name = {"name": f"rank {rank} ({self.host(rank)}, pid {4200 + rank})"}
            self.event(ph="M", name="process_name", pid=rank, args=name)
            self.event(ph="M", name="process_sort_index", pid=rank, args={"sort_index": rank})
            self.communicator(rank, 1, rank, self.ranks, self.hosts)

    def communicator(self, rank, tid, place, size, hosts, uid="5f3a"):
        self.event(ph="M", name="thread_name", pid=rank, tid=tid, args={"name": f"communicator {tid}"})
        args = {"communicator": tid, "rank": place, "size": size, "hosts": hosts, "first_uid": uid}
        self.event(ph="M", name="communicator", pid=rank, tid=tid, args=args)

    def event(self, **members):
        self.file.write((",\n" if self.lines else "") + json.dumps(members, separators=(",", ":")))
        self.lines += 1

    def end(self):
        self.file.write("\n]}\n")

    def rate(self, name, at):
        start, stop = self.lost.get(name, (0, 0))
        return 0 if start <= at < stop else self.rails[name][0] * self.random.uniform(0.9, 0.99)

    def call(self, name, size, way="fused", compute=200.0, late=None, own=None, kind="call", **more):
        """All ranks compute, then call; `late` computes longer. Each waits until the last one is there."""
        self.number += 1
        entered = []
        for rank in range(self.ranks):
            self.now[rank] += compute * self.random.uniform(0.9, 1.1) * (1.9 if rank == late else 1)
            entered.append(self.now[rank])
        last = max(entered)
        if own is None:
            rates = {rail: self.rate(rail, last) for rail in self.rails if rail != "shm"}
            far = sum(rates.values())
            own = 5 + size / far if far and self.hosts > 1 else 5 + size / 8000
            if self.hosts > 1 and far and size > 100_000:
                for rank in range(self.ranks):
                    self.send(rank, last, own, size * self.hosts / self.ranks, rates)
        for rank in range(self.ranks):
            left = last + own * self.random.uniform(0.93, 1)
            args = {"communicator": 1, "number": self.number, "bytes": size, "type": "f32", "way": way, **more}
            if name == "barrier":
                del args["bytes"], args["type"]
            common = {"name": name, "pid": rank, "tid": 1}
            if kind == "call":
                took = round(left - entered[rank], 3)
                self.event(ph="X", cat="call", ts=round(entered[rank], 3), dur=took, args=args, **common)
            else:
                identity = f"0x{rank:x}{self.number:06x}"
                self.event(ph="b", cat="nonblocking", id=identity, ts=round(entered[rank], 3), args=args, **common)
                self.event(ph="e", cat="nonblocking", id=identity, ts=round(left, 3), **common)
            if last - entered[rank] > 100 and kind == "call":
                args = {"peer": entered.index(last)}
                wait = {"ts": round(entered[rank] + 100, 3), "dur": round(last - entered[rank] - 100, 3)}
                name_of_wait = f"waits for rank {args['peer']}"
                self.event(ph="X", cat="wait", name=name_of_wait, pid=rank, tid=1, args=args, **wait)
            if kind == "call":
                self.now[rank] = left

    def send(self, rank, at, took, size, rates):
        total = sum(rates.values())
        shares = {}
        for index, rail in enumerate(rates):
            share = rates[rail] / total
            shares[rail] = round(share, 4)
            carried = int(size * share)
            if not carried:
                continue
            args = {"link": rail, "bytes": carried, "MBps": round(carried / took, 1), "communicator": 1}
            self.event(
                ph="X", cat="link", name=f"{carried / 1e6:.1f} MB", pid=rank, tid=1000 + index, ts=round(at, 3),
                dur=round(took, 3), args=args,
            )
        self.event(ph="C", name="shares of communicator 1", pid=rank, ts=round(at, 3), args=shares)


RAILS = {"shm": (9200.0, 0.4), "rail0": (1234.5, 3.2), "rail1": (611.0, 3.9), "rail2": (305.5, 5.1)}


def usual(file):
    """A training program on two hosts with three rails, of which one is lost for a while; rank 3 is late."""
    trace = Trace(file, 4, 2, RAILS)
    trace.header(calls=2300)
    trace.lost["rail1"] = (500_000, 850_000)
    told = set()
    trace.call("bcast", 4 << 20, "scheduled", root=0)
    for step in range(190):
        for bucket in (64 << 10, 1 << 20, 2 << 20):
            way = "staged" if bucket < 100_000 else "scheduled"
            trace.call("allreduce", bucket, way, 900, late=3 if step % 3 else None, reduction="sum")
        trace.call("allreduce", 8, "staged", 60, own=14, reduction="max")
        if step % 10 == 0:
            trace.call("allgather", 256, "staged", 40, own=19)
            trace.call("alltoall", 512 << 10, "exchanged", 300, late=1)
        if step % 20 == 5:
            trace.call("allreduce", 256 << 10, "scheduled", 30, kind="nonblocking", reduction="sum")
        if step % 50 == 0:
            trace.call("barrier", 0, "fused", 2500, own=9)
        start, stop = trace.lost["rail1"]
        for when, what in ((start, "nothing"), (stop, "again")):
            if trace.now[0] >= when and what not in told:
                told.add(what)
                for rank in range(4):
                    trace.event(ph="i", s="p", cat="link", name=f"rail1 carries {what}", pid=rank,
                                ts=round(when + rank * 40.5, 3))
    for rank in (0, 2):
        args = {"communicator": 1, "number": 0, "bytes": 4096, "type": "u8", "way": "exchanged", "error": ""}
        trace.event(ph="X", cat="call", name="send", pid=rank, tid=1, ts=trace.now[rank], dur=31.5, args=args)
    trace.end()


def hostile(file):
    """Names that would be markup, scripts or other directions of writing; an error, and a call without an end."""
    rails = {"shm": (9200.0, 0.4), HOSTILE: (800.0, 4.0), "x" * 300: (400.0, 4.0)}
    trace = Trace(file, 2, 2, rails, command=HOSTILE)
    trace.host = lambda rank: HOSTILE + str(rank)
    trace.header(calls=20, lost=3, notes=[HOSTILE])
    for _ in range(10):
        trace.call(HOSTILE, 1 << 20, HOSTILE)
    trace.call("allreduce", 64, "fused", error=HOSTILE)
    trace.event(ph="i", s="p", cat="link", name=HOSTILE + " carries nothing", pid=0, ts=500)
    args = {"communicator": 1, "number": 12, "bytes": 8, "way": HOSTILE, "unfinished": True}
    trace.event(ph="X", cat="call", name="barrier" * 40, pid=1, tid=1, ts=trace.now[1], dur=5000, args=args)
    trace.end()


def one(file):
    """One rank alone."""
    trace = Trace(file, 1, 1, {})
    trace.header(calls=50)
    for _ in range(50):
        trace.call("allreduce", 4096, own=2.5)
    trace.end()


def near(file):
    """Four ranks of one host, which need no link."""
    trace = Trace(file, 4, 1, {})
    trace.header(calls=1200)
    for i in range(300):
        way = "fused" if i % 20 < 12 else "fetched"
        trace.call("allreduce", 1 << (3 + i % 20), way, late=i % 4 if i % 7 == 0 else None)
    trace.end()


def empty(file):
    """A run without a call."""
    trace = Trace(file, 2, 1, {})
    trace.header(calls=0)
    trace.end()


def many(file):
    """64 ranks on 16 hosts."""
    trace = Trace(file, 64, 16, {f"rail{i}": (3000.0 / (i + 1), 4.0) for i in range(4)})
    trace.header(calls=64 * 120)
    for i in range(60):
        trace.call("allreduce", 8 << (i % 20), "scheduled", late=i % 64)
        trace.call("alltoall", 1 << 18, "exchanged", late=63)
    trace.end()


def truncated(file):
    """What a run leaves that was killed: the last line is cut off."""
    near(file)
    file.seek(0)
    text = file.read()
    file.seek(0)
    file.truncate()
    file.write(text[: len(text) * 2 // 3])


def large(file, events=1_000_000):
    """As many events as asked for, of a rank after the other."""
    ranks = 8
    trace = Trace(file, ranks, 2, RAILS)
    trace.header(calls=events)
    for rank in range(ranks):
        rest = ('"pid":%d,"tid":1,"ts":%.3f,"dur":%.3f,"args":{"communicator":1,"number":%d,"bytes":%d,"type":"f32",'
                '"reduction":"sum","way":"fused","error":""}}')
        for number in range(1, events // ranks + 1):
            size = 8 << (number % 18)
            entered = 100 * number + (rank * 7919 + number * 104729) % 4000 / 100
            file.write(',\n{"ph":"X","cat":"call","name":"allreduce",' + rest % (rank, entered, 45, number, size))
    trace.end()


KINDS = {each.__name__: each for each in (usual, hostile, one, near, empty, many, truncated, large)}


def bench(file):
    """What flx_perf --json writes of four ranks on two hosts, beside MPI."""
    rows = []
    for collective, factor, best in ("allreduce", 1.5, 2950), ("alltoall", 0.75, 1450):
        for power in range(3, 27, 2):
            size = 1 << power
            flx = 22 + size * factor / best
            peer = 31 + size * factor / (best / 1.65) if power != 9 else 21.5
            rows.append({
                "collective": collective, "memory": "host", "dtype": "f32", "op": "sum", "bytes": size,
                "algorithm": "lanes(direct,ring)" if power > 16 else "leaders(direct,direct)",
                "flx_us": flx, "peer": "mpi", "peer_us": peer, "ratio": peer / flx,
                "busbw_GBps": size * factor / flx / 1e3, "wrong": 0, "flx_us_p10": flx * 0.96, "flx_us_p90": flx * 1.08,
                "peer_us_p10": peer * 0.94, "peer_us_p90": peer * 1.13,
            })
    result = {"machine": "n1: a processor, 16 CPUs; 4 ranks on 2 hosts", "ranks": 4, "hosts": 2,
              "mpi": "Open MPI v4.1.4", "mpi_settings": [], "flx_settings": [], "mode": "in turn", "results": rows}
    json.dump(result, file, indent=1)


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in KINDS | {"bench": bench}:
        sys.exit(f"{__doc__}\n\nKINDS: {', '.join([*KINDS, 'bench'])}")
    with open(sys.argv[2], "w+", encoding="utf-8") as file:
        (KINDS | {"bench": bench})[sys.argv[1]](file, *map(int, sys.argv[3:]))


if __name__ == "__main__":
    main()
