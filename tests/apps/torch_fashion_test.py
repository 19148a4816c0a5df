#!/usr/bin/env python3
"""apps/torch/fashion.py, and the programs that start it: data that is damaged, what they make of runs that went wrong,
and one real fault of each kind, or more, or none. torch_fashion_test.py [TIMES]"""

import contextlib
import gzip
import io
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import types
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parents[2] / "apps/torch"
sys.path.insert(0, str(HERE))
import fashion  # noqa: E402
import fashion_compare  # noqa: E402
import fashion_faults  # noqa: E402

TIMES = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1].isdigit() else "1"


def idx(*shape, fill=b"\1", more=0):
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + fill * (math.prod(shape) + more)


class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refused(self, raw, name="file"):
        (self.folder / name).write_bytes(raw)
        with self.assertRaises(fashion.Wrong) as thrown:
            fashion.read_idx(self.folder, "file", (2, 3))
        return str(thrown.exception)

    def test_good(self):
        (self.folder / "file").write_bytes(idx(2, 3))
        self.assertEqual(fashion.read_idx(self.folder, "file", (2, 3)).tolist(), [[1] * 3] * 2)
        (self.folder / "file").unlink()
        (self.folder / "file.gz").write_bytes(gzip.compress(idx(2, 3)))
        self.assertEqual(fashion.read_idx(self.folder, "file", (2, 3)).tolist(), [[1] * 3] * 2)

    def test_damaged(self):
        self.assertIn("it has 7 bytes and says 6", self.refused(idx(2, 3, more=1)))
        self.assertIn("it has 0 bytes", self.refused(idx(2, 3)[:12]))
        self.assertIn("does not say that it has 2 x 3", self.refused(idx(3, 2)))
        self.assertIn("does not say that it has 2 x 3", self.refused(idx(2, 3)[:9]))
        self.assertIn("no IDX file", self.refused(idx(6)))
        self.assertIn("no IDX file", self.refused(b""))
        (self.folder / "file").unlink()
        self.assertIn("damaged", self.refused(gzip.compress(idx(2, 3))[:-5], "file.gz"))
        self.assertIn("damaged", self.refused(b"no gzip", "file.gz"))
        packed = gzip.compress(bytes(range(256)) * 40)
        self.assertIn("damaged", self.refused(packed[:12] + b"\xff" * 20 + packed[32:], "file.gz"))

    def test_missing(self):
        with self.assertRaises(fashion.Wrong) as thrown:
            fashion.read(self.folder)
        self.assertIn("has no train-images-idx3-ubyte", str(thrown.exception))

    def test_made_up(self):
        (train, test), source = fashion.load("none", 1)
        self.assertEqual((train[0].shape, test[0].shape, source), ((60000, 784), (10000, 784), fashion.MADE_UP))
        again = fashion.load("none", 1)[0][0]
        self.assertTrue(torch.equal(train[0], again[0]) and torch.equal(train[1], again[1]))

    def test_program(self):
        """One rank, which says what is wrong and shows no traceback."""
        def run(*words, **environment):
            kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
            done = subprocess.run([sys.executable, HERE / "fashion.py", *words], env=kept | environment,
                                  capture_output=True, text=True, timeout=100)
            self.assertNotIn("Traceback", done.stderr)
            return done.returncode, done.stderr

        one = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
        code, said = run("--backend", "gloo", "--data", str(self.folder), **one)
        self.assertEqual(code, 1)
        self.assertIn("has no train-images-idx3-ubyte", said)
        self.assertIn("RANK, WORLD_SIZE not set", run()[1])
        self.assertIn("'0' is not a number from 1 on", run("--steps", "0")[1])


def found(losses=(2.0, 1.0), hashes=(5, 5), alone=10.0, visible=5.0, ms=50.0):
    return {"losses": [float(loss).hex() for loss in losses], "hashes": list(hashes), "accuracy": 0.75, "step_ms": ms,
            "communication": {"with": 30 + visible, "without": 30.0, "visible": visible, "alone": alone,
                              "hidden": 1 - visible / alone}}


class Compare(unittest.TestCase):
    def judge(self, **runs):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            return fashion_compare.judge("1x4", runs), said.getvalue()

    def test_table(self):
        lines = fashion_compare.table({"1x4": {"flx": [found(alone=2), found(alone=4)], "gloo": [found(), None]},
                                       "2x2": {"flx": [None], "gloo": [None]}}).splitlines()
        self.assertEqual(lines[2], "| 1x4 | flx | 50.0 ± 0.0 | 35.00 ± 0.00 | 30.00 ± 0.00 | 5.00 ± 0.00 | 3.00 ± 1.00 "
                         "| -88% | 1.00 | 0.30 |")
        self.assertEqual({line.count("|") for line in lines}, {11})

    def test_equal(self):
        right, said = self.judge(flx=[found(), found()], gloo=[found(), found((2.0, 1.0001))])
        self.assertTrue(right, said)
        self.assertIn("flx: 2 runs are equal", said)
        self.assertIn("gloo: 2 runs are not equal", said)

    def test_not_as_it_should_be(self):
        self.assertFalse(self.judge(flx=[found(), found((2.0, math.nextafter(1, 2)))], gloo=[found()])[0])
        self.assertFalse(self.judge(flx=[found(), found(hashes=(5, 6))], gloo=[found()])[0])
        self.assertFalse(self.judge(flx=[found()], gloo=[found((2.0, 1.1))])[0])
        self.assertFalse(self.judge(flx=[found(), None], gloo=[found()])[0])


class Judged(unittest.TestCase):
    """Runs that went wrong are seen to."""

    def trial(self, codes, lines, losses=None):
        options = types.SimpleNamespace(ranks=3, steps=12, seconds=0.01, together=1)
        trial = fashion_faults.Trial(options, "/nonexistent", None)
        trial.undisturbed = "right"
        trial.middle = lambda ranks, part=0: None
        ranks = types.SimpleNamespace(lines=lines, end=lambda *limit: codes, signal=lambda rank, signum: None,
                                      text=lambda: "\n".join(sum(lines, [])))
        self.addCleanup(setattr, fashion_faults, "losses_of", fashion_faults.losses_of)
        fashion_faults.losses_of = lambda path: losses
        return trial, ranks

    def killed(self, codes, said):
        fashion_faults.random.seed(7)
        victim = fashion_faults.random.randrange(3)
        fashion_faults.random.seed(7)
        lines = [[said.format(victim=victim, other=(victim + 1) % 3, now=fashion_faults.time.monotonic() + 0.5,
                              late=fashion_faults.time.monotonic() + 1.5)] for _ in range(3)]
        codes = [-9 if rank == victim else code for rank, code in enumerate(codes)]
        trial, ranks = self.trial(codes, lines)
        return trial.kill(ranks)

    def test_kill(self):
        good = "lost at {now}: rank {victim} (pid 7 on h) died during allreduce"
        self.assertAlmostEqual(self.killed([3, 3, 3], good)[0][0], 0.5, delta=0.1)
        for codes, said, why in (
            ([3, 3, 3], "lost at {now}: rank {other} (pid 7 on h) died during allreduce", "does not name"),
            ([3, 3, 3], "lost at {now}: rank {victim} (pid 7 on h) has not answered", "does not name"),
            ([3, 3, 3], "lost at {late}: rank {victim} (pid 7 on h) died", "named after"),
            ([0, 0, 0], good, "got no exception"), ([None, None, None], "", "got no exception"),
        ):
            with self.assertRaises(fashion_faults.Unlike) as thrown:
                self.killed(codes, said)
            self.assertIn(why, str(thrown.exception))

    def test_goes_on(self):
        trial, ranks = self.trial([0, 0, 0], [["flx warning rank 0: late"], [], []], "right")
        self.assertEqual(trial.goes_on(ranks), 1)
        for codes, line, losses in (([0, 3, 0], "", "right"), ([0, 0, 0], "flx error rank 1: no", "right"),
                                    ([0, 0, 0], "", "other")):
            trial, ranks = self.trial(codes, [[line], [], []], losses)
            with self.assertRaises(fashion_faults.Unlike):
                trial.goes_on(ranks)


@unittest.skipIf(TIMES == "0", "no real faults are wanted")
class Real(unittest.TestCase):
    def test_faults(self):
        # What this takes is mostly the start of the ranks.
        done = subprocess.run([sys.executable, HERE / "fashion_faults.py", "--times", TIMES, "--seconds", "1",
                               "--together", "1" if TIMES == "1" else "5"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        self.assertIn(done.returncode, (0, 77))
        for kind in ("kill", "stop") + (("cut",) if done.returncode == 0 else ()):
            self.assertIn(f"{TIMES} of {TIMES} as asked", [line for line in done.stdout.splitlines()
                                                           if line.startswith(f"{kind}, ")][-1])
        if done.returncode == 77:
            self.skipTest("no emulated hosts")


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    if outcome.wasSuccessful() and outcome.skipped and TIMES != "0":
        sys.exit(77)  # the reason is above, after `skipped: `
    sys.exit(not outcome.wasSuccessful())
