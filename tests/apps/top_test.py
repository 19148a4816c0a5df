#!/usr/bin/env python3
"""What flx_top says of programs that do not go on, of one that does, and of one that was killed:
top_test.py LAUNCHER HANG FLX_TOP"""

import os
import re
import shutil
import subprocess
import tempfile
import time

from hanging import RANKS, TOP, Hang, jobs_of, look, until


def expect(how, trouble, *parts, **environment):
    with Hang(how, **environment) as hang:
        # A rank that waits for what does not block is seen to do so a moment later than the others.
        finding, *more = until(
            lambda: (lambda found: found if found and (trouble == "broken" or found[0]["waiting"] == RANKS - 1) else None)(
                hang.findings()),
            f"{how} is named for all who wait",
        )
        assert not more and finding["trouble"] == trouble, (how, finding, more)
        if trouble != "broken":
            assert finding["rank"] == 1, (how, finding)
        for part in parts:
            assert part in finding["sentence"], (how, part, finding)
        assert finding["advice"]
        began = time.monotonic()
        text = look("--explain")
        took = time.monotonic() - began
        assert finding["trouble"] + ": " in text and "rank 1" in text, text
        print(f"{how}: named as {trouble}, flx_top --explain took {took:.2f} s")


def watch_one_that_goes_on():
    with Hang("loop") as hang:
        until(lambda: all(row["calls_per_s"] > 0 for row in jobs_of(hang.name)[0][0]["ranks"]), "calls are counted")
        job = jobs_of(hang.name)[0][0]
        until(lambda: not hang.findings(), "nobody waits")
        assert sorted(row["rank"] for row in job["ranks"]) == list(range(RANKS)) and job["size"] == RANKS
        assert all("allreduce of 8 B" in row["call"] for row in job["ranks"]), job
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "flx.prom")
            look("--prometheus", "--to", file)
            with open(file, encoding="utf-8") as text:
                lines = text.read().splitlines()
            assert os.listdir(folder) == ["flx.prom"]
        own = [f'pid="{row["pid"]}"' for row in job["ranks"]]  # other programs may run
        calls = [line for line in lines if line.startswith("flx_calls_total{") and any(pid in line for pid in own)]
        assert len(calls) == RANKS and all(int(line.split()[-1]) > 100 for line in calls), lines
        for line in lines:
            assert re.fullmatch(r'# (HELP|TYPE) .+|flx_\w+\{(\w+="[^"]*",?)+\} [0-9.e+-]+', line), line
        show_on_terminals(hang)


def show_on_terminals(hang):
    if shutil.which("tmux") is None:
        print("skipped: the terminal: tmux is missing")
        return
    for width, height in (80, 24), (200, 60):
        session = f"flx-top-test-{os.getpid()}"

        def tmux(*words):
            return subprocess.run(["tmux", "-L", session, *words], capture_output=True, text=True, check=False).stdout

        tmux("new-session", "-d", "-s", session, "-x", str(width), "-y", str(height), TOP)
        try:
            shown = until(
                lambda: (lambda text: text if "in FLX" in text or "outside" in text else None)(tmux("capture-pane", "-p")),
                "the screen",
            )
            lines = shown.splitlines()
            assert hang.name[:20] in shown and "calls/s" in shown, shown
            assert len(lines) <= height and all(len(line) <= width for line in lines), shown
            assert "q quits" in lines[-1], shown
            tmux("send-keys", "e")
            said = ("Nobody waits for long", "late: ", "slow: ", "stopped: ", "mismatch: ", "broken: ", "dead: ")
            until(lambda: any(words in tmux("capture-pane", "-p") for words in said), "an explanation")
            tmux("send-keys", "q")
            until(lambda: session not in tmux("list-sessions"), "the end")
        finally:
            tmux("kill-server")
    print("shown at 80x24 and 200x60")


def refuse():
    for options in ["--json", "--prometheus"], ["--to", "x"], ["--interval", "0"], ["--nothing"]:
        run = subprocess.run([TOP, *options], capture_output=True, text=True, timeout=20, check=False)
        assert run.returncode not in (0, 77) and run.stderr, (options, run)
    run = subprocess.run([TOP], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 1 and "no terminal" in run.stderr, run
    run = subprocess.run([TOP, "--once", "--user", "4294967294"], capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 0 and "No program" in run.stdout, run
    # A record that cannot be read, as one of another version, is no sign that there is none.
    if os.getuid() != 0:
        return
    files = [f"/dev/shm/calls-of-flx.4294967293.{number}" for number in (1, 2)]
    for file in files:
        with open(file, "w", encoding="utf-8"):
            os.chown(file, 4294967293, 0)
    run = subprocess.run([TOP, "--once", "--user", "4294967293"], capture_output=True, text=True, timeout=20, check=False)
    for file in files:
        os.unlink(file)
    assert f"2 records cannot be read; {files[0]} is no record" in run.stdout, run


refuse()
expect("compute", "late", "call 101 of communicator 1, allreduce of 8 B", "uses its core")
expect("compute", "late", "call 101 of communicator 1, allreduce of 8 B", "uses its core", FLX_CHECK="1")
expect("sleep", "late", "left its last call", "sleeps")
expect("sleep-all", "late", "of communicator 1, non-blocking allreduce of 4 B", "sleeps")
expect("stop", "stopped", "stopped by a signal")
expect("mismatch", "broken", "communicator 1: ", "bcast of 4 KiB")
watch_one_that_goes_on()
