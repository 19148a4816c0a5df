#!/usr/bin/env python3
"""What is seen of calls that MPI gets under flx-run: seen_test.py LAUNCHER SEEN FLX_TOP FLX_RUN"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../apps"))

from hanging import HANG, LAUNCHER, RANKS, Hang, jobs_of, look, records_of, until  # noqa: E402

RUN = sys.argv[4]
WORLD = 500000000


def hangs(how, *parts, trouble="late", calls=100, more_calls=0, mode="off"):
    with Hang(how, calls=calls, front=(RUN,), FLX_MPI=mode) as hang:
        finding, *more = until(hang.findings, f"{how} is named")
        assert not more and finding["trouble"] == trouble and finding["rank"] == 1, (how, finding, more)
        for part in parts:
            assert part in finding["sentence"], (how, part, finding)
        rows = jobs_of(hang.name)[0][0]["ranks"]
        first = next(row for row in rows if row["rank"] == 0)
        assert first["state"] == "in MPI" and first["way"] == "served by MPI" and first["for_s"] > 0.4, first
        assert first["calls"] == first["calls_by_mpi"] >= calls, first
        if mode == "off":
            assert first["call"] == "bcast of 64 B from rank 1" and first["calls"] == calls + more_calls + 1, first
            assert "bcast of 64 B from rank 1, served by MPI" in look("--once")
        print(f"{how}: {finding['sentence']}")


def reports():
    """FLX is in use, and says itself what ranks are in."""
    with Hang("sums", front=(RUN,), FLX_MPI="allreduce", FLX_LATE_WARNING="600") as hang:
        until(hang.findings, "the late one is named")
        rows = jobs_of(hang.name)[0][0]["ranks"]
        assert all(row["calls"] - row["calls_by_mpi"] == 100 for row in rows), rows
        os.kill(hang.pid_of(0), signal.SIGUSR1)
        said = until(lambda: [line for line in hang.lines() if "served by MPI" in line], "a report")
        assert "in call 2 of MPI_COMM_WORLD, bcast of 64 B from rank 1 (served by MPI)" in said[0], said


def traces():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "trace.json")
        run = subprocess.run(
            [LAUNCHER, "-n", str(RANKS), RUN, "--trace", file, HANG, "end", "1", "20"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "FLX_MPI": "off"},
        )
        assert run.returncode == 0, run.stdout + run.stderr
        with open(file, encoding="utf-8") as text:
            events = json.load(text)["traceEvents"]
    for rank in range(RANKS):
        calls = [event for event in events if event.get("cat") == "call" and event["pid"] == rank]
        assert [call["name"] for call in calls] == ["barrier"] * 20 + ["bcast"], calls
        assert all(call["tid"] == WORLD and call["args"]["way"] == "served by MPI" for call in calls), calls
        assert calls[-1]["args"]["bytes"] == 64 and calls[-1]["args"]["number"] == 21, calls[-1]
        assert any(event["args"]["name"] == "MPI_COMM_WORLD" for event in events if event["name"] == "thread_name")


def files_of_ranks(record):
    """How many ranks of a program that hangs have a record in /dev/shm."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, f"seen{os.getpid()}{record}")
        shutil.copy(HANG, program)
        run = subprocess.Popen(
            [LAUNCHER, "-n", "2", RUN, program, "sleep", "1", "20"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "FLX_MPI": "off", "FLX_RECORD": record},
        )
        ranks = []
        try:
            ranks = until(
                lambda: (lambda pids: pids if len(pids) == 2 else None)(
                    subprocess.run(["pgrep", "-x", os.path.basename(program)[:15]], capture_output=True, text=True,
                                   check=False).stdout.split()),
                "both ranks are there",
            )
            time.sleep(2)  # until they are in MPI
            return sum(len(records_of(pid)) for pid in ranks)
        finally:
            run.terminate()
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
                for record in records_of(pid):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(record)
            run.wait(timeout=60)


def is_off():
    assert files_of_ranks("on") == 2
    assert files_of_ranks("off") == 0


hangs("sleep", "call 101 of MPI_COMM_WORLD, bcast of 64 B from rank 1")
hangs("mismatch", "allreduce of 4 B", "bcast of 64 B", trouble="mismatch")
hangs("copy", "call 1 of MPI's communicator ", "for rank 1 of it, which has made no such call")
hangs("order", "call 2 of MPI's communicator ", "for rank 1 (pid ", "which left its last call ", more_calls=3)
hangs("sleep", "call 5 of MPI_COMM_WORLD", calls=4, mode="auto")  # which is when the ranks ask each other about FLX
reports()
traces()
is_off()
