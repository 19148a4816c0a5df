#!/usr/bin/env python3
"""One workload of PyTorch on the GPUs of this host, timed step by step; compare.py runs it with and without FLX.

    torchrun --standalone --nproc-per-node 2 apps/torch/train.py --workload ddp
    flx-run --nccl -- torchrun --standalone --nproc-per-node 2 apps/torch/train.py --workload ddp

ddp      a transformer of 1.2 billion parameters, DistributedDataParallel: all-reduces of gradients
fsdp     the same with fully_shard: all-gathers and reduce-scatters of blocks
tensor   decoding with a transformer of 8.0 billion parameters, each layer split over the GPUs: two small all-reduces a
         layer, in a CUDA graph and without
moe      mixture of experts, two experts a token, experts spread over the GPUs: all-to-alls, forward and backward

Everything that PyTorch lets be deterministic is, so that what differs between two runs comes from collectives.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import tempfile
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once; without it sums may change order

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

BATCHES = 4  # of random tokens, again and again: the loss falls, and so depends on what collectives delivered
TOKENS = 16  # that one step of `tensor` decodes
BF16 = torch.bfloat16

SIZES = {
    "train": dict(vocab=32000, dim=2048, heads=16, hidden=5632, layers=20, length=1024, batch=4),
    "tensor": dict(vocab=32000, dim=4096, heads=32, hidden=14336, layers=32, length=1024, batch=4),
    "moe": dict(vocab=8192, dim=2048, hidden=4096, layers=8, experts=8, length=1024, batch=8),
}
SMALL = {
    "train": dict(vocab=512, dim=256, heads=8, hidden=704, layers=2, length=128, batch=2),
    "tensor": dict(vocab=512, dim=512, heads=8, hidden=1024, layers=2, length=128, batch=2),
    "moe": dict(vocab=512, dim=256, hidden=512, layers=2, experts=2, length=128, batch=2),
}
# Kernels of NCCL and of FLX, by name; FLX moves some data by copies between GPUs.
COMMUNICATION = re.compile(r"nccl|flx|exchange_kernel|packets_kernel|lines_kernel|\brelay\b|\bchain\b|local_kernel"
                           r"|local_copy|flag_step|lane_step|memcpy ptop|memcpy p2p", re.IGNORECASE)


class Block(nn.Module):
    """Attention and SwiGLU, each behind a norm."""

    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        gate, value = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


class Transformer(nn.Module):
    """Returns the loss, so that DDP and FSDP wrap all that there is."""

    def __init__(self, size):
        super().__init__()
        dim = size["dim"]
        self.tokens = nn.Embedding(size["vocab"], dim)
        self.positions = nn.Embedding(size["length"], dim)
        self.blocks = nn.ModuleList(Block(dim, size["heads"], size["hidden"]) for _ in range(size["layers"]))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, size["vocab"], bias=False)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def start_weights(model):
    """Small normal weights; the same on all ranks, as they have seeded alike."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
        else:
            nn.init.ones_(parameter)


def batches(size, seed, rank, device):
    """Random tokens, other ones on each rank, the same in every run: [(inputs, targets), ...]."""
    generator = torch.Generator().manual_seed(1000 * seed + rank + 1)
    made = []
    for _ in range(BATCHES):
        tokens = torch.randint(size["vocab"], (size["batch"], size["length"] + 1), generator=generator).to(device)
        made.append((tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))
    return made


class Workload:
    """step(i) does the step's work and returns a number on the device that tells whether it was right: the loss.
    state(): the tensors that the work left behind. alike: all ranks must have the same state in the end."""
    parameters = 0  # of the whole model
    tokens = 0  # that a rank sees in a step; of `tensor`, that all see together
    alike = False

    def state(self):
        return []

    def close(self):
        pass


class Training(Workload):
    """DDP or FSDP."""

    def __init__(self, name, size, options, rank, device):
        with device:
            model = Transformer(size)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.tokens = size["batch"] * size["length"]
        self.data = batches(size, options.seed, rank, device)
        if name == "ddp":
            model.to(BF16)
            start_weights(model)
            self.model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index],
                                                             gradient_as_bucket_view=True)
            self.alike = True
        else:
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
            start_weights(model)
            policy = MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=BF16)
            for block in model.blocks:
                fully_shard(block, mp_policy=policy)
            fully_shard(model, mp_policy=policy)
            self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)

    def step(self, i):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(*self.data[i % BATCHES])
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        return [p.to_local() if hasattr(p, "to_local") else p for p in self.model.parameters()]


class Tensor(Workload):
    """Decoding of one token for each sequence of a batch. Each rank has its heads and its part of every hidden layer;
    an all-reduce follows each row-parallel product. The cache is full of random keys and values but for its last place,
    which is the token's own, so that a step is the same work each time."""
    alike = True

    def __init__(self, size, options, rank, world, device):
        dim, heads, hidden, batch = size["dim"], size["heads"], size["hidden"], size["batch"]
        if heads % world or hidden % world:
            raise SystemExit(f"train.py: {heads} heads cannot be split over {world} GPUs; take 2, 4 or 8")
        self.batch, self.heads, self.width = batch, heads // world, dim // heads
        self.parameters = 2 * size["vocab"] * dim + size["layers"] * (4 * dim * dim + 3 * dim * hidden)
        self.tokens = batch * TOKENS
        shared = torch.Generator(device).manual_seed(options.seed + 1)
        own = torch.Generator(device).manual_seed(1000 * options.seed + rank + 1)

        def weight(rows, columns, generator):
            made = torch.empty(rows, columns, dtype=BF16, device=device)
            return made.normal_(std=columns ** -0.5, generator=generator)

        inner = self.heads * self.width
        self.embedding = torch.empty(size["vocab"], dim, dtype=BF16, device=device).normal_(generator=shared)
        self.head = weight(size["vocab"], dim, shared)
        self.layers = []
        for _ in range(size["layers"]):
            shape = (batch, self.heads, size["length"], self.width)
            self.layers.append({
                "qkv": weight(3 * inner, dim, own), "out": weight(dim, inner, own),
                "up": weight(2 * hidden // world, dim, own), "down": weight(dim, hidden // world, own),
                "keys": torch.empty(shape, dtype=BF16, device=device).normal_(generator=own),
                "values": torch.empty(shape, dtype=BF16, device=device).normal_(generator=own)})
        generator = torch.Generator().manual_seed(options.seed)
        self.inputs = torch.randint(size["vocab"], (BATCHES, TOKENS, batch), generator=generator).to(device)
        self.token = self.inputs[0, 0].clone()  # a graph reads and writes the same memory each time
        self.hidden = torch.empty(batch, dim, dtype=BF16, device=device)
        self.chosen = torch.empty(batch, dtype=torch.int64, device=device)
        self.graph = None

    def decode(self):
        x = self.embedding[self.token]
        for layer in self.layers:
            qkv = F.linear(F.rms_norm(x, x.shape[-1:]), layer["qkv"])
            q, k, v = qkv.view(self.batch, 3, self.heads, 1, self.width).unbind(1)
            layer["keys"][:, :, -1:] = k
            layer["values"][:, :, -1:] = v
            mixed = F.scaled_dot_product_attention(q, layer["keys"], layer["values"])
            part = F.linear(mixed.reshape(self.batch, self.heads * self.width), layer["out"])
            dist.all_reduce(part)
            x = x + part
            gate, value = F.linear(F.rms_norm(x, x.shape[-1:]), layer["up"]).chunk(2, dim=-1)
            part = F.linear(F.silu(gate) * value, layer["down"])
            dist.all_reduce(part)
            x = x + part
        self.hidden.copy_(x)
        self.chosen.copy_(F.linear(F.rms_norm(x, x.shape[-1:]), self.head).argmax(-1))

    @torch.no_grad()
    def capture(self):
        """The step as a graph, after a few on a side stream, where libraries make what they need only once."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.decode()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # thread_local: the watchdog's thread may ask for events meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.decode()
        self.graph = graph

    @torch.no_grad()
    def step(self, i):
        for tokens in self.inputs[i % BATCHES]:
            self.token.copy_(tokens)
            if self.graph is None:
                self.decode()
            else:
                self.graph.replay()
        return self.hidden.float().abs().mean()

    def state(self):
        return [self.hidden, self.chosen]

    def close(self):
        self.graph = None  # NCCL does not destroy a communicator that a graph still uses, and would wait


class Exchange(torch.autograd.Function):
    """Equal parts to all ranks; a gradient goes back the same way."""

    @staticmethod
    def forward(ctx, parts):
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts)
        return out

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        out = torch.empty_like(gradient)
        dist.all_to_all_single(out, gradient)
        return out


class Experts(nn.Module):
    """Each token to its two best experts, which take no more than `capacity` tokens of a rank; the others are dropped,
    so that all buffers have the same size always."""

    def __init__(self, size, world):
        super().__init__()
        self.world, self.here = world, size["experts"]
        self.all = self.here * world
        self.capacity = -(-size["batch"] * size["length"] * 2 * 5 // (4 * self.all))
        self.norm = nn.RMSNorm(size["dim"])
        self.router = nn.Linear(size["dim"], self.all, bias=False)
        self.up = nn.Parameter(torch.empty(self.here, size["dim"], size["hidden"]))
        self.down = nn.Parameter(torch.empty(self.here, size["hidden"], size["dim"]))

    def forward(self, x):
        count, dim = x.shape
        places = self.all * self.capacity
        y = self.norm(x)
        weights, experts = F.softmax(self.router(y).float(), dim=-1).topk(2, dim=-1)
        chosen = experts.flatten()
        with torch.no_grad():
            order = F.one_hot(chosen, self.all).cumsum(0).gather(1, chosen[:, None]).squeeze(1) - 1  # at that expert
            kept = order < self.capacity
            # Dropped ones get places of their own behind the buffer, and empty places read some token with weight 0: no
            # index occurs more often than it must, as gradients of equal ones are added one by one.
            mine = torch.arange(2 * count, device=x.device)
            place = torch.where(kept, chosen * self.capacity + order, places + mine)
            token = (torch.arange(places + 2 * count, device=x.device) % count).scatter(0, place, mine // 2)[:places]
            used = torch.zeros(places + 2 * count, dtype=x.dtype, device=x.device).scatter(0, place, 1)[:places]
            place = torch.where(kept, place, mine % places)
        sent = y[token] * used[:, None]
        came = Exchange.apply(sent)
        came = came.view(self.world, self.here, self.capacity, dim).transpose(0, 1).reshape(self.here, -1, dim)
        done = torch.bmm(F.gelu(torch.bmm(came, self.up)), self.down)
        back = done.view(self.here, self.world, self.capacity, dim).transpose(0, 1).reshape(places, dim)
        back = Exchange.apply(back)
        weights = (weights.flatten() * kept).to(x.dtype)
        return x + (back[place] * weights[:, None]).view(count, 2, dim).sum(1)


class Mixture(Workload):
    """Embedding, layers of experts, head. Experts are a rank's own; the rest is the same on all ranks, and its
    gradients are averaged in one all-reduce."""

    def __init__(self, size, options, rank, world, device):
        self.world = world
        with device:
            self.embedding = nn.Embedding(size["vocab"], size["dim"])
            self.layers = nn.ModuleList(Experts(size, world) for _ in range(size["layers"]))
            self.head = nn.Linear(size["dim"], size["vocab"], bias=False)
        parts = nn.ModuleList([self.embedding, self.layers, self.head]).to(BF16)
        self.own = [p for layer in self.layers for p in (layer.up, layer.down)]
        ids = {id(p) for p in self.own}
        self.shared = [p for p in parts.parameters() if id(p) not in ids]
        generator = torch.Generator(device).manual_seed(1000 * options.seed + rank + 1)
        with torch.no_grad():
            start_weights(parts)
            for parameter in self.own:
                parameter.normal_(std=0.02, generator=generator)
        self.parameters = world * sum(p.numel() for p in self.own) + sum(p.numel() for p in self.shared)
        self.tokens = size["batch"] * size["length"]
        self.data = batches(size, options.seed, rank, device)
        self.optimizer = torch.optim.AdamW(parts.parameters(), lr=3e-4, fused=True)

    def step(self, i):
        self.optimizer.zero_grad(set_to_none=True)
        inputs, targets = self.data[i % BATCHES]
        x = self.embedding(inputs.flatten())
        for layer in self.layers:
            x = layer(x)
        loss = F.cross_entropy(self.head(x).float(), targets.flatten())
        loss.backward()
        with torch.no_grad():
            flat = torch.cat([p.grad.flatten() for p in self.shared])
            dist.all_reduce(flat, op=dist.ReduceOp.AVG)
            for p, mean in zip(self.shared, flat.split([p.numel() for p in self.shared])):
                p.grad.copy_(mean.view_as(p))
            for p in self.own:  # they have the sum over all ranks' tokens
                p.grad.div_(self.world)
        self.optimizer.step()
        return loss.detach()

    def state(self):
        return self.own + self.shared


def digest(tensors):
    """63 bits of a hash of all tensors' bits. They are added as integers on the GPU: no order can change such a sum."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [t.detach().contiguous().view(whole[t.element_size()]).sum(dtype=torch.int64).item() for t in tensors]
    return int.from_bytes(hashlib.sha256(json.dumps(sums).encode()).digest()[:8], "big") >> 1


def gather(numbers, world, device, dtype=torch.float64):
    """Every rank's numbers: [[rank 0's], [rank 1's], ...]."""
    mine = torch.as_tensor(numbers, dtype=dtype, device=device).flatten()
    out = torch.empty(world * mine.numel(), dtype=dtype, device=device)
    dist.all_gather_into_tensor(out, mine)
    return out.view(world, -1).tolist()


def timed(workload, first, steps, options, rank):
    """Runs steps from number `first` on: what step() returned, and each step's milliseconds on this rank."""
    said, times = [], []
    for i in range(first, first + steps):
        if options.kill_step == i and rank == options.kill_rank:
            print(f"train.py: rank {rank} kills itself before step {i}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.perf_counter()
        result = workload.step(i)
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
        said.append(result)
    return said, times


def covered(spans):
    """Sorted pieces without overlap that cover the same time."""
    pieces = []
    for begin, end in sorted(spans):
        if pieces and begin <= pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], end)
        else:
            pieces.append([begin, end])
    return pieces


def shares(events, wall_us):
    """Of a trace's events: the part of the time in which the GPU communicated, and in which it did nothing else. That a
    kernel waits for the other GPUs counts, too."""
    total = [(e["ts"], e["ts"] + e["dur"], bool(COMMUNICATION.search(e.get("name", "")))) for e in events
             if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not total:
        return None
    length = lambda spans: sum(end - begin for begin, end in covered(spans))  # noqa: E731
    busy = length([(begin, end) for begin, end, _ in total])
    compute = length([(begin, end) for begin, end, communicates in total if not communicates])
    communication = length([(begin, end) for begin, end, communicates in total if communicates])
    return {"communication": communication / wall_us, "alone": (busy - compute) / wall_us, "idle": 1 - busy / wall_us}


def profile(workload, first, rank):
    """Two steps more, under the profiler on rank 0: shares(), or None where there is no profiler. All ranks take the
    steps whatever becomes of the profiler, as they wait for each other."""
    profiler = None
    if rank == 0:
        try:
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            profiler.start()
        except Exception as why:  # such as a machine that does not let its counters be read
            print(f"train.py: no profile: {why}", file=sys.stderr)
            profiler = None
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(first, first + 2):
        workload.step(i)
        torch.cuda.synchronize()
    wall_us = 1e6 * (time.perf_counter() - began)
    if profiler is None:
        return None
    try:
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            return shares(json.loads(path.read_text())["traceEvents"], wall_us)
    except Exception as why:
        print(f"train.py: no profile: {why}", file=sys.stderr)
        return None


def barrier():
    dist.barrier()
    torch.cuda.synchronize()


def summary(times):
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}


def measure(options, rank, world, device):
    """The whole run: on rank 0 what goes to the JSON, on the others None; and whether it was right."""
    sizes = SMALL if options.small else SIZES
    size = sizes.get(options.workload, sizes["train"])
    torch.manual_seed(options.seed)
    if options.workload == "tensor":
        workload = Tensor(size, options, rank, world, device)
    elif options.workload == "moe":
        workload = Mixture(size, options, rank, world, device)
    else:
        workload = Training(options.workload, size, options, rank, device)
    if rank == 0:
        print(f"{options.workload}: {workload.parameters / 1e9:.3f} billion parameters, {world} GPUs", flush=True)
    barrier()
    said, _ = timed(workload, 0, options.warmup, options, rank)
    more = {}
    if options.workload == "tensor":
        barrier()
        _, plain = timed(workload, options.warmup, options.steps, argparse.Namespace(kill_step=None), rank)
        plain = [max(times) for times in zip(*gather(plain, world, device))]
        more = {"without_graph_ms": summary(plain), "tokens_a_step": TOKENS,
                "without_graph_ms_a_token": statistics.median(plain) / TOKENS}
        workload.capture()
        timed(workload, 0, options.warmup, argparse.Namespace(kill_step=None), rank)
    barrier()
    counted, times = timed(workload, options.warmup, options.steps, options, rank)
    torch.cuda.synchronize()
    # A step is over when the slowest rank is through. Means of losses are made here, not by what is compared.
    times = [max(step) for step in zip(*gather(times, world, device))]
    losses = gather(torch.stack(said + counted), world, device)
    losses = [sum(step) / world for step in zip(*losses)]
    hashes = [row[0] for row in gather([digest(workload.state())], world, device, torch.int64)]
    agree = len(set(hashes)) == 1 if workload.alike else None
    part = profile(workload, options.warmup + options.steps, rank)
    barrier()
    workload.close()
    if rank != 0:
        return None, agree is not False
    median = statistics.median(times)
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    if options.workload == "tensor":
        more["ms_a_token"] = median / TOKENS
    seen = workload.tokens * (1 if options.workload == "tensor" else world)
    environment = {name: value for name, value in sorted(os.environ.items())
                   if re.match(r"NCCL_|FLX_|TORCH_NCCL_|CUBLAS_|LD_PRELOAD$", name)}
    return {"workload": options.workload, "world": world, "parameters": workload.parameters, "size": size,
            "steps": options.steps, "warmup": options.warmup, "seed": options.seed,
            "flx": "libflx_nccl" in os.environ.get("LD_PRELOAD", ""),
            "step_ms": {**summary(times), "all": times}, **more, "tokens_per_second": 1000 * seen / median,
            "losses": [loss.hex() for loss in losses], "hashes": hashes, "ranks_agree": agree, "profile": part,
            "torch": torch.__version__, "cuda": torch.version.cuda, "nccl": nccl,
            "device": torch.cuda.get_device_name(device), "memory_GiB": torch.cuda.max_memory_allocated() / (1 << 30),
            "environment": environment}, agree is not False


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", required=True, choices=["ddp", "fsdp", "tensor", "moe"])
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed (20)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them (5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="a tiny model, to see that everything runs")
    parser.add_argument("--json", help="rank 0 writes the result here")
    parser.add_argument("--kill-rank", type=int, help="this rank kills itself, to see what becomes of the others")
    parser.add_argument("--kill-step", type=int, help="before this step; warm-up counts")
    options = parser.parse_args()
    if options.steps < 1 or options.warmup < 1:
        parser.error("--steps and --warmup must be at least 1")
    if (options.kill_rank is None) != (options.kill_step is None):
        parser.error("--kill-rank and --kill-step belong together")
    if "RANK" not in os.environ:
        parser.error("torchrun starts this: torchrun --standalone --nproc-per-node 2 train.py ...")
    return options


def main():
    options = arguments()
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if torch.cuda.device_count() <= local:
        sys.exit(f"train.py: rank {rank} needs GPU {local}, this machine has {torch.cuda.device_count()}")
    kills = options.kill_rank is not None
    if kills:
        # torchrun ends the others at once when one is gone; they are to find out by themselves.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True, warn_only=options.workload in ("tensor", "moe"))  # flash attention needs it
    torch.utils.deterministic.fill_uninitialized_memory = False  # only slows down: nothing here reads such memory
    torch.backends.cuda.enable_cudnn_sdp(False)  # flash attention has a backward that can be repeated
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=20 if kills else 120), device_id=device)
    try:
        result, right = measure(options, rank, world, device)
    except Exception as why:
        if kills:
            print(f"train.py: rank {rank} got an error, as it should: {why}", file=sys.stderr, flush=True)
        raise
    if result is not None:
        text = json.dumps(result, indent=1)
        if options.json:
            pathlib.Path(options.json).write_text(text + "\n")
        step = result["step_ms"]
        print(f"{result['device']}, torch {result['torch']}, NCCL {result['nccl']}{', FLX' if result['flx'] else ''}: "
              f"{step['median']:.3f} ms a step ({step['min']:.3f} to {step['max']:.3f}), "
              f"{result['tokens_per_second']:.0f} tokens/s, last loss {float.fromhex(result['losses'][-1]):.6f}")
        if result["profile"]:
            print(f"{result['profile']['communication']:.1%} of the GPU's time in communication, "
                  f"{result['profile']['alone']:.1%} in nothing else")
        if not right:
            print("train.py: the ranks ended with different results", file=sys.stderr)
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
