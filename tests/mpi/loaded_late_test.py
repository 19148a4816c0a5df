#!/usr/bin/env python3
"""The libraries can be loaded into programs that run already, in C and in Python:
loaded_late_test.py RANKS PROGRAM LIBFLX [OTHER LIBRARIES OF FLX]..."""
import ctypes
import os
import re
import subprocess
import sys

# What a thread's own block may have of a library that must find room in it: glibc keeps some 1.6 KiB for all that are
# loaded late. Others get memory when a thread first looks.
MOST_BYTES = 512


def read_elf(option, library):
    return subprocess.run(["readelf", option, library], check=True, capture_output=True, text=True).stdout


def block_bytes(library):
    """What `library` has of each thread, and whether it must be in the thread's own block."""
    row = re.search(r"^\s*TLS\s+(\S+\s+){4}(0x[0-9a-f]+)", read_elf("-lW", library), re.MULTILINE)
    return int(row.group(2), 16) if row else 0, "STATIC_TLS" in read_elf("-dW", library)


def rank_of_python(library):
    """One rank: MPI and FLX by ctypes alone."""
    mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
    rank, size = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    flx = ctypes.CDLL(library)
    flx.flx_last_error.restype = ctypes.c_char_p
    comm = ctypes.c_void_p()
    status = flx.flx_comm_create(world, None, ctypes.byref(comm))
    assert status == 0, flx.flx_last_error()
    count, double, add = 1000, 11, 0  # FLX_F64, FLX_SUM
    mine = (ctypes.c_double * count)(*(i + rank.value for i in range(count)))
    sums = (ctypes.c_double * count)()
    status = flx.flx_allreduce(mine, sums, ctypes.c_size_t(count), double, add, comm)
    assert status == 0, flx.flx_last_error()
    ranks = size.value
    assert all(sums[i] == i * ranks + ranks * (ranks - 1) / 2 for i in range(count)), "wrong sums"
    flx.flx_comm_free(ctypes.byref(comm))
    mpi.MPI_Finalize()


def main(ranks, program, *libraries):
    failures = 0
    for library in libraries:
        size, fixed = block_bytes(library)
        print(f"{os.path.basename(library)}: {size} B of each thread, {'in its own block' if fixed else 'anywhere'}")
        if fixed and size > MOST_BYTES:
            print(f"FAILED: at most {MOST_BYTES} B are allowed in the block, or dlopen has no room for the library")
            failures += 1
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    mpi = [ranks, "-n", "2"]
    runs = {"a program in C": [program, *libraries]}
    try:
        ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
        runs["a program in Python"] = [sys.executable, os.path.abspath(__file__), "--rank", libraries[0]]
    except OSError as error:
        print(f"not in Python: it does not load MPI: {error}")
    for name, command in runs.items():
        code = subprocess.run(mpi + command, env=environment, check=False, timeout=120).returncode
        print(f"{name}: {'ok' if code == 0 else f'FAILED with code {code}'}")
        failures += code != 0
    return failures != 0


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank_of_python(sys.argv[2])
    else:
        sys.exit(main(*sys.argv[1:]))
