#!/usr/bin/env python3
"""What a trace says of programs: of one that ends, of one under flx-run, and of one that was killed:
traced_test.py LAUNCHER HANG FLX_TOP FLX_TRACE FLX_PERF FLX_RUN"""

import os
import signal
import subprocess
import sys
import tempfile
import time

from hanging import LAUNCHER, RANKS, Hang, until
from trace_events import calls_of, read

TRACE, PERF, RUN = sys.argv[4:7]


def one_that_ends(folder, *front):
    file = os.path.join(folder, "whole.json")
    command = [PERF, "allreduce", "--sizes", "8,64K", "--max-seconds", "0.05"]
    environment = os.environ if front else {**os.environ, "FLX_TRACE": file}
    run = subprocess.run(
        [LAUNCHER, "-n", "2", *(option.format(file) for option in front), *command], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=200, check=False, env=environment,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert not os.path.exists(file + ".parts")
    trace = read(file)
    assert trace["otherData"]["ranks"] == 2 and trace["otherData"]["lost_calls"] == 0, trace["otherData"]
    assert not trace["otherData"]["notes"], trace["otherData"]
    first, second = calls_of(trace, 0), calls_of(trace, 1)
    assert len(first) == len(second) > 20
    assert [call["args"]["number"] for call in first] == list(range(1, len(first) + 1))
    for one, other in zip(first, second):
        assert one["name"] == other["name"] and one["args"].get("bytes") == other["args"].get("bytes"), (one, other)
        # Nobody leaves an allreduce before all are in it.
        if one["name"] == "allreduce":
            assert one["ts"] <= other["ts"] + other["dur"] + 1 and other["ts"] <= one["ts"] + one["dur"] + 1, (one, other)
    os.unlink(file)
    print(f"{len(first)} calls a rank")


def one_with_a_page(folder):
    page = os.path.join(folder, "page.html")
    run = subprocess.run(
        [LAUNCHER, "-n", "2", RUN, "--report", page, PERF, "allreduce", "--sizes", "8,64K", "--max-seconds", "0.05"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False,
    )
    assert run.returncode == 0 and "64 KiB" in run.stdout, run.stdout + run.stderr
    with open(page, encoding="utf-8") as text:
        html = text.read()
    assert html.startswith("<!doctype html>") and "allreduce" in html and "flx_perf" in html, html[:500]
    assert read(page[:-5] + ".json")["otherData"]["ranks"] == 2
    run = subprocess.run([RUN, "--report", page, "--", "true"], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1 and len(run.stderr.splitlines()) == 1 and "no parts of a trace" in run.stderr, run
    assert not os.path.exists(page), "that was of another run"


def one_that_is_killed(folder):
    file = os.path.join(folder, "killed.json")
    with Hang("sleep", FLX_TRACE=file, FLX_LATE_WARNING="600") as hang:
        time.sleep(0.3)
        os.kill(hang.pid_of(2), signal.SIGKILL)
        until(lambda: hang.run.poll() is not None, "the launcher ends the others")
        assert not os.path.exists(file)
        run = subprocess.run([TRACE, file], capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0 and f"of {RANKS} ranks" in run.stdout, run
        assert "did not end as programs do" in run.stdout, run
    trace = read(file)
    for rank in range(RANKS):
        calls = calls_of(trace, rank)
        assert len(calls) == (100 if rank == 1 else 101), (rank, len(calls))
        # Who waited may have noticed that rank 2 died before it was ended itself.
        if rank == 2:
            assert calls[-1]["args"]["unfinished"], calls[-1]


def refuse(folder):
    run = subprocess.run([TRACE, os.path.join(folder, "none")], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1 and "no parts of a trace" in run.stderr, run
    run = subprocess.run([TRACE], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode != 0 and run.stderr == "flx_trace: FILE is required\nflx_trace --help lists the options.\n", run
    # A trace that cannot be made is a warning, and the program runs.
    run = subprocess.run(
        [LAUNCHER, "-n", "2", PERF, "barrier", "--max-seconds", "0.05"], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=200, check=False, env={**os.environ, "FLX_TRACE": "/nowhere/at/all.json"},
    )
    assert run.returncode == 0 and "there is no trace: the folder /nowhere/at/all.json.parts cannot be made" in run.stderr, run


with tempfile.TemporaryDirectory() as scratch:
    one_that_ends(scratch)
    one_that_ends(scratch, RUN, "--trace", "{}")
    one_with_a_page(scratch)
    one_that_is_killed(scratch)
    refuse(scratch)
