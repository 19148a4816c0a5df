"""Tensors of PyTorch by DLPack, also those whose types numpy does not have.

    mpirun -n N python3 tensors_test.py
"""

import sys
import unittest

try:
    import torch
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)
from mpi4py import MPI

import flx

COMM = flx.Communicator.from_mpi(MPI.COMM_WORLD)
RANK, SIZE = COMM.rank, COMM.size


class Tensors(unittest.TestCase):
    def test_sums(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32, torch.uint8,
                      torch.complex64):
            for shape in ((), (3,), (5, 1, 40), (0,)):
                tensor = torch.full(shape, RANK + 1, dtype=dtype)
                COMM.allreduce(tensor)
                self.assertTrue(torch.equal(tensor, torch.full(shape, SIZE * (SIZE + 1) // 2, dtype=dtype)), dtype)

    def test_gathers_into_a_part_of_a_tensor(self):
        whole = torch.zeros(2, SIZE, 4)
        request = COMM.iallgather(torch.full((4,), float(RANK)), whole[1])
        request.wait()
        self.assertTrue((whole[0] == 0).all())
        self.assertEqual(whole[1, :, 2].tolist(), [float(rank) for rank in range(SIZE)])

    def test_what_is_not_dense_is_refused(self):
        for tensor in (torch.ones(4, 4)[:, 0], torch.ones(4, 4).t()):
            with self.assertRaisesRegex(flx.Error, "contiguous"):
                COMM.allreduce(tensor)
        with self.assertRaises((RuntimeError, BufferError)):
            COMM.allreduce(torch.ones(3, requires_grad=True))


if __name__ == "__main__":
    unittest.main(verbosity=0)
