#!/usr/bin/env python3
"""What ranks say by themselves of a program that does not go on: hang_report_test.py LAUNCHER HANG FLX_TOP"""

import os
import signal
import time

from hanging import RANKS, Hang, until


def reports(hang):
    return [line.split("report: ", 1)[1] for line in hang.lines() if "report: " in line]


def begun(hang, why):
    return [line for line in reports(hang) if line.startswith(why)]


def asked():
    with Hang("sleep", FLX_LATE_WARNING="600") as hang:
        time.sleep(0.5)
        began = time.monotonic()
        os.kill(hang.pid_of(2), signal.SIGUSR1)
        until(lambda: any(line.startswith("late: ") for line in reports(hang)), "a report")
        took = time.monotonic() - began
        lines = reports(hang)
        assert lines[0].startswith(f"asked by SIGUSR1; {RANKS} ranks on "), lines
        assert any(line.startswith("ranks 0, 2 (pid ") and "in call 101 of communicator 1" in line for line in lines), lines
        assert any(line.startswith("rank 1 (pid ") and "outside of FLX, after call 100" in line for line in lines), lines
        assert "for rank 1" in lines[-1] and "sleeps" in lines[-1], lines
        print(f"asked: told in {took:.2f} s")
        # Through the launcher all get it, and one answers.
        time.sleep(1.5)
        os.kill(hang.run.pid, signal.SIGUSR1)
        until(lambda: len(begun(hang, "asked by SIGUSR1")) == 2, "a second report")
        time.sleep(1)
        assert len(begun(hang, "asked by SIGUSR1")) == 2, reports(hang)


def stopped():
    """One that cannot speak is spoken of."""
    with Hang("stop", FLX_LATE_WARNING="600") as hang:
        time.sleep(0.5)
        os.kill(hang.pid_of(1), signal.SIGUSR1)
        os.kill(hang.pid_of(0), signal.SIGUSR1)
        until(lambda: any(line.startswith("stopped: ") for line in reports(hang)), "a report")


def late():
    """Where many wait, one says so."""
    with Hang("sleep", FLX_LATE_WARNING="2") as hang:
        until(lambda: any(line.startswith("late: ") for line in reports(hang)), "a report")
        time.sleep(1)
        said = [line for line in reports(hang) if " is late; " in line]
        assert len(said) == 1 and said[0].startswith("rank 1 "), said


def broken():
    with Hang("mismatch") as hang:
        until(lambda: begun(hang, "communicator 1 is broken"), "a report")


asked()
stopped()
late()
broken()
