"""What an allreduce of 8 bytes takes from Python, beside a call of the module that does nothing.

    mpirun -n 2 python3 latency.py        prints microseconds of rank 0: the best of ten rounds
"""

import timeit

import numpy as np
from mpi4py import MPI

import flx
from flx import _flx

ROUNDS, CALLS = 10, 5000
comm = flx.Communicator.from_mpi(MPI.COMM_WORLD)
send, recv = np.ones(1), np.zeros(1)


def best(call):
    comm.barrier()
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


ours = best(lambda: comm.allreduce(send, recv))
mpi = best(lambda: MPI.COMM_WORLD.Allreduce(send, recv))
nothing = best(_flx.nothing)
alone = comm.split(comm.rank)
alone_us = best(lambda: alone.allreduce(send, recv))
if comm.rank == 0:
    print(f"nothing {nothing:.2f} us, allreduce of one rank {alone_us:.2f} us, of {comm.size} ranks {ours:.2f} us, "
          f"mpi4py's {mpi:.2f} us")
