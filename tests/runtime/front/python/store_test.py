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


FORKS = """
import array, os, sys
import flx
comm = flx.Communicator.from_store()
sums = array.array("q", range(1000))
comm.allreduce(sums)
request = comm.iallreduce(array.array("q", [1]), array.array("q", [0]))
child = os.fork()
if child == 0:
    try:
        comm.barrier()
    except flx.Error as error:
        assert "forked child" in str(error), error
    sys.exit(7)  # as any program ends
request.wait()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
for _ in range(100):
    comm.allreduce(sums)
comm.free()
print("well")
"""

DAEMON = """
import os, threading, time
import flx
comm = flx.Communicator.from_store()
class Slow:
    def __del__(self):
        time.sleep(2)  # the interpreter takes its time to end
slow = Slow()
if comm.rank == 0:
    threading.Thread(target=comm.barrier, daemon=True).start()
    time.sleep(0.3)
else:
    time.sleep(1)
    comm.barrier()
    os.write(1, b"well\\n")
    os._exit(0)  # without the other, which cannot free its communicator any more
print("well", flush=True)
"""


def ranks(size, present, deadline_s, program=RANK_PROGRAM):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in present:
        environment = os.environ | {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(size)
        }
        started.append(subprocess.Popen([sys.executable, "-c", program, str(deadline_s)], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate(timeout=100)[0] for process in started]
    return [text if process.returncode in (0, 1) else f"{process.returncode}: {text}"
            for text, process in zip(said, started)]


class Store(unittest.TestCase):
    def test_ranks_meet(self):
        self.assertEqual(ranks(3, range(3), 30), ["well\n"] * 3)

    def test_a_forked_child_ends_without_its_parents_communicators(self):
        self.assertEqual(ranks(2, range(2), 30, FORKS), ["well\n"] * 2)

    def test_a_daemon_thread_in_a_call_does_not_break_the_end(self):
        self.assertEqual(ranks(2, range(2), 30, DAEMON), ["well\n"] * 2)

    def test_who_is_missing_is_named(self):
        for said in ranks(4, (0, 2), 1):
            self.assertRegex(said, r"flx.Error: ranks 1 and 3 did not come .*FLX-E605")


if __name__ == "__main__":
    unittest.main(verbosity=0)
