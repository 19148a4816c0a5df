"""Processes without MPI: they meet in a store, and the package loads no MPI.

    python3 store_test.py        starts its ranks itself
"""

import os
import socket
import subprocess
import sys
import unittest

RANK_PROGRAM = """
import array, sys
import flx
with flx.Communicator.from_store(deadline_s=float(sys.argv[1])) as comm:
    sums = array.array("q", range(1000))
    comm.allreduce(sums)
    assert list(sums) == [comm.size * i for i in range(1000)], sums
assert "/libmpi.so" not in open("/proc/self/maps").read()
print("well")
"""


def ranks(size, present, deadline_s):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in present:
        environment = os.environ | {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(size)
        }
        started.append(subprocess.Popen([sys.executable, "-c", RANK_PROGRAM, str(deadline_s)], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return [process.communicate(timeout=100)[0] for process in started]


class Store(unittest.TestCase):
    def test_ranks_meet(self):
        self.assertEqual(ranks(3, range(3), 30), ["well\n"] * 3)

    def test_who_is_missing_is_named(self):
        for said in ranks(4, (0, 2), 1):
            self.assertRegex(said, r"flx.Error: ranks 1 and 3 did not come .*FLX-E605")


if __name__ == "__main__":
    unittest.main(verbosity=0)
