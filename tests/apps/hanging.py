"""A program that does not go on, for tests that look at it: tests/apps/hang.c"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHER, HANG, TOP = sys.argv[1:4]
RANKS = 3


def look(*options):
    run = subprocess.run([TOP, *options], capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 0, f"flx_top {' '.join(options)} ended with {run.returncode}: {run.stderr}"
    return run.stdout


def jobs_of(name):
    found = json.loads(look("--json"))
    return [job for job in found["jobs"] if name in job["command"]], found["findings"]


def records_of(pid):
    """Of a process of this namespace, whose number is in the name where it is not the initial one."""
    name = f"/dev/shm/calls-of-flx.{os.getuid()}.{pid}"
    return [path for path in (name, f"{name}-{os.stat('/proc/self/ns/pid').st_ino}") if os.path.exists(path)]


def until(condition, what):
    for _ in range(200):
        result = condition()
        if result:
            return result
        time.sleep(0.2)
    raise AssertionError(f"not within 40 s: {what}")


class Hang:
    """The program, whose name no other one has."""

    def __init__(self, how, rank=1, calls=100, front=(), **environment):
        self.folder = tempfile.mkdtemp()
        self.name = f"hang{os.getpid()}{how}"
        program = os.path.join(self.folder, self.name)
        shutil.copy(HANG, program)
        self.output = open(os.path.join(self.folder, "out"), "w", encoding="utf-8")
        self.run = subprocess.Popen(
            [LAUNCHER, "-n", str(RANKS), *front, program, how, str(rank), str(calls)], stdin=subprocess.DEVNULL,
            stdout=self.output, stderr=self.output, start_new_session=True, env={**os.environ, **environment},
        )

        self.calls = calls

    def __enter__(self):
        def is_there():
            jobs, _ = jobs_of(self.name)
            return jobs and len(jobs[0]["ranks"]) == RANKS and all(row["calls"] >= self.calls for row in jobs[0]["ranks"])

        until(is_there, f"{self.name} has made its calls")
        # When they are dead they are not shown beside other programs.
        self.pids = [row["pid"] for row in jobs_of(self.name)[0][0]["ranks"]]
        return self

    def __exit__(self, *_):
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.run.wait(timeout=30)
        self.output.close()
        # What they left is there, and says so.
        jobs, _ = jobs_of(self.name)
        if jobs:
            assert all(row["state"] == "dead" for row in jobs[0]["ranks"]), jobs
        for pid in self.pids:
            for record in records_of(pid):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(record)
        shutil.rmtree(self.folder)

    def pid_of(self, rank):
        return next(row["pid"] for row in jobs_of(self.name)[0][0]["ranks"] if row["rank"] == rank)

    def findings(self):
        """What is said of this program; others may run."""
        jobs, findings = jobs_of(self.name)
        pids = [row["pid"] for row in jobs[0]["ranks"]]
        return [finding for finding in findings if finding["pid"] in pids]

    def lines(self):
        with open(os.path.join(self.folder, "out"), encoding="utf-8") as text:
            return text.read().splitlines()
