#!/usr/bin/env python3
"""Ranks in containers that share /dev/shm, each with process numbers of its own, of which most are equal:
pid_namespaces_test.py LAUNCHER HANG FLX_TOP

All are seen, from their host and from a container beside theirs, and are said to live as long as they do."""

import contextlib
import json
import os
import signal
import subprocess
import sys

from hanging import RANKS, TOP, Hang, until

SHM = "/dev/shm/"
ALONE = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-current-user"]), "--pid", "--fork", "--kill-child",
         "--mount-proc"]


def records(hang):
    """Names of this program's records in containers: its command is in them."""
    found = []
    for name in os.listdir(SHM):
        if name.startswith(f"calls-of-flx.{os.getuid()}.") and "-" in name.rsplit(".", 1)[1]:
            with contextlib.suppress(FileNotFoundError), open(SHM + name, "rb") as file:
                found += [name] if hang.name.encode() in file.read(4096) else []
    return found


def rows_of(found, hang):
    return [row for job in found["jobs"] if hang.name in job["command"] for row in job["ranks"]]


def from_beside(hang):
    """What flx_top says in a container of its own."""
    run = subprocess.run([*ALONE, TOP, "--json"], capture_output=True, text=True, timeout=30, check=True)
    found = json.loads(run.stdout)
    return rows_of(found, hang), found["findings"]


def reports(hang):
    return [line.split("report: ", 1)[1] for line in hang.lines() if "report: " in line]


def looks_at(hang):
    # From the host: numbers are those of the host, and what the ranks do is seen.
    found = until(hang.findings, "the late one is named")
    assert [each["rank"] for each in found] == [1] and "and sleeps" in found[0]["sentence"], found
    assert found[0]["pid"] == hang.pid_of(1) and os.path.exists(f"/proc/{hang.pid_of(1)}"), found

    rows, said = from_beside(hang)
    assert len(rows) == RANKS and all(row["state"] in ("in FLX", "outside") for row in rows), rows
    assert all(row["pid"] is None and row["pid_in_container"] > 0 for row in rows), rows
    said = [each["sentence"] for each in said if each["pid"] is None]
    assert any("rank 1 (pid " in each and " in its container on " in each and "and lives, in a container" in each
               for each in said), said

    # A rank knows of the others what the container beside them does, and tells its own number apart.
    os.kill(hang.pid_of(2), signal.SIGUSR1)
    until(lambda: any(line.startswith("late: ") for line in reports(hang)), "a report")
    lines = reports(hang)
    assert lines[0].startswith(f"asked by SIGUSR1; {RANKS} ranks on "), lines
    assert not any("died" in line for line in lines), lines
    assert any(line.startswith("rank 1 (pid ") and "in its container): outside of FLX, after call 100" in line
               for line in lines), lines
    both = next(line for line in lines if line.startswith("ranks 0, 2 (pid "))
    assert both.split(")")[0].count("in its container") == 1, both

    # The launcher is stopped, so that the others outlive this one.
    os.kill(hang.run.pid, signal.SIGSTOP)
    try:
        os.kill(hang.pid_of(1), signal.SIGKILL)
        until(lambda: [row["state"] for row in from_beside(hang)[0] if row["rank"] == 1] == ["dead"], "a death from beside")
        rows, _ = from_beside(hang)
        assert sorted(row["state"] == "dead" for row in rows) == [False, False, True], rows
    finally:
        os.kill(hang.run.pid, signal.SIGCONT)


def main():
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: namespaces cannot be made here")
        return 77
    names = []
    hang = Hang("sleep", front=ALONE, FLX_LATE_WARNING="600", OMPI_MCA_btl="tcp,self")
    try:
        with hang:
            names = records(hang)
            spaces = {name.rsplit("-", 1)[1] for name in names}
            assert len(names) == len(spaces) == RANKS, f"not a namespace each: {names}"
            looks_at(hang)
    finally:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(SHM + name)
    print(f"{RANKS} ranks, all with number {' or '.join({name.rsplit('.', 1)[1].split('-')[0] for name in names})}: all are known")
    return 0


if __name__ == "__main__":
    sys.exit(main())
