#!/usr/bin/env python3
"""Faults of rails, at random, under a program that goes on: flx_top --explain names the rail and what it does on each
host, soon, and nothing once it is whole again. faults_of_rails_test.py RAILS HANG FLX_TOP COUNT [SEED]"""

import json
import os
import random
import subprocess
import sys
import time

RAILS, HANG, TOP, COUNT = *sys.argv[1:4], int(sys.argv[4])
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 30)
RATES = [400, 200, 100]
HOSTS = 2
MOST_S = 1.0


def rails(*words, check=True):
    run = subprocess.run([RAILS, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    if run.returncode == 77:
        print(run.stdout + run.stderr)
        sys.exit(77)
    assert not check or run.returncode == 0, (words, run.stdout, run.stderr)
    return run.stdout


def findings(host):
    """Of links: (their names, sentences), and how long it took."""
    began = time.monotonic()
    found = json.loads(rails("exec", host, TOP, "--json"))
    took = time.monotonic() - began
    assert found["jobs"], f"host {host} has no program"
    links = [finding for finding in found["findings"] if finding["trouble"] == "link"]
    return [(finding["sentence"].split()[0], finding["sentence"]) for finding in links], took


def until(condition, most_s):
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.3)
    return False


def is_named(host, rail, words):
    found, took = findings(host)
    return took < 20 * MOST_S and [name for name, _ in found] == [f"rail{rail}"] and words in found[0][1]


def whole():
    return all(not findings(host)[0] for host in range(1, HOSTS + 1))


def inject(kind, rail, host):
    """A rail is lost for both of its ends; only who sends over a slow end knows that it is slow."""
    if kind == "cut":
        rails("cut", rail, host)
        named = until(lambda: all(is_named(each, rail, "does not reach rank") for each in range(1, HOSTS + 1)), 15)
        rails("restore", rail, host)
    else:
        rails("rate", rail, RATES[rail - 1] // random.choice([5, 8, 12]), host)
        named = until(lambda: is_named(host, rail, "delivers"), 20)
        said = findings(host)[0]
        rails("rate", rail, RATES[rail - 1], host)
        if not named:
            return f"it says {said}"
    if not named:
        return f"it says {[findings(each)[0] for each in range(1, HOSTS + 1)]}"
    return "" if until(whole, 40) else f"whole again, it says {[findings(each)[0] for each in range(1, HOSTS + 1)]}"


random.seed(SEED)
os.environ["RAILS_BED"] = rails("create", HOSTS, ",".join(map(str, RATES)), "--owner", os.getpid()).split()[-1]
program = subprocess.Popen(
    [RAILS, "mpirun", "--mgmt", "-n", str(HOSTS), "--per-host", "1", "-x", "FLX_CACHE=none", "--", HANG, "large"],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
wrong = 0
try:
    assert until(lambda: all(json.loads(rails("exec", host, TOP, "--json"))["jobs"] for host in range(1, HOSTS + 1)), 60)
    time.sleep(3)  # vectors find their rates
    for fault in range(COUNT):
        kind, rail, host = ["cut", "slow"][fault % 2], random.randint(1, len(RATES)), random.randint(1, HOSTS)
        if what := inject(kind, rail, host):
            wrong += 1
            print(f"wrong: rail{rail} {kind} at host {host}: {what}")
finally:
    rails("destroy", check=False)
    program.wait(timeout=60)
print(f"{COUNT - wrong} of {COUNT} named (seed {SEED})")
sys.exit(wrong != 0)
