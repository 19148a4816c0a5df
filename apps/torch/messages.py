#!/usr/bin/env python3
"""Messages of PyTorch programs between GPUs, checked and timed: rings, groups that the peer has in other pieces, uneven
all-to-alls, very many at once, and all that in a CUDA graph.

    torchrun --standalone --nproc-per-node 2 apps/torch/messages.py
    flx-run --nccl --stats -- torchrun --standalone --nproc-per-node 2 apps/torch/messages.py
"""
import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
ranks = int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
wrong = 0


def data(source, to, bytes):
    return ((torch.arange(bytes, device="cuda") * 7 + source * 31 + to * 3) % 251).to(torch.uint8)


def check(what, got, source):
    global wrong
    if not torch.equal(got, data(source, rank, got.numel())):
        wrong += 1
        print(f"rank {rank}: {what} of {got.numel()} bytes from {source} is wrong", flush=True)


def together(*operations):
    for work in dist.batch_isend_irecv([dist.P2POp(what, tensor, peer) for what, tensor, peer in operations]):
        work.wait()


def ring(bytes):
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    sent, got = data(rank, to, bytes), torch.empty(bytes, dtype=torch.uint8, device="cuda")
    return lambda: together((dist.isend, sent, to), (dist.irecv, got, source)), lambda: check("a ring", got, source)


def uneven(bytes):
    """Rank r gets r + 1 times as much as rank 0."""
    sizes = [bytes * (peer + 1) for peer in range(ranks)]
    sent = torch.cat([data(rank, peer, size) for peer, size in enumerate(sizes)])
    got = torch.empty(bytes * (rank + 1) * ranks, dtype=torch.uint8, device="cuda")
    mine = [bytes * (rank + 1)] * ranks

    def verify():
        for source, part in enumerate(got.split(mine)):
            check("an uneven all-to-all", part, source)

    return lambda: dist.all_to_all_single(got, sent, mine, sizes), verify


def crossed(there, back):
    """What rank 0 has in one group its peer has one after the other."""
    if rank > 1:
        return lambda: None, lambda: None
    peer = 1 - rank
    first = data(0, 1, there) if rank == 0 else torch.empty(there, dtype=torch.uint8, device="cuda")
    second = data(1, 0, back) if rank == 1 else torch.empty(back, dtype=torch.uint8, device="cuda")

    def run():
        if rank == 0:
            together((dist.irecv, second, peer), (dist.isend, first, peer))
        else:
            together((dist.irecv, first, peer))
            together((dist.isend, second, peer))

    return run, lambda: check("a crossed group", second if rank == 0 else first, peer)


def many(count, bytes):
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    sent = [data(rank, to, bytes + i) for i in range(count)]
    got = [torch.empty(bytes + i, dtype=torch.uint8, device="cuda") for i in range(count)]
    operations = [(dist.isend, t, to) for t in sent] + [(dist.irecv, t, source) for t in got]
    return lambda: together(*operations), lambda: [check("one of many", t, source) for t in got]


def timed(name, exchange, verify, turns=30):
    for _ in range(5):
        exchange()
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(turns):
        exchange()
    torch.cuda.synchronize()
    us = (time.perf_counter() - began) / turns * 1e6
    verify()
    if rank == 0:
        print(f"{name:<44}{us:>10.1f} us", flush=True)


KIB, MIB = 1 << 10, 1 << 20
for bytes in (KIB, 100 * KIB, MIB, 4 * MIB, 64 * MIB):
    timed(f"ring, {bytes} bytes", *ring(bytes))
for bytes in (KIB + 1, MIB, 2 * MIB):
    timed(f"uneven all-to-all, {bytes} bytes and more", *uneven(bytes))
for there, back in ((2 * MIB, KIB), (KIB, 2 * MIB), (MIB, 2 * MIB)):
    timed(f"crossed, {there} there and {back} back", *crossed(there, back))
for count in (40, 60, 700):
    timed(f"{count} each way of a MiB", *many(count, MIB), turns=5)

exchanges = [ring(MIB), ring(KIB), uneven(MIB)]
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for exchange, _ in exchanges:
        exchange()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    for exchange, _ in exchanges:
        exchange()
timed("a graph of three", lambda: (graph.replay(), exchanges[0][0]()), lambda: [verify() for _, verify in exchanges])
del graph  # NCCL's communicator does not go before it
total = torch.tensor([wrong], device="cuda")
dist.all_reduce(total)
if rank == 0:
    print(f"{total.item()} wrong", flush=True)
dist.destroy_process_group()
raise SystemExit(1 if total.item() else 0)
