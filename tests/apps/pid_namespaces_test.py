#!/usr/bin/env python3
"""Ranks in containers that share /dev/shm, each with process numbers of its own, of which most are equal:
pid_namespaces_test.py LAUNCHER HANG FLX_TOP

All are seen, from their host and from a container beside theirs, and are said to live as long as they do."""

import json
import os
import signal
import subprocess
import sys
import time

from hanging import RANKS, TOP, Hang, until

SHM = "/dev/shm"
ALONE = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-current-user"]), "--pid", "--fork", "--kill-child",
         "--mount-proc"]


def records():
    return {name for name in os.listdir(SHM) if name.startswith("calls-of-flx.") and "-" in name.rsplit(".", 1)[1]}


def from_beside(hang):
    """What flx_top says in a container of its own."""
    run = subprocess.run([*ALONE, TOP, "--json"], capture_output=True, text=True, timeout=30, check=True)
    found = json.loads(run.stdout)
    rows = [row for job in found["jobs"] if hang.name in job["command"] for row in job["ranks"]]
    return rows, [each for each in found["findings"] if "in its container" in each["sentence"]]


def reports(hang):
    return [line.split("report: ", 1)[1] for line in hang.lines() if "report: " in line]


def main():
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: namespaces cannot be made here")
        return 77
    before = records()
    with Hang("sleep", front=ALONE, FLX_LATE_WARNING="600", OMPI_MCA_btl="tcp,self") as hang:
        time.sleep(0.5)
        names = {name.rsplit(".", 1)[1] for name in records() - before}
        assert len({name.split("-")[1] for name in names}) == RANKS, f"not a namespace each: {names}"

        # From the host: numbers are those of the host, and what the ranks do is seen.
        found = hang.findings()
        assert [each["rank"] for each in found] == [1] and "and sleeps" in found[0]["sentence"], found
        assert found[0]["pid"] == hang.pid_of(1) and os.path.exists(f"/proc/{hang.pid_of(1)}"), found

        rows, said = from_beside(hang)
        assert len(rows) == RANKS and all(row["state"] in ("in FLX", "outside") for row in rows), rows
        assert [each["rank"] for each in said] == [1] and "and lives, in a container" in said[0]["sentence"], said

        # A rank knows of the others what the container beside them does.
        os.kill(hang.pid_of(2), signal.SIGUSR1)
        until(lambda: any(line.startswith("late: ") for line in reports(hang)), "a report")
        lines = reports(hang)
        assert lines[0].startswith(f"asked by SIGUSR1; {RANKS} ranks on "), lines
        assert not any("died" in line for line in lines), lines
        assert any(line.startswith("rank 1 (pid ") and "outside of FLX, after call 100" in line for line in lines), lines

        os.kill(hang.pid_of(1), signal.SIGKILL)
        until(lambda: any(each["trouble"] == "dead" for each in hang.findings()) or hang.run.poll() is not None, "a death")
        rows, _ = from_beside(hang)
        assert all(row["state"] == "dead" for row in rows if row["rank"] == 1), rows
    for name in records() - before:
        os.unlink(f"{SHM}/{name}")
    print(f"{RANKS} ranks with numbers {', '.join(sorted(name.split('-')[0] for name in names))} of their own: all are known")
    return 0


sys.exit(main())
