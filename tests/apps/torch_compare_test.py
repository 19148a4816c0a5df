#!/usr/bin/env python3
"""What apps/torch/compare.py makes of results: its table, its verdicts, and its exit code after runs that a program in
flx-run's and torchrun's place made up. No GPU and no PyTorch."""
import contextlib
import importlib.util
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
PATH = pathlib.Path(__file__).resolve().parents[2] / "apps/torch/compare.py"
spec = importlib.util.spec_from_file_location("compare", PATH)
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)


def result(losses=(10.5, 10.25), hashes=(7, 7), ms=100.0, flx=False, **more):
    return {"losses": [float(loss).hex() for loss in losses], "hashes": list(hashes), "flx": flx, "ranks_agree": True,
            "step_ms": {"median": ms}, "tokens_per_second": 1e6 / ms, "profile": {"communication": 0.25}, **more}


def run(library, turn=1, why=None, **more):
    return {"library": library, "turn": turn, "why": why,
            "result": None if why else result(flx=library == "flx", **more)}


GOOD = [run("nccl", 1, ms=100), run("flx", 1, ms=80), run("nccl", 2, ms=110), run("flx", 2, ms=84),
        run("ring"), run("tree")]


class Judge(unittest.TestCase):
    def problems(self, *runs):
        return compare.judge("ddp", list(runs))["problems"]

    def test_good_runs(self):
        verdict = compare.judge("ddp", GOOD)
        self.assertEqual(verdict["problems"], [])
        self.assertEqual(verdict["notes"], [])
        self.assertAlmostEqual(verdict["gain"], 105 / 82 - 1)
        self.assertTrue(verdict["repeatable"])
        self.assertEqual(verdict["difference"], 0)
        self.assertEqual(verdict["allowed"], compare.ALWAYS)

    def test_table(self):
        failed = compare.judge("moe", [run("nccl"), run("flx", why="exit code 1: no")])
        lines = compare.table([compare.judge("ddp", GOOD), failed], 2).splitlines()
        self.assertEqual(lines[2], "| ddp | 2 | 105.000 ± 4.8% | 82.000 ± 2.4% | +28.0% | 9,545 | 12,202 "
                         "| 25.0% | 25.0% |")
        self.assertEqual(lines[3], "| moe | 2 | 100.000 ± 0.0% | - | - | 10,000 | - | 25.0% | - |")
        self.assertEqual({line.count("|") for line in lines}, {10})

    def test_without_profile(self):
        verdict = compare.judge("ddp", [run("nccl", profile=None), run("flx", profile=None)])
        self.assertIsNone(verdict["flx"]["communication"])
        self.assertIn("| - | - |", compare.table([verdict], 2))

    def test_not_repeatable(self):
        one_bit = math.nextafter(10.25, 11)
        found = self.problems(run("nccl"), run("flx"), run("nccl", 2), run("flx", 2, losses=(10.5, one_bit)))
        self.assertEqual(len(found), 1)
        self.assertIn("FLX's runs differ from each other", found[0])
        self.assertTrue(self.problems(run("nccl"), run("flx"), run("flx", 2, hashes=(7, 8))))
        # NCCL's need not be.
        self.assertEqual(self.problems(run("nccl"), run("flx"), run("nccl", 2, hashes=(7, 8)), run("flx", 2)), [])

    def test_one_run_says_nothing_of_repeats(self):
        verdict = compare.judge("ddp", [run("nccl"), run("flx")])
        self.assertIsNone(verdict["repeatable"])
        self.assertEqual(verdict["problems"], [])
        self.assertIn("not known", compare.sentences(verdict)[0])

    def test_difference(self):
        far = (10.5, 10.25 * 1.004)
        self.assertIn("is allowed", self.problems(run("nccl"), run("flx", losses=far))[0])
        # 4e-3 is allowed where ring and tree differ by 3e-3, and not where they differ by 1e-3.
        self.assertEqual(self.problems(run("nccl"), run("flx", losses=far), run("ring"),
                                       run("tree", losses=(10.5, 10.25 * 1.003))), [])
        self.assertTrue(self.problems(run("nccl"), run("flx", losses=far), run("ring"),
                                      run("tree", losses=(10.5, 10.25 * 1.001))))
        self.assertEqual(self.problems(run("nccl"), run("flx", losses=(10.5, 10.25 * 1.0009))), [])

    def test_losses_that_are_no_numbers(self):
        self.assertTrue(self.problems(run("nccl"), run("flx", losses=(10.5, math.nan))))
        self.assertTrue(self.problems(run("nccl", losses=(1, math.nan)), run("flx", losses=(1, math.nan))))
        self.assertTrue(self.problems(run("nccl"), run("flx", losses=(10.5,))))
        # Nothing more is allowed because ring and tree got nowhere.
        self.assertTrue(self.problems(run("nccl"), run("flx", losses=(10.5, 11)), run("ring"),
                                      run("tree", losses=(10.5, math.inf))))

    def test_missing_runs(self):
        found = self.problems(*GOOD[:3], run("flx", 2, why="it took longer than 300 s"))
        self.assertEqual(found, ["ddp: flx, run 2: it took longer than 300 s"])
        refused = run("tree", why="exit code 1: no algorithm")
        verdict = compare.judge("ddp", [run("nccl"), run("flx"), run("ring"), refused])
        self.assertEqual(verdict["problems"], [])
        self.assertIn("no algorithm", verdict["notes"][0])

    def test_ranks_that_do_not_agree(self):
        self.assertIn("different results", self.problems(run("nccl"), run("flx", ranks_agree=False))[0])

    def test_flx_not_in_front(self):
        absent = {**run("flx"), "result": result(flx=False)}
        self.assertEqual(self.problems(run("nccl"), absent), ["ddp: flx, run 1: FLX was not in front of NCCL"])


class Words(unittest.TestCase):
    def test_turns(self):
        self.assertEqual(compare.turns("ddp", 2),
                         [("nccl", 1), ("flx", 1), ("nccl", 2), ("flx", 2), ("ring", 1), ("tree", 1)])
        self.assertEqual(compare.turns("tensor", 1), [("nccl", 1), ("flx", 1)])
        self.assertEqual(compare.turns("ddp", 1, False), [("nccl", 1), ("flx", 1)])

    def test_served(self):
        text = "step 1\nflx_nccl: calls of process 7, which has a rank 0\n  AllReduce  9\n  1 communicators\nend\n"
        self.assertEqual(compare.served(text), "flx_nccl: calls of process 7, which has a rank 0\n  AllReduce  9\n"
                         "  1 communicators")
        self.assertIsNone(compare.served("nothing"))

    def test_last_words(self):
        text = "RuntimeError: NCCL error: invalid usage\ntorch.distributed.elastic.multiprocessing.ChildFailedError:\n"
        self.assertEqual(compare.last_words(text), "RuntimeError: NCCL error: invalid usage")
        self.assertEqual(compare.last_words(""), "it said no more")

    def test_arguments(self):
        for words in (["--workloads", "ddp,no"], ["--gpus", "0"], ["--flx-run", "/nonexistent/flx-run"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                compare.arguments(words)
            self.assertEqual(ended.exception.code, 2)


# In torchrun's place: it writes the result that the test left, or does not end.
FAKE = """import json, os, pathlib, sys, time
words = sys.argv
flx = os.environ.get("FAKE_FLX") == "1"
assert os.environ["NCCL_NVLS_ENABLE"] == "0" and words[words.index("--nproc-per-node") + 1] == "3"
plan = json.loads(os.environ["FAKE_PLAN"])
if plan.get("hang") and flx:
    time.sleep(600)
name = {"Ring": "ring", "Ring;AllReduce:Tree": "tree"}.get(os.environ.get("NCCL_ALGO"), "flx" if flx else "nccl")
if name in plan["fail"]:
    sys.exit("RuntimeError: NCCL error in: made up for " + name)
if flx:
    print("flx_nccl: calls of process 1, which has a rank 0\\n  AllReduce 5", file=sys.stderr)
result = dict(plan["result"], flx=flx)
if flx:
    result["losses"] = plan["flx_losses"]
pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps(result))
"""


class Whole(unittest.TestCase):
    """compare.py as a user starts it."""

    def start(self, *words, fail=(), flx_losses=(10.5, 10.25), **plan):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "torch/distributed").mkdir(parents=True)
            (folder / "torch/distributed/run.py").write_text(FAKE)
            (folder / "flx-run").write_text("#!/bin/sh\n[ \"$1 $2\" = '--nccl --' ] || exit 9\nshift 2\n"
                                            "[ \"$FLX_STATS\" = 1 ] || exit 9\nFAKE_FLX=1 exec \"$@\"\n")
            (folder / "flx-run").chmod(0o755)
            plan = {"result": result(device="a GPU", torch="2", nccl="3"), "fail": list(fail),
                    "flx_losses": [float(loss).hex() for loss in flx_losses], **plan}
            done = subprocess.run(
                [sys.executable, PATH, "--gpus", "3", "--flx-run", folder / "flx-run", "--out", folder / "out", *words],
                env={**os.environ, "PYTHONPATH": str(folder), "FAKE_PLAN": json.dumps(plan)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
            summary = json.loads((folder / "out/torch-3.json").read_text())
            self.assertIn("--nproc-per-node 3", (folder / "out/ddp-3-nccl-1.txt").read_text())
            return done.returncode, done.stdout, summary

    def test_good(self):
        code, text, summary = self.start("--workloads", "ddp,tensor")
        self.assertEqual(code, 0, text)
        self.assertIn("| tensor | 3 | 100.000 ± 0.0% |", text)
        self.assertIn("AllReduce 5", text)
        self.assertIn("3 × a GPU, torch 2, NCCL 3", text)
        self.assertEqual([len(runs) for runs in summary["runs"].values()], [6, 4])

    def test_difference(self):
        code, text, _ = self.start("--workloads", "ddp", "--repeat", "1", flx_losses=(10.5, 10))
        self.assertEqual(code, 1, text)
        self.assertIn("FAIL ddp: FLX's losses differ from NCCL's by 2.44e-02; 1.00e-03 is allowed", text)

    def test_failures(self):
        code, text, _ = self.start("--workloads", "ddp", "--repeat", "1", fail=["flx", "tree"])
        self.assertEqual(code, 1, text)
        self.assertIn("FAIL ddp: flx, run 1: exit code 1: RuntimeError: NCCL error in: made up for flx", text)
        self.assertNotIn("FAIL ddp: tree", text)
        self.assertIn("no run with NCCL_ALGO=Ring;AllReduce:Tree", text)

    def test_timeout(self):
        code, text, _ = self.start("--workloads", "ddp", "--repeat", "1", "--timeout", "3", hang=True)
        self.assertEqual(code, 1, text)
        self.assertIn("FAIL ddp: flx, run 1: it took longer than 3 s (--timeout) and was ended", text)


if __name__ == "__main__":
    unittest.main()
