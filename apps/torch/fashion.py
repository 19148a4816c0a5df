#!/usr/bin/env python3
"""Trains a small network on Fashion-MNIST with DistributedDataParallel in host memory, on FLX or on Gloo.

    torchrun --standalone --nproc-per-node 4 apps/torch/fashion.py --backend flx
    for each rank: MASTER_ADDR=… MASTER_PORT=… RANK=r WORLD_SIZE=n python3 apps/torch/fashion.py --backend gloo

fashion_compare.py starts it with both by turns, fashion_faults.py kills, stops and cuts in the middle of it. Losses are
printed with all their bits. Seeds, the order of samples and the number of threads are fixed, so that what differs
between two runs comes from collectives.

After the training, further steps that change nothing measure communication, each the time of the slowest rank:

    with       forward and backward pass, gradients are added over the ranks meanwhile, as DDP does
    without    the same, but each rank keeps its own gradients (no_sync), one after the other by turns
    alone      all_reduce of as many and as large buckets as DDP makes, and no computation
    visible    with - without: what communication adds to a step
    hidden     1 - visible / alone: the part that the backward pass hides. Where ranks share cores it may be negative,
               since to communicate takes the time of cores that would compute
"""
import argparse
import gzip
import hashlib
import json
import math
import os
import pathlib
import statistics
import struct
import sys
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

PACKAGED = pathlib.Path("/usr/share/datasets/fashion-mnist")  # where dataset-fashion-mnist of Debian has it
SIDE, CLASSES = 28, 10
TRAIN, TEST = 60_000, 10_000
JUDGED = 1000  # test images that the trained network is shown
MADE_UP = "made up: random images of ten kinds"


class Wrong(Exception):
    """A sentence for the user."""


def read_idx(folder, name, shape):
    """The bytes of one of the data set's files, plain or packed by gzip."""
    path = next((path for path in (folder / name, folder / (name + ".gz")) if path.exists()), None)
    if path is None:
        raise Wrong(f"{folder} has no {name}, nor {name}.gz; the Debian package dataset-fashion-mnist has them")
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise Wrong(f"{path} cannot be read, or is damaged: {error}") from None
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or raw[3] != len(shape):
        raise Wrong(f"{path} is no IDX file of {len(shape)} axes of bytes")
    header = 4 + 4 * len(shape)
    if len(raw) < header or struct.unpack(f">{len(shape)}I", raw[4:header]) != shape:
        raise Wrong(f"{path} does not say that it has {' x '.join(map(str, shape))} bytes")
    if len(raw) - header != math.prod(shape):
        raise Wrong(f"{path} is damaged: it has {len(raw) - header} bytes and says {math.prod(shape)}")
    return torch.frombuffer(bytearray(raw[header:]), dtype=torch.uint8).reshape(shape)


def read(folder):
    """((images, labels) to train with, and to test with)."""
    found = []
    for kind, count in (("train", TRAIN), ("t10k", TEST)):
        images = read_idx(folder, f"{kind}-images-idx3-ubyte", (count, SIDE, SIDE))
        labels = read_idx(folder, f"{kind}-labels-idx1-ubyte", (count,))
        if labels.max() >= CLASSES:
            raise Wrong(f"{folder} is damaged: it has a label {labels.max().item()}, and there are {CLASSES} classes")
        found.append((images, labels))
    return found


def make_up(seed):
    """Of the same shape: ten blurred patterns under noise."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(CLASSES, 1, 7, 7, generator=generator)
    patterns = F.interpolate(patterns, size=(SIDE, SIDE), mode="bilinear", align_corners=False).squeeze(1) * 128
    found = []
    for count in (TRAIN, TEST):
        labels = torch.randint(CLASSES, (count,), generator=generator, dtype=torch.uint8)
        images = torch.randint(128, (count, SIDE, SIDE), generator=generator, dtype=torch.uint8)
        for label in range(CLASSES):
            images[labels == label] += patterns[label].to(torch.uint8)
        found.append((images, labels))
    return found


def load(given, seed):
    """Both parts as floats and class numbers, and where they are from."""
    if given == "none" or (given is None and not PACKAGED.is_dir()):
        parts, source = make_up(seed), MADE_UP
    else:
        folder = pathlib.Path(given or PACKAGED)
        parts, source = read(folder), str(folder)
    return [(images.reshape(len(images), -1), labels.long()) for images, labels in parts], source


def network(options):
    sizes = [SIDE * SIDE] + [options.hidden] * options.layers
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], CLASSES))


def floats(images):
    return images.float() / 255 - 0.5


class Batches:
    """Rank's part of batch number i: all samples in an order that depends on the seed and the epoch alone."""

    def __init__(self, part, options, rank, world):
        self.part, self.seed, self.own, self.rank, self.world = part, options.seed, options.batch, rank, world
        self.epoch = -1

    def __getitem__(self, i):
        images, labels = self.part
        epoch, place = divmod(i, len(labels) // (self.own * self.world))
        if epoch != self.epoch:
            generator = torch.Generator().manual_seed(1000 * self.seed + epoch)
            self.epoch, self.order = epoch, torch.randperm(len(labels), generator=generator)
        first = (place * self.world + self.rank) * self.own
        chosen = self.order[first : first + self.own]
        return floats(images[chosen]), labels[chosen]


def gathered(numbers):
    """Every rank's numbers, of double precision: [[rank 0's], [rank 1's], ...]."""
    mine = torch.tensor(numbers, dtype=torch.float64)
    parts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return [part.tolist() for part in parts]


def slowest(times):
    """Of each time the slowest rank's."""
    return [max(of_ranks) for of_ranks in zip(*gathered(times))]


def train(model, batches, options):
    """(this rank's losses, seconds of the steps)"""
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    losses, times = [], []
    for i in range(options.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        images, labels = batches[i]
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
        losses.append(loss.item())
        if (i + 1) % options.every == 0 and dist.get_rank() == 0:
            print(f"step {i + 1}: loss {losses[-1].hex()} ({losses[-1]:.4f}, rank 0's), {1e3 * times[-1]:.1f} ms",
                  flush=True)
    return losses, times


def bucket_bytes(model):
    """As DDP has made them in the end."""
    said = model._get_ddp_logging_data()
    sizes = said.get("rebuilt_bucket_sizes") or said["bucket_sizes"]
    return [int(size) for size in str(sizes).split(",")]


def communication(model, batch, turns):
    """What the lines at the top of this file say, in milliseconds. The model stays what it is."""
    images, labels = batch
    buckets = [torch.ones(size // 4) for size in bucket_bytes(model)]

    def step():
        F.cross_entropy(model(images), labels).backward()

    def without():
        with model.no_sync():
            step()

    def alone():
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()

    alone()
    for bucket in buckets:
        if not torch.equal(bucket, torch.full_like(bucket, dist.get_world_size())):
            raise Wrong("all_reduce of ones did not give the number of ranks")
        bucket.zero_()  # which sums do not change
    times = {"with": [], "without": [], "alone": []}
    for turn in range(turns + 1):
        for name, call in (("with", step), ("without", without), ("alone", alone)):
            model.zero_grad()
            dist.barrier()
            began = time.perf_counter()
            call()
            took = time.perf_counter() - began
            if turn > 0:  # the first warms up
                times[name].append(1e3 * took)
    found = {name: statistics.median(slowest(all_of)) for name, all_of in times.items()}
    found["visible"] = found["with"] - found["without"]
    found["hidden"] = 1 - found["visible"] / found["alone"]
    found["buckets"] = [4 * bucket.numel() for bucket in buckets]
    return found


def digest(model):
    """48 bits of a hash of all parameters' bits: a double has them all."""
    whole = hashlib.sha256()
    for parameter in model.parameters():
        whole.update(parameter.detach().numpy().tobytes())
    return int.from_bytes(whole.digest()[:6], "big")


def accuracy(model, part):
    """Of the first test images, each rank looks at its part."""
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = part[0][rank:JUDGED:world], part[1][rank:JUDGED:world]
    with torch.no_grad():
        right = (model(floats(images)).argmax(1) == labels).sum().item()
    return sum(of_rank[0] for of_rank in gathered([float(right)])) / JUDGED


def run(options):
    """What goes to the JSON; the same on all ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    (trained, tested), source = load(options.data, options.seed)
    if options.batch * world > len(trained[1]):
        raise Wrong(f"{world} ranks with --batch {options.batch} take more than the {len(trained[1])} images there are")
    model = network(options)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if rank == 0:
        print(f"{options.backend}, {world} ranks, {parameters} parameters, data: {source}", flush=True)
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=options.bucket_mb)
    batches = Batches(trained, options, rank, world)
    losses, times = train(parallel, batches, options)
    step_ms = [1e3 * took for took in slowest(times)]
    means = [math.fsum(of_ranks) / world for of_ranks in zip(*gathered(losses))]
    hashes = [int(of_rank[0]) for of_rank in gathered([float(digest(model))])]
    return {
        "backend": options.backend, "ranks": world, "torch": torch.__version__, "data": source,
        "parameters": parameters, "steps": options.steps, "losses": [mean.hex() for mean in means], "hashes": hashes,
        "ranks_agree": len(set(hashes)) == 1, "finite": all(map(math.isfinite, means)),
        "accuracy": accuracy(model, tested), "step_ms": statistics.median(step_ms),
        "communication": communication(parallel, batches[0], options.turns) if options.turns else None,
    }


def report(found):
    print(f"loss of the last step {found['losses'][-1]} ({float.fromhex(found['losses'][-1]):.6f}, mean of all ranks), "
          f"{found['accuracy']:.1%} of {JUDGED} test images right, {found['step_ms']:.1f} ms a step (median)")
    if times := found["communication"]:
        print(f"communication: {', '.join(f'{size} B' for size in times['buckets'])} a step; "
              f"alone {times['alone']:.2f} ms; a step with it {times['with']:.2f} ms, without {times['without']:.2f} "
              f"ms: {times['visible']:.2f} ms visible, {times['hidden']:.0%} hidden")
    if not found["ranks_agree"]:
        print(f"FAIL the ranks have different weights: {found['hashes']}")
    if not found["finite"]:
        print("FAIL a loss is no finite number")
    sys.stdout.flush()


def number(least, kind=int):
    def of(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} on")
        return value
    return of


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["flx", "gloo"], default="flx")
    parser.add_argument("--data", help=f"folder with the four IDX files, or none: made-up images (default: {PACKAGED}, "
                                       "and none where it is not there)")
    parser.add_argument("--steps", type=number(1), default=300, help="steps of training (300)")
    parser.add_argument("--batch", type=number(1), default=8, help="images a rank and step (8)")
    parser.add_argument("--hidden", type=number(1), default=512, help="width of hidden layers (512)")
    parser.add_argument("--layers", type=number(1), default=4, help="hidden layers (4)")
    parser.add_argument("--rate", type=number(0, float), default=0.05, help="learning rate (0.05)")
    parser.add_argument("--bucket-mb", type=number(0, float), default=1, help="DDP's bucket_cap_mb (1)")
    parser.add_argument("--turns", type=number(0), default=20, help="times that communication is measured (20)")
    parser.add_argument("--every", type=number(1), default=20, help="steps between lines of progress (20)")
    parser.add_argument("--seed", type=number(0), default=1)
    parser.add_argument("--json", type=pathlib.Path, help="file for what was found")
    return parser.parse_args()


def main():
    options = arguments()
    absent = [name for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE") if name not in os.environ]
    if absent:
        sys.exit(f"fashion.py: {', '.join(absent)} not set; start it by torchrun, or as the first lines of --help say")
    if options.backend == "flx":
        try:
            import flx.torch  # noqa: F401
        except ImportError as error:
            sys.exit(f"fashion.py: {error}; PYTHONPATH has to name the folder of FLX's package (docs/python.md)")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    try:
        dist.init_process_group(options.backend)
        found = run(options)
        dist.barrier()
    except Wrong as error:
        sys.exit(f"fashion.py: {error}")
    except RuntimeError as error:
        # fashion_faults.py compares this time with that of a fault: the same clock in all processes of a machine.
        sentence = (str(error).splitlines() or [type(error).__name__])[0]
        print(f"lost at {time.monotonic():.6f}: {sentence}", flush=True)
        sys.exit(3)
    if dist.get_rank() == 0:
        report(found)
        if options.json:
            try:
                options.json.write_text(json.dumps(found) + "\n")
            except OSError as error:
                sys.exit(f"fashion.py: {options.json} cannot be written: {error.strerror}")
    right = found["ranks_agree"] and found["finite"]
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
