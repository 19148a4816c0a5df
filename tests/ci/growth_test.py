#!/usr/bin/env python3
"""ci/growth: that it fits what it counts, and that what it counts is so: growth_test.py SOURCE BUILD"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(sys.argv[1]) / "ci/growth"
BUILD = sys.argv[2]


def module():
    loader = importlib.machinery.SourceFileLoader("growth", str(SCRIPT))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader("growth", loader))
    loader.exec_module(made)
    return made


def check_fits():
    growth = module()
    runs = [{"hosts": hosts, "ranks": hosts * ranks} for hosts in (2, 4, 8) for ranks in (1, 3)]
    for run in runs:
        run["x"] = 7 + 3 * (run["ranks"] - run["ranks"] / run["hosts"])
    factors, off = growth.fit(runs, lambda run: run["x"], ["1", "N-n"])
    assert abs(factors[0] - 7) < 1e-9 and abs(factors[1] - 3) < 1e-9 and off < 1e-9, (factors, off)
    runs[0]["x"] *= 2
    assert growth.fit(runs, lambda run: run["x"], ["1", "N-n"])[1] > 0.1
    try:
        growth.fit(runs[:1], lambda run: run["x"], ["1", "N"])
        raise AssertionError("one run tells nothing of growth")
    except ValueError:
        pass


def check_shared_memory():
    growth = module()
    # As ChannelShape::fit and ring_bytes_for() give them: 7 channels of 256 KiB, 31 of 64, a ring of 1 MiB, of 256 KiB.
    assert growth.channels({"hosts": 2, "ranks": 2}) == 0
    assert growth.channels({"hosts": 2, "ranks": 4}) == 2 * 512
    assert growth.channels({"hosts": 1, "ranks": 8}) == 8 * 7 * 256
    assert growth.channels({"hosts": 1, "ranks": 32}) == 32 * 31 * 64
    assert growth.rings({"hosts": 1, "ranks": 8}) == 8 * 1024
    assert growth.rings({"hosts": 1, "ranks": 2}) == 2 * 2048


def check_mounts():
    """A /dev/shm of its own where it may be mounted, and that of all where it may not."""
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        unshare = pathlib.Path(folder) / "unshare"
        for code in 0, 1:
            unshare.write_text(f"#!/bin/sh\nexit {code}\n")
            unshare.chmod(0o755)
            os.environ["PATH"] = f"{folder}:{path}"
            command = module().own_shm()
            os.environ["PATH"] = path
            assert command[:2] == (["unshare", "--mount"] if code == 0 else []), command


def run(*arguments):
    command = [SCRIPT, "--build", BUILD, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def check_runs():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "found.json"
        done = run("--runs", "1x2,2x1,2x2,4x1", "--json", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(file.read_text())
    print(done.stdout)
    assert [(one["hosts"], one["ranks"]) for one in found["runs"]] == [(1, 2), (2, 2), (2, 4), (4, 4)]
    for one in found["runs"]:
        # Each rank gets of every rank what it says, in some dozen exchanges, and holds rails to those elsewhere.
        assert 10 < one["exchanges"] < 200, one
        assert one["exchanged_bytes"] >= 100 * one["ranks"], one
        assert one["descriptors"] > 4 and one["heap_kib"] > 100, one
    by_layout = {(one["hosts"], one["ranks"]): one for one in found["runs"]}
    assert by_layout[(4, 4)]["descriptors"] > by_layout[(2, 2)]["descriptors"], found["runs"]
    assert by_layout[(2, 4)]["exchanged_bytes"] > 1.5 * by_layout[(2, 2)]["exchanged_bytes"], found["runs"]
    learning = {one["ranks"]: one for one in found["controllers"]}
    assert learning[16384]["us"] > learning[1024]["us"] > learning[16]["us"] > 0, learning
    assert learning[16384]["us_all"] > learning[16384]["us"], learning
    assert any(one["then"] for one in found["fits"]), found["fits"]


def check_refusals():
    for text in "4", "1x1", "0x2", "axb":
        done = run("--runs", text)
        assert done.returncode == 2 and f'"{text}" is no HOSTSxRANKS' in done.stderr, done
    done = subprocess.run([SCRIPT, "--build", "/nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "growth_ranks is not there; run: ninja" in done.stderr, done


check_fits()
check_shared_memory()
check_mounts()
check_refusals()
check_runs()
