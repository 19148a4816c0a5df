"""all_reduce of the backends flx and gloo by turns, in one program.

    for each rank: MASTER_ADDR=… MASTER_PORT=… RANK=r WORLD_SIZE=n python3 beside_gloo.py [SIZES…]

Prints, for each size in bytes, the median time of a call of the slowest rank with each, and how many times as long gloo
takes; in the end the geometric mean of that."""

import math
import statistics
import sys
import time

import torch
import torch.distributed as dist

import flx.torch

torch.set_num_threads(1)
dist.init_process_group("gloo")
groups = {"gloo": dist.group.WORLD, "flx": dist.new_group(backend="flx")}
ratios = []
for size in [int(text) for text in sys.argv[1:]] or [64 << 10 << (2 * step) for step in range(6)]:
    tensor = torch.ones(size // 4)
    calls = max(2, min(50, (32 << 20) // size))
    times = {name: [] for name in groups}
    for turn in range(8):
        for name, group in groups.items():
            tensor.fill_(1)
            dist.barrier(group=group)
            begun = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
            took = torch.tensor((time.perf_counter() - begun) / calls)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if turn > 0:  # the first warms up
                times[name].append(took.item())
    medians = {name: statistics.median(all_of) * 1e3 for name, all_of in times.items()}
    ratios.append(medians["gloo"] / medians["flx"])
    if dist.get_rank() == 0:
        print(f"{size:>9} B  gloo {medians['gloo']:8.3f} ms  flx {medians['flx']:8.3f} ms  {ratios[-1]:6.2f}", flush=True)
if dist.get_rank() == 0:
    print(f"geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.2f}")
