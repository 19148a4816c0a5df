#!/usr/bin/env python3
"""ci/calibrate-figures: what it writes of a small bed, ci/calibrate reads: calibrate_figures_test.py SOURCE BIN"""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
SOURCE, BIN = pathlib.Path(sys.argv[1]), sys.argv[2]
SCRIPT = SOURCE / "ci/calibrate-figures"


def module(name):
    loader = importlib.machinery.SourceFileLoader(name, str(SOURCE / "ci" / name))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(made)
    return made


def run(*arguments):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=250, check=False)


def check_refusals(folder):
    file = f"{folder}/none.json"
    for bed in "2x1", "1x2:100", "2x1:", "0x2:100":
        done = run(file, "--bin", BIN, "--beds", bed)
        assert done.returncode == 1 and f"bed '{bed}' is not HOSTSxRANKS:RATE,RATE, or 1xRANKS" in done.stderr, done
    done = run(file, "--bin", folder)
    assert done.returncode == 1 and "there is no program" in done.stderr and "--bin" in done.stderr, done


def check_measures(folder):
    file = pathlib.Path(folder) / "measured.json"
    done = run(file, "--bin", BIN, "--beds", "2x1:800,400", "--collectives", "allgather,barrier", "--sizes", "64,1M",
               "--passes", "1", "--seconds", "0.05")
    if done.returncode == 77:
        print(done.stderr)
        sys.exit(77)
    assert done.returncode == 0, done
    kept = json.loads(file.read_text(encoding="utf-8"))["beds"]["2x1:800,400"]
    assert kept["failures"] == [], kept
    assert (kept["machine"]["hosts"], kept["machine"]["ranks"]) == (2, 1), kept
    figures = module("calibrate").measured(file)
    assert sorted(cell[1:] for cell in figures) == [("allgather", 64), ("allgather", 1 << 20), ("barrier", 8)], figures
    for cell, figure in figures.items():
        assert 0 < figure.low <= figure.us <= figure.high, (cell, vars(figure))
    # Half of the vector leaves each host; with full buckets a third of it may pass at once.
    assert figures["2x1:800,400", "allgather", 1 << 20].us > 0.5 * (1 << 19) / 150, vars(figures[max(figures)])


with tempfile.TemporaryDirectory() as made:
    check_refusals(made)
    check_measures(made)
