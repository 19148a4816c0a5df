#!/usr/bin/env python3
"""Faults of programs, at random: flx_top --explain names the right rank and the right kind, and soon.
faults_test.py LAUNCHER HANG FLX_TOP COUNT [SEED]"""

import random
import sys
import time

from hanging import RANKS, Hang, look, until

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
print(f"{COUNT - wrong} of {COUNT} named, the slowest answer took {slowest:.2f} s (seed {SEED})")
sys.exit(wrong != 0)
