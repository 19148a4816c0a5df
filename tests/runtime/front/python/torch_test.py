"""The backend `flx` of torch.distributed, against what the same calls give by hand.

    python3 torch_test.py [RANKS]        starts its ranks itself
"""

import datetime
import os
import signal
import socket
import subprocess
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
         torch.float64, torch.complex64)


def same(found, expected, what):
    assert torch.equal(found, expected), (what, found, expected)


def refused(call, pattern):
    try:
        call()
    except RuntimeError as error:
        assert pattern in str(error), error
    else:
        raise AssertionError(f"no error of {pattern}")


def values(rank, dtype, shape=(3, 5)):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * (rank + 2) + rank) % 5 + 1).to(dtype).reshape(shape)


def check_collectives(group, rank, size, members):
    """`rank` of `size` in a group whose ranks in the world are `members`."""
    for dtype in TYPES:
        parts = [values(other, dtype) for other in range(size)]
        total = sum(part.to(torch.complex128 if dtype.is_complex else torch.float64) for part in parts).to(dtype)
        mine = parts[rank].clone()
        dist.all_reduce(mine, group=group)
        same(mine, total, ("all_reduce", dtype))
        mine = parts[rank].clone()
        dist.reduce(mine, members[-1], group=group)
        if rank == size - 1:
            same(mine, total, ("reduce", dtype))
        mine = parts[rank].clone()
        dist.broadcast(mine, members[0], group=group)
        same(mine, parts[0], ("broadcast", dtype))
        outputs = [torch.zeros_like(mine) for _ in range(size)]
        dist.all_gather(outputs, parts[rank], group=group)
        for found, expected in zip(outputs, parts):
            same(found, expected, ("all_gather", dtype))
        if not dtype.is_complex:
            mine = parts[rank].clone()
            dist.all_reduce(mine, dist.ReduceOp.MAX, group=group)
            same(mine, torch.stack([part.double() for part in parts]).amax(0).to(dtype), ("max", dtype))
        outputs = torch.zeros(size * 15, dtype=dtype)
        dist._all_gather_base(outputs, parts[rank].reshape(-1), group=group)
        same(outputs, torch.cat([part.reshape(-1) for part in parts]), ("_all_gather_base", dtype))
        outputs = [torch.zeros_like(mine) for _ in range(size)] if rank == 0 else None
        dist.gather(parts[rank], outputs, members[0], group=group)
        if rank == 0:
            for found, expected in zip(outputs, parts):
                same(found, expected, ("gather", dtype))
        mine = torch.zeros_like(mine)
        dist.scatter(mine, parts if rank == 0 else None, members[0], group=group)
        same(mine, parts[rank], ("scatter", dtype))
        blocks = [[values(one * size + other, dtype, (4,)) for other in range(size)] for one in range(size)]
        mine = torch.zeros(4, dtype=dtype)
        dist.reduce_scatter(mine, blocks[rank], group=group)
        sums = sum(blocks[other][rank].to(torch.complex128) for other in range(size))
        same(mine, (sums if dtype.is_complex else sums.real).to(dtype), ("reduce_scatter", dtype))
        mine = torch.zeros(4, dtype=dtype)
        dist._reduce_scatter_base(mine, torch.cat(blocks[rank]), group=group)
        same(mine, (sums if dtype.is_complex else sums.real).to(dtype), ("_reduce_scatter_base", dtype))
        outputs = [torch.zeros(4, dtype=dtype) for _ in range(size)]
        dist.all_to_all(outputs, blocks[rank], group=group)
        for other in range(size):
            same(outputs[other], blocks[other][rank], ("all_to_all", dtype))
    # Rows of each rank's own number.
    send = torch.cat([torch.full((rank + other, 2), 10.0 * rank + other) for other in range(size)])
    recv = torch.zeros(sum(rank + other for other in range(size)), 2)
    splits = [rank + other for other in range(size)]
    dist.all_to_all_single(recv, send, splits, splits, group=group)
    same(recv, torch.cat([torch.full((rank + other, 2), 10.0 * other + rank) for other in range(size)]), "rows")
    truth = torch.tensor([rank == 0, False])
    dist.all_reduce(truth, group=group)
    same(truth, torch.tensor([True, False]), "bool")
    tensors = [torch.full((2, 2), float(rank)), torch.full((5,), rank + 1.0)]
    dist.all_reduce_coalesced(tensors, group=group)
    same(tensors[1], torch.full((5,), size * (size + 1) / 2), "coalesced")
    average = torch.full((3,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG, group=group)
    same(average, torch.full((3,), (size - 1) / 2), "average")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": other} for other in range(size)], objects
    dist.barrier(group=group)


def run_all(rank, size):
    check_collectives(None, rank, size, list(range(size)))
    evens = dist.new_group(list(range(0, size, 2)))
    rest = dist.new_group(list(range(1, size)))
    if rank % 2 == 0:
        check_collectives(evens, rank // 2, (size + 1) // 2, list(range(0, size, 2)))
    if rank > 0:
        check_collectives(rest, rank - 1, size - 1, list(range(1, size)))
    # Many at once, waited for in the other order; and what follows an operation.
    tensors = [torch.full((20_000,), float(rank + salt)) for salt in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    last = works[-1].get_future().then(lambda future: future.value()[0].sum().item())
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success()
    for salt, tensor in enumerate(tensors):
        same(tensor, torch.full((20_000,), size * (size - 1) / 2 + size * salt), "many")
    assert last.wait() == tensors[-1].sum().item()
    # All send to the next before they receive.
    received = torch.zeros(1000)
    works = [dist.isend(torch.full((1000,), float(rank)), (rank + 1) % size), dist.irecv(received, (rank - 1) % size)]
    for work in works:
        work.wait()
    same(received, torch.full((1000,), float((rank - 1) % size)), "messages")
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        received = torch.zeros(3)
        dist.recv(received, 0)
        same(received, torch.ones(3), "message")
    for wrong, pattern in (
        (lambda: dist.all_reduce(torch.ones(4, 4)[:, 0]), "contiguous"),
        (lambda: dist._all_gather_base(torch.ones(3 * size + 1), torch.ones(3)), "has to have"),
        (lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), "FLX-E106"),
        (lambda: dist.all_reduce(torch.ones(3, 3).to_sparse_csr()), "dense"),
        (lambda: dist.all_reduce(torch.ones(3).to_sparse(), dist.ReduceOp.MAX), "sparse tensors are added"),
        (lambda: dist.irecv(torch.ones(1), (rank + 1) % size, tag=-1), "0 or more"),
    ):
        refused(wrong, pattern)
    for wrong, pattern in (
        (lambda: dist.all_reduce(torch.tensor([True]), dist.ReduceOp.AVG), "no average"),
        (lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2), [3, -1], [3, -1]), "0 or more"),
        (lambda: dist.send(torch.ones(1), rank), "itself"),
    )[: 3 if size == 2 else 1]:
        refused(wrong, pattern)
    check_messages(rank)
    check_tags(rank, size)
    check_leaving(rank, size)
    check_lists(rank, size)
    check_sparse(rank, size)
    check_futures(rank, size)
    check_layouts(rank, size)
    same_as_alone(rank, size)
    check_store(rank, size)


def check_messages(rank):
    """Between ranks 0 and 1, while all have collectives."""
    other = 1 - rank
    for round in range(100 if rank < 2 else 0):
        received = torch.zeros(1_000_000)
        works = [dist.isend(torch.full((1_000_000,), float(round)), other), dist.irecv(received, other)]
        for work in works:
            work.wait()
        assert received[0] == received[-1] == round, (round, received)
    for count in (1, 300_000):
        received = torch.zeros(count)
        if rank == 0:  # begins to receive long before the other sends, and goes on
            work = dist.irecv(received, 1)
            time.sleep(0.05)
            dist.send(torch.ones(count), 1)
            work.wait()
            same(received, torch.full((count,), 2.0), "an early receiver")
        elif rank == 1:
            dist.recv(received, 0)
            dist.send(received + 1, 0)
        work = dist.irecv(received, 1) if rank == 0 else None
        dist.all_reduce(torch.ones(2))
        if rank == 1:
            dist.send(torch.full((count,), 5.0), 0)
        elif rank == 0:
            while not work.is_completed():
                time.sleep(0.001)
            same(received, torch.full((count,), 5.0), "an early receiver beside a collective")
    if rank == 0:  # small ones do not wait for who receives them
        for value in range(3):
            dist.send(torch.tensor([value]), 1)
    dist.barrier()
    if rank == 1:
        for value in range(3):
            received = torch.zeros(1, dtype=torch.int64)
            dist.recv(received, 0)
            assert received.item() == value


def check_tags(rank, size):
    """Messages are found by their tags, in any order, and by whoever sends first."""
    counts = (3, 100_000)
    for count in counts:  # what comes first is kept for later
        if rank == 0:
            works = [dist.isend(torch.full((count,), float(tag)), 1, tag=tag) for tag in (5, 2, 5, 0)]
        elif rank == 1:
            received = [torch.zeros(count) for _ in range(4)]
            works = [dist.irecv(received[i], 0, tag=tag) for i, tag in enumerate((0, 2))]
            for work in works:
                work.wait()
            works = [dist.irecv(received[2 + i], 0, tag=5) for i in range(2)]
        for work in works if rank < 2 else ():
            work.wait()
        if rank == 1:
            for tensor, tag in zip(received, (0, 2, 5, 5)):
                same(tensor, torch.full((count,), float(tag)), ("tags", count))
    dist.barrier()
    if rank == 0:  # one that waits for a tag does not hold up those of others
        dist.send(torch.ones(200_000), 1, tag=7)
        answer = torch.zeros(1)
        dist.recv(answer, 1)
        dist.send(answer, 1, tag=8)
    elif rank == 1:
        early, late = torch.zeros(1), torch.zeros(200_000)
        work = dist.irecv(early, 0, tag=8)
        dist.recv(late, 0, tag=7)
        same(late, torch.ones(200_000), "another tag")
        dist.send(torch.full((1,), 3.0), 0)
        work.wait()
        same(early, torch.full((1,), 3.0), "an early tag")
    for count in (0, 4, 50_000):  # from any rank
        if rank == 0:
            seen = []
            for _ in range(size - 1):
                received = torch.zeros(count)
                sender = dist.recv(received, tag=3)
                same(received, torch.full((count,), float(sender)), "any source")
                seen.append(sender)
            assert sorted(seen) == list(range(1, size)), seen
        else:
            dist.send(torch.full((count,), float(rank)), 0, tag=3)
        dist.barrier()
    if rank == 0:  # too long and too short ones are errors of who awaits them, and nobody else's
        for count in (2, 5, 100_000):
            dist.isend(torch.ones(count), 1)
        dist.isend(torch.full((3,), 2.0), 1).wait()
    elif rank == 1:
        for count in (2, 5, 100_000):
            refused(lambda: dist.recv(torch.zeros(3), 0), f"sent {4 * count} bytes with tag 0, where 12 are awaited")
        received = torch.zeros(3)
        dist.recv(received, 0)
        same(received, torch.full((3,), 2.0), "after errors")
    dist.barrier()


def check_leaving(rank, size):
    """Who has sent leaves, and the others go on."""
    import flx.torch

    store = dist.PrefixStore("leaving", dist.distributed_c10d._get_default_store())
    group = flx.torch._create(store, rank, size, datetime.timedelta(seconds=20))
    if rank == 0:
        senders = []
        for _ in range(size - 1):
            received = torch.zeros(1)
            work = group.recv_anysource([received], 4)
            work.wait()
            senders.append(work._source_rank())
        assert sorted(senders) == list(range(1, size)), senders
    else:
        time.sleep(0.3 * (size - 1 - rank))
        group.send([torch.full((1,), float(rank))], 0, 4).wait()
    del group
    group = flx.torch._create(dist.PrefixStore("left", store), rank, size, datetime.timedelta(seconds=20))
    group.barrier().wait()
    if rank == 0:  # nothing comes from anybody
        refused(lambda: group.recv_anysource([torch.zeros(1)], 0).wait(), "has left")
    else:  # once all have sent something else
        group.send([torch.ones(1)], 0, 1).wait()
    del group


def check_lists(rank, size):
    """Several tensors a rank, as groups take them themselves."""
    group = dist.distributed_c10d._get_default_group()
    for op, expected in ((dist.ReduceOp.SUM, sum(range(2 * size))), (dist.ReduceOp.MAX, 2 * size - 1),
                         (dist.ReduceOp.MIN, 0)):
        tensors = [torch.full((2, 3), 2.0 * rank + i) for i in range(2)]
        options = dist.AllreduceOptions()
        options.reduceOp = op
        group.allreduce(tensors, options).wait()
        for tensor in tensors:
            same(tensor, torch.full((2, 3), float(expected)), ("two tensors", op))
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = size - 1, 1
    tensors = [torch.full((5,), 2.0 * rank + i) for i in range(2)]
    group.broadcast(tensors, options).wait()
    for tensor in tensors:
        same(tensor, torch.full((5,), 2.0 * size - 1), "broadcast of the second")
    inputs = [torch.full((4,), 2.0 * rank + i)[::2] for i in range(2)]  # with gaps
    outputs = [[torch.zeros(2) for _ in range(2 * size)] for _ in range(2)]
    value = group.allgather(outputs, inputs).get_future().wait()
    for tensors in (*outputs, *value):
        for i, tensor in enumerate(tensors):
            same(tensor, torch.full((2,), float(i)), "all_gather of lists")
    parameter = torch.nn.Parameter(torch.ones(2, 3).t())
    with torch.no_grad():
        dist.all_reduce(parameter)
    assert parameter.requires_grad and parameter.is_leaf and parameter.detach().eq(size).all()
    with torch.inference_mode():
        outputs = [torch.zeros(2) for _ in range(size)]
        dist.all_gather(outputs, torch.full((2,), float(rank)))
        assert [int(output[0]) for output in outputs] == list(range(size))
    for wrong, pattern in (
        (lambda: dist.all_reduce(torch.ones(3, dtype=torch.complex64).conj()), "resolve_conj"),
        (lambda: group.allreduce([torch.ones(1), torch.ones(2)]), "invalid tensor size at index 1"),
        (lambda: group.allgather([[torch.ones(1)] * size], []), "non-empty input tensor list"),
        (lambda: group.allgather([[torch.ones(1)]], [torch.ones(1)]), "invalid output tensor list"),
    ):
        refused(wrong, pattern)


def check_sparse(rank, size):
    """Some ranks have no entries, some the same ones."""
    for dtype in (torch.float32, torch.float64, torch.int64):
        dense = [torch.zeros(6, 4, 2, dtype=dtype) for _ in range(size)]
        for other in range(1, size):
            dense[other][other % 6] = other
            dense[other][0, other % 4] = 2 * other
        for axes in (1, 2, 3):
            tensor = dense[rank].to_sparse(axes)
            dist.all_reduce(tensor)
            same(tensor.to_dense(), sum(dense), ("sparse", dtype, axes))
    scalar = torch.tensor(float(rank)).to_sparse()  # of no axes
    dist.all_reduce(scalar)
    assert scalar.to_dense().item() == sum(range(size))
    refused(lambda: dist.all_reduce(torch.ones(3 + (rank == 1)).to_sparse()), "other shapes")
    refused(lambda: dist.all_reduce((torch.ones(3, 3) if rank == 1 else torch.ones(3)).to_sparse()), "axes")


def check_futures(rank, size):
    def twice(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    if rank == 1:
        time.sleep(0.2)
    futures = [dist.all_reduce(torch.full((1000,), salt + 1.0), async_op=True).get_future() for salt in range(8)]
    for salt, future in enumerate([future.then(twice) for future in futures]):
        same(future.wait(), torch.full((1000,), (salt + 1.0) * size * size), "a collective that follows another")
    for _ in range(300):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        future = work.get_future()
        work.wait()
        assert future.done()


def check_layouts(rank, size):
    """Axes in other orders in some ranks."""

    def ordered(values):
        return values.clone() if rank == 0 else values.t().contiguous().t()

    values = torch.arange(6.0).reshape(2, 3)
    tensor = ordered(values * (rank == 0))
    dist.broadcast(tensor, 0)
    same(tensor, values, "broadcast")
    tensor = ordered(values + rank)
    dist.all_reduce(tensor)
    same(tensor, values * size + size * (size - 1) / 2, "all_reduce")
    tensor = ordered(values + rank)
    dist.reduce(tensor, 1)
    if rank == 1:
        same(tensor, values * size + size * (size - 1) / 2, "reduce")


def check_store(rank, size):
    """Of what ranks tell each other only the last monitored barrier stays."""
    import flx.torch

    store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
    timeout = datetime.timedelta(seconds=100)
    group = flx.torch._create(store, rank, size, timeout)
    for _ in range(2):
        group.monitored_barrier(timeout, False)
    if rank == 0:
        group.send([torch.ones(1)], 1, 0).wait()
    elif rank == 1:
        group.recv([torch.ones(1)], 0, 0).wait()
    dist.barrier()
    if rank == 0:
        assert store.delete_key("flx/barrier/1/answer")
        for key in ("flx/store", "flx/came/0", f"flx/came/{size - 1}", "flx/0-1/store", "flx/0-1/came/1",
                    "flx/barrier/0/0", "flx/barrier/0/answer"):
            assert not store.delete_key(key), key
    dist.barrier()


def same_as_alone(rank, size):
    """A model that is trained by all ranks is the one that one process makes of all their inputs."""
    torch.manual_seed(1)
    alone = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3)).double()
    torch.manual_seed(1 + rank)  # the parameters of rank 0 count
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3)).double()
    model = torch.nn.parallel.DistributedDataParallel(model)
    inputs = torch.arange(size * 40.0, dtype=torch.float64).reshape(size * 4, 10).sin()
    for trained, part in ((alone, inputs), (model, inputs[rank * 4 : (rank + 1) * 4])):
        optimizer = torch.optim.SGD(trained.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            trained(part).square().mean().backward()
            optimizer.step()
    for one, other in zip(alone.parameters(), model.parameters()):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-14), (one, other)


def run_death(rank, size):
    """Rank 1 is killed; all others get an exception that names it."""
    dist.barrier()
    if rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(1000))
    except RuntimeError as error:
        assert "rank 1" in str(error) and "FLX-E601" in str(error), error
        assert time.monotonic() - began < 3
        return
    raise AssertionError("no error")


def run_late(rank, size):
    """Timeouts, and who is late."""
    import flx.torch

    flx.torch.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    if rank == 1:
        time.sleep(20)
        os._exit(0)
    began = time.monotonic()
    try:
        flx.torch.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        assert "rank 1 did not reach" in str(error), error
    else:
        raise AssertionError("no error")
    try:
        dist.all_reduce(torch.ones(1000), async_op=True).wait(datetime.timedelta(seconds=1))
    except RuntimeError as error:
        assert "all_reduce has not completed within 1000 ms" in str(error), error
    else:
        raise AssertionError("no error")
    assert time.monotonic() - began < 3.5
    sys.exit(0)  # whoever is late does not keep others from their end


def run_fork(rank, size):
    """A child that ends as programs end leaves its parent's process group alone."""
    dist.all_reduce(torch.ones(10))
    if rank == 0:
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(10))
            except RuntimeError as error:
                assert "forked child" in str(error), error
            else:
                os._exit(3)
            try:
                dist.send(torch.ones(1), 1)
            except RuntimeError as error:
                assert "forked child" in str(error), error
            else:
                os._exit(4)
            dist.destroy_process_group()
            sys.exit(7)
        until = time.monotonic() + 60
        ended = 0
        while ended == 0 and time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.05)
        assert ended == child and os.waitstatus_to_exitcode(status) == 7, (ended, status)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    same(tensor, torch.full((10,), float(size)), "after the fork")


def run_told(rank, size):
    """Rank 0 cannot say where it is, and others hear of it at once."""
    import flx.torch

    if rank == 0:
        os.environ["MASTER_ADDR"] = "no.such.host.invalid"
    store = dist.distributed_c10d._get_default_store()
    began = time.monotonic()
    try:
        flx.torch._create(dist.PrefixStore("told", store), rank, size, datetime.timedelta(seconds=100))
    except RuntimeError as error:
        assert "no.such.host.invalid" in str(error), error
    else:
        raise AssertionError("no error")
    assert time.monotonic() - began < 50
    dist.barrier()


def start(size, mode):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(size):
        environment = os.environ | {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(size),
            "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        }
        ranks.append(subprocess.Popen([sys.executable, __file__, mode], env=environment))
    if mode == "late":
        for rank in (0, 2):
            ranks[rank].wait(timeout=250)
        if ranks[1].poll() is not None:
            sys.exit("ranks whose peer was late ended after it")
    codes = [process.wait(timeout=250) for process in ranks]
    expected = [0] * size
    if mode == "death":
        expected[1] = -signal.SIGKILL
    if codes != expected:
        sys.exit(f"{mode} of {size} ranks: exit codes {codes}")


def check_entry_point():
    """PyTorch since 2.5 finds the backend by itself."""
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group="torch.backends") if point.name == "flx"]
    assert len(found) == 1, found
    found[0].load()()
    assert dist.Backend("flx") == "flx"


if __name__ == "__main__":
    modes = {"all": run_all, "death": run_death, "late": run_late, "fork": run_fork, "told": run_told}
    if len(sys.argv) == 2 and sys.argv[1] in modes:
        import flx.torch

        dist.init_process_group("flx")
        modes[sys.argv[1]](dist.get_rank(), dist.get_world_size())
        dist.destroy_process_group()
    else:
        check_entry_point()
        for size in (2, 3, 4):
            start(size, "all")
        start(3, "death")
        start(3, "late")
        start(2, "fork")
        start(2, "told")
