#!/usr/bin/env python3
"""Faults of programs, at random: flx_top --explain names the right rank and the right kind, and soon. Where the disk
under a trace is full, the program says so and goes on. faults_test.py LAUNCHER HANG FLX_TOP COUNT [SEED]"""

import os
import random
import subprocess
import sys
import tempfile
import time

from hanging import RANKS, Hang, jobs_of, look, until

COUNT = int(sys.argv[4])
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 30)
MOST_S = 1.0
# What is found, and what its sentence has, of which {} is the rank.
KINDS = {
    "compute": ("late", "for rank {} ("),
    "sleep": ("late", "for rank {} ("),
    "early": ("late", "for rank {} ("),
    "stop": ("stopped", "for rank {} ("),
    "mismatch": ("broken", "rank {}"),
    "size": ("broken", "rank {}"),
    "crossed": ("broken", "calls on two communicators cross: "),
}


def inject(how, rank, calls):
    trouble, words = KINDS[how]
    with Hang(how, rank, calls) as hang:
        until(hang.findings, f"{how} of rank {rank} is explained")
        # What is found at first may be a rank that has not come so far.
        time.sleep(0.6)
        began = time.monotonic()
        look("--explain")
        took = time.monotonic() - began
        findings = until(hang.findings, f"{how} of rank {rank} is explained")
        text = "; ".join(f"{finding['trouble']}: {finding['sentence']}" for finding in findings)
        right = findings[0]["trouble"] == trouble and words.format(rank) in findings[0]["sentence"]
        if trouble in ("late", "stopped"):
            right = right and findings[0]["rank"] == rank and len(findings) == 1
        # Under load nothing is as fast as it is.
        return right, took, text


def fill_disk(kib):
    """None: it goes on, and said whose trace ends where, and why."""
    with tempfile.TemporaryDirectory() as disk:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "flx-test", disk]
        if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return "skipped: a disk of its own needs root"
        try:
            with Hang("loop", FLX_TRACE=os.path.join(disk, "trace.json")) as hang:
                def said(rank):
                    return any(f"rank {rank}: " in line and "/trace.json" in line and "No space left" in line
                               for line in hang.lines())

                until(lambda: all(said(rank) for rank in range(RANKS)), "the full disk is named")
                before = [row["calls"] for row in jobs_of(hang.name)[0][0]["ranks"]]
                until(lambda: all(row["calls"] > calls for row, calls in zip(jobs_of(hang.name)[0][0]["ranks"], before)),
                      "the program goes on")
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
    return None


random.seed(SEED)
kinds = [list(KINDS)[i % len(KINDS)] for i in range(COUNT)]
wrong = 0
slowest = 0
for fault in kinds:
    where = random.randrange(RANKS)
    after = random.choice([1, 2, 100, 1023, 1024, 5000])
    right, took, text = inject(fault, where, after)
    slowest = max(slowest, took)
    if not right or took > 20 * MOST_S:
        wrong += 1
        print(f"wrong: {fault} of rank {where} after {after} calls, {took:.2f} s: {text}")
for _ in range(max(1, COUNT // 40)):
    if skipped := fill_disk(random.randrange(512, 8192, 64)):
        print(skipped)
        break
print(f"{COUNT - wrong} of {COUNT} named, the slowest answer took {slowest:.2f} s (seed {SEED})")
sys.exit(wrong != 0)
