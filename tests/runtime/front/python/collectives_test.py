"""Every collective of the package flx over types and reductions, against what numpy computes of all ranks' inputs.

    mpirun -n N python3 collectives_test.py      N > 1; the package is found by PYTHONPATH
"""

import array
import asyncio
import re
import threading
import time
import unittest

import numpy as np
from mpi4py import MPI

import flx

COMM = flx.Communicator.from_mpi(MPI.COMM_WORLD)
RANK, SIZE = COMM.rank, COMM.size
COUNTS = (0, 1, 7, 1000, 40_000)
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
FLOATS = (np.float16, np.float32, np.float64)
COMPLEX = (np.complex64, np.complex128)


def inputs(dtype, count, salt=0):
    """Each rank's, small whole numbers, so that every order of addition gives the same bits."""
    return [((np.arange(count) * (rank + 3) + rank + salt) % 5 + 1).astype(dtype) for rank in range(SIZE)]


def blocks(dtype, count, salt=0):
    """Of each rank, a block for each rank."""
    return [np.concatenate([part + dtype(rank) for rank in range(SIZE)]) for part in inputs(dtype, count, salt)]


REDUCTIONS = {
    flx.SUM: (np.add, INTEGERS + FLOATS + COMPLEX),
    flx.PROD: (np.multiply, INTEGERS + (np.float32, np.float64) + COMPLEX),
    flx.MIN: (np.minimum, INTEGERS + FLOATS),
    flx.MAX: (np.maximum, INTEGERS + FLOATS),
    flx.BAND: (np.bitwise_and, INTEGERS),
    flx.BOR: (np.bitwise_or, INTEGERS),
    flx.BXOR: (np.bitwise_xor, INTEGERS),
    flx.LAND: (lambda a, b: (a.astype(bool) & b.astype(bool)).astype(a.dtype), INTEGERS),
    flx.LOR: (lambda a, b: (a.astype(bool) | b.astype(bool)).astype(a.dtype), INTEGERS),
    flx.LXOR: (lambda a, b: (a.astype(bool) ^ b.astype(bool)).astype(a.dtype), INTEGERS),
}


def reduced(op, parts):
    """In rank order, one after the other."""
    function = REDUCTIONS[op][0]
    result = parts[0].copy()
    for part in parts[1:]:
        result = function(result, part)
    return result


def cases():
    for op, (_, types) in REDUCTIONS.items():
        for dtype in types:
            for count in COUNTS:
                yield op, dtype, count


class Collectives(unittest.TestCase):
    def both(self, name, *args, **options):
        """Calls the blocking form, then the other one; what the caller compares is what the second left."""
        for prefix in ("", "i"):
            result = getattr(COMM, prefix + name)(*args, **options)
            if prefix:
                result.wait()
                self.assertTrue(result.test())
            yield prefix + name

    def equal(self, found, expected, what):
        self.assertEqual(found.tobytes(), expected.astype(found.dtype).tobytes(), what)

    def test_allreduce_and_reduce(self):
        for op, dtype, count in cases():
            parts = inputs(dtype, count)
            expected = reduced(op, parts)
            recv = np.empty_like(expected)
            for form in self.both("allreduce", parts[RANK], recv, op):
                self.equal(recv, expected, (form, op, dtype, count))
            own = parts[RANK].copy()
            COMM.allreduce(own, op=op)
            self.equal(own, expected, ("in place", op, dtype, count))
            root = count % SIZE
            recv = np.zeros_like(expected) if root == RANK else None
            for form in self.both("reduce", parts[RANK], recv, op, root):
                if RANK == root:
                    self.equal(recv, expected, (form, op, dtype, count))

    def test_reduce_scatter_and_scans(self):
        for op, dtype, count in cases():
            parts = inputs(dtype, count * SIZE)
            expected = reduced(op, parts)[RANK * count : (RANK + 1) * count]
            recv = np.zeros(count, dtype)
            for form in self.both("reduce_scatter_block", parts[RANK], recv, op):
                self.equal(recv, expected, (form, op, dtype, count))
            counts = [count * 2 if rank == 0 else 0 if rank == 1 else count for rank in range(SIZE)]
            at = sum(counts[:RANK])
            recv = np.zeros(counts[RANK], dtype)
            for form in self.both("reduce_scatter", parts[RANK], recv, counts, op):
                self.equal(recv, reduced(op, parts)[at : at + counts[RANK]], (form, op, dtype, count))
            recv = np.zeros(count, dtype)
            firsts = [part[:count] for part in parts]
            for form in self.both("scan", firsts[RANK], recv, op):
                self.equal(recv, reduced(op, firsts[: RANK + 1]), (form, op, dtype, count))
            for form in self.both("exscan", firsts[RANK], recv, op):
                if RANK > 0:
                    self.equal(recv, reduced(op, firsts[:RANK]), (form, op, dtype, count))

    def test_what_only_moves(self):
        for dtype in INTEGERS + FLOATS + COMPLEX:
            for count in COUNTS:
                parts, all_blocks = inputs(dtype, count), blocks(dtype, count)
                root = (count + 1) % SIZE
                buffer = parts[root].copy() if RANK == root else np.zeros(count, dtype)
                for form in self.both("bcast", buffer, root):
                    self.equal(buffer, parts[root], (form, dtype, count))
                recv = np.zeros(count * SIZE, dtype)
                for form in self.both("allgather", parts[RANK], recv):
                    self.equal(recv, np.concatenate(parts), (form, dtype, count))
                recv = np.zeros(count * SIZE, dtype) if RANK == root else None
                for form in self.both("gather", parts[RANK], recv, root):
                    if RANK == root:
                        self.equal(recv, np.concatenate(parts), (form, dtype, count))
                recv = np.zeros(count, dtype)
                for form in self.both("scatter", all_blocks[root] if RANK == root else None, recv, root):
                    self.equal(recv, all_blocks[root][RANK * count : (RANK + 1) * count], (form, dtype, count))
                expected = np.concatenate([part[RANK * count : (RANK + 1) * count] for part in all_blocks])
                recv = np.zeros(count * SIZE, dtype)
                for form in self.both("alltoall", all_blocks[RANK], recv):
                    self.equal(recv, expected, (form, dtype, count))
                own = all_blocks[RANK].copy()
                COMM.alltoall(own)
                self.equal(own, expected, ("in place", dtype, count))

    def test_counts_of_each_rank(self):
        for unit in (0, 1, 333):
            counts = [unit * (rank + 1) for rank in range(SIZE)]
            parts = [np.full(counts[rank], rank + 1, np.float64) for rank in range(SIZE)]
            recv = np.zeros(sum(counts))
            for form in self.both("allgatherv", parts[RANK], recv, counts):
                self.equal(recv, np.concatenate(parts), (form, unit))
            # In the other order, with gaps.
            displs = [sum(counts[rank + 1 :]) + 2 * (SIZE - rank) for rank in range(SIZE)]
            recv = np.full(sum(counts) + 2 * SIZE + 2, -1.0)
            expected = recv.copy()
            for rank in range(SIZE):
                expected[displs[rank] : displs[rank] + counts[rank]] = rank + 1
            for form in self.both("allgatherv", parts[RANK], recv, counts, displs):
                self.equal(recv, expected, (form, unit))
            root = SIZE - 1
            recv = np.full(len(expected), -1.0) if RANK == root else None
            for form in self.both("gatherv", parts[RANK], recv, counts, displs, root):
                if RANK == root:
                    self.equal(recv, expected, (form, unit))
            recv = np.zeros(counts[RANK])
            for form in self.both("scatterv", expected if RANK == root else None, counts, recv, displs, root):
                self.equal(recv, parts[RANK], (form, unit))
            # Rank r sends unit * (r + s + 1) elements of value 100 r + s to rank s.
            sends = [unit * (RANK + other + 1) for other in range(SIZE)]
            send = np.concatenate([np.full(sends[other], 100 * RANK + other, np.int32) for other in range(SIZE)])
            expected = np.concatenate([np.full(sends[other], 100 * other + RANK, np.int32) for other in range(SIZE)])
            recv = np.zeros_like(expected)
            for form in self.both("alltoallv", send, sends, recv, sends):
                self.equal(recv, expected, (form, unit))

    def test_other_memory(self):
        numbers = array.array("d", [RANK, 1.0])
        COMM.allreduce(numbers)
        self.assertEqual(list(numbers), [SIZE * (SIZE - 1) / 2, SIZE])
        letters = bytearray(b"flx!" if RANK == 0 else b"????")
        COMM.bcast(letters)
        self.assertEqual(letters, b"flx!")
        shared = np.frombuffer(flx.Memory(1 << 20), np.float32)
        shared[:] = RANK
        COMM.allreduce(shared)
        self.assertTrue((shared == SIZE * (SIZE - 1) / 2).all())
        # Pairs, and floats of 16 bits that numpy has not.
        pair = np.array([(RANK % 2, RANK)], dtype=np.dtype([("value", np.float64), ("at", np.int32)], align=True))
        COMM.allreduce(pair, op=flx.MAXLOC, dtype=flx.F64_INT32)
        self.assertEqual((pair["value"][0], pair["at"][0]), (1, 1))
        bfloats = np.array([0x3F80], np.uint16)  # 1
        COMM.allreduce(bfloats, dtype=flx.BF16)
        self.assertEqual((bfloats.astype(np.uint32) << 16).view(np.float32)[0], SIZE)

    def test_truths_stay_truths(self):
        mine = np.array([True, RANK == 0, False])
        for op, expected in ((flx.SUM, [1, 1, 0]), (flx.PROD, [1, 0, 0]), (flx.MAX, [1, 1, 0]), (flx.MIN, [1, 0, 0])):
            recv = np.zeros(3, bool)
            for form in self.both("allreduce", mine, recv, op):
                self.assertEqual(recv.view(np.uint8).tolist(), expected, (form, op))
            for form in self.both("reduce", mine, recv if RANK == 0 else None, op):
                self.assertEqual(recv.view(np.uint8).tolist(), expected, (form, op))
            each = np.zeros(3, bool)
            for form in self.both("reduce_scatter", np.tile(mine, SIZE), each, [3] * SIZE, op):
                self.assertEqual(each.view(np.uint8).tolist(), expected, (form, op))
        recv = np.zeros(3, np.uint8)
        COMM.allreduce(mine, recv, dtype=flx.UINT8)
        self.assertEqual(recv.tolist(), [SIZE, 1, 0])
        self.fails("average", flx.Status.ARGUMENT, COMM.allreduce, mine, None, flx.AVG)
        self.fails("different types", flx.Status.ARGUMENT, COMM.allreduce, mine, recv)

    def test_groups(self):
        half = COMM.split(RANK % 2, -RANK)
        members = [rank for rank in reversed(range(SIZE)) if rank % 2 == RANK % 2]
        self.assertEqual((half.size, members[half.rank]), (len(members), RANK))
        with half.dup() as again:
            recv = np.zeros(len(members), np.int64)
            again.allgather(np.array([RANK]), recv)
            self.assertEqual(list(recv), members)
        self.assertIsNone(COMM.split(-1) if RANK == 0 else COMM.split(0) and None)
        half.free()

    def test_coroutines(self):
        async def one(comm, salt):
            parts = inputs(np.int64, 1000, salt)
            recv = np.zeros(1000, np.int64)
            await comm.iallreduce(parts[RANK], recv)
            self.equal(recv, reduced(flx.SUM, parts), salt)
            return salt

        async def all_of_them():
            return await asyncio.gather(*(one(COMM, salt) for salt in range(20)))

        self.assertEqual(asyncio.run(all_of_them()), list(range(20)))

    def test_the_lock_of_python_is_free_while_a_call_waits(self):
        """Rank 0 comes late; a thread of the others counts meanwhile."""
        MPI.COMM_WORLD.Barrier()
        turns = 0
        over = threading.Event()

        def count():
            nonlocal turns
            while not over.wait(0.01):
                turns += 1

        counter = threading.Thread(target=count)
        if RANK == 0:
            over.wait(0.5)
        counter.start()
        COMM.barrier()
        over.set()
        counter.join()
        if RANK != 0:
            self.assertGreater(turns, 5)

    def test_memory_lives_as_long_as_its_operation(self):
        requests = []
        for salt in range(10):
            requests.append(COMM.iallreduce(np.full(50_000, RANK + salt, np.int64), np.zeros(50_000, np.int64)))
        for request in requests:
            request.wait()
        del requests
        COMM.iallreduce(np.zeros(1000), np.zeros(1000))  # nobody waits for it
        COMM.barrier()
        send, recv = bytearray(100_000), bytearray(100_000)
        COMM.iallreduce(send, recv)
        COMM.barrier()
        COMM.barrier()
        send.append(1)  # the communicator has let go of it

    def late(self, seconds):
        """Rank 0 sleeps so long while the others go on."""
        MPI.COMM_WORLD.Barrier()
        if RANK == 0:
            time.sleep(seconds)

    def test_a_coroutine_that_is_cancelled_does_not_wait(self):
        send, recv = np.full(50_000, RANK), np.zeros(50_000, np.int64)

        async def one():
            await COMM.iallreduce(send, recv)

        async def in_time():
            await asyncio.wait_for(one(), 0.2)

        self.late(1.5)
        if RANK == 0:
            asyncio.run(one())
        else:
            began = time.monotonic()
            with self.assertRaises(asyncio.TimeoutError):
                asyncio.run(in_time())
            self.assertLess(time.monotonic() - began, 1.2)
        COMM.barrier()
        MPI.COMM_WORLD.Barrier()
        again = np.zeros(1, np.int64)
        COMM.allreduce(np.ones(1, np.int64), again)
        self.assertEqual((again[0], recv[0], recv[-1]), (SIZE,) + (SIZE * (SIZE - 1) // 2,) * 2)

    def test_to_ask_does_not_wait_for_another_thread(self):
        request = COMM.iallreduce(np.ones(10), np.ones(10))
        self.late(1.5)
        other = threading.Thread(target=COMM.barrier)
        other.start()
        time.sleep(0.3)
        began = time.monotonic()
        request.test()
        if RANK != 0:
            self.assertLess(time.monotonic() - began, 0.7)
        other.join()
        request.wait()

    def fails(self, pattern, status, call, *args, **options):
        with self.assertRaises(flx.Error) as raised:
            call(*args, **options)
        self.assertRegex(str(raised.exception), pattern)
        self.assertEqual(raised.exception.status, status)
        return raised.exception

    def test_errors(self):
        argument = flx.Status.ARGUMENT
        ones = np.ones(SIZE)
        self.fails("different types", argument, COMM.allreduce, ones, np.ones(SIZE, np.float32))
        self.fails("has to have", argument, COMM.allreduce, ones, np.ones(SIZE + 1))
        self.fails("no 2 blocks|blocks of one length", argument, COMM.allgather, ones[:1], np.ones(SIZE + 1))
        self.fails("neither the buffer protocol", argument, COMM.allreduce, [1, 2, 3])
        self.fails("of type U|of type 3w|elements of type", argument, COMM.bcast, np.array(["abc"]))
        self.fails("recvcounts has 1", argument, COMM.allgatherv, ones, ones, [1])
        each = [1] * SIZE
        for short in ([], each[1:], each + [1]):
            named = f"displs has {len(short)} numbers"
            self.fails(named, argument, COMM.allgatherv, ones[:1], ones, each, short)
            self.fails(named, argument, COMM.gatherv, ones[:1], ones, each, short, RANK)
            self.fails(named, argument, COMM.scatterv, ones, each, ones[:1], short, RANK)
            self.fails("s" + named, argument, COMM.alltoallv, ones, each, ones, each, short)
            self.fails("r" + named, argument, COMM.alltoallv, ones, each, ones, each, None, short)
        for wrong in (-1, 1.5, 2**70, "1"):
            self.fails("recvcounts has .*0 or more", argument, COMM.allgatherv, ones[:1], ones, [wrong] * SIZE)
        self.fails("of type NoneType", argument, COMM.gatherv, ones[:1], ones, None, None, RANK)
        self.fails("has to have", argument, COMM.allgatherv, None, ones, [2**63] * SIZE, [2**63] * SIZE)
        refused = bytearray(5)
        self.assertEqual(self.fails("no whole elements", argument, COMM.bcast, refused, dtype=flx.F32).code, "")
        refused.append(1)  # nobody holds it
        error = self.fails(r"FLX-E107", argument, COMM.bcast, ones, SIZE)
        self.assertEqual(error.code, "FLX-E107")
        self.assertTrue(re.search("root", str(error)))
        self.fails("FLX-E106", argument, COMM.allreduce, np.ones(3), None, flx.BAND)
        with self.assertRaises((BufferError, ValueError)):
            COMM.allreduce(np.ones((4, 4))[:, 1])
        with self.assertRaises((BufferError, ValueError)):
            COMM.bcast(b"written" if RANK else np.zeros(7, np.uint8)[::2])
        with self.assertRaises(TypeError):
            flx.Communicator.from_mpi(MPI.COMM_WORLD, colour="red")
        self.fails("FLX_LINKS|ghost", flx.Status.CONFIG, flx.Communicator.from_mpi, MPI.COMM_WORLD, links="ghost")
        COMM.barrier()

    def test_last_an_exception_is_told(self):
        comm = COMM.dup()
        if RANK == 0:
            with self.assertRaisesRegex(KeyError, "lost"), comm:
                raise KeyError("lost")
        else:
            with comm:
                self.fails("KeyError: 'lost'", flx.Status.PEER, comm.allreduce, np.ones(1))

    def test_last_an_abort_is_told(self):
        comm = COMM.dup()
        if RANK == 0:
            comm.abort("the test wishes so")
        else:
            error = self.fails("the test wishes so", flx.Status.PEER, comm.allreduce, np.ones(1))
            self.assertEqual(error.code, "FLX-E603")


if __name__ == "__main__":
    unittest.main(verbosity=0)
