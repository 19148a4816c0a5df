#!/usr/bin/env python3
"""Ranks that may open few descriptors. A low soft limit is raised; where the hard one is too low for the connections that
rails take, FLX says so with numbers and ends at once, and with one descriptor more it works.

    limits_test.py RANKS FLX_PERF
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

LAUNCHER, PERF = sys.argv[1:3]
RANKS = 6
NEEDED = 2 * (RANKS - 1)  # two connections to each peer


def run(soft, hard):
    """Output, exit code and results of ranks that are hosts of their own, with such limits."""
    each = f'ulimit -Sn {soft}; ulimit -Hn {hard}; FLX_HOST_ID=host${{OMPI_COMM_WORLD_RANK-$PMI_RANK}} exec "$@"'
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run(
            [LAUNCHER, "-n", str(RANKS), "bash", "-c", each, "bash", PERF, "allreduce", "--sizes", "8,65536", "--max-seconds", "0.02", "--json", file.name],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False,
            env={**os.environ, "FLX_PROBE_MS": "20", "FLX_LOG": "warn", "FLX_RAILS": "tcp/lo",
                 "OMPI_MCA_btl": "tcp,self"})
        results = json.load(open(file.name, encoding="utf-8"))["results"] if done.returncode == 0 else []
    return done.stdout, done.returncode, results


def expect_right(name, done):
    output, code, results = done
    if code != 0 or len(results) != 2 or any(row["wrong"] for row in results):
        sys.exit(f"{name}: code {code}, {results}:\n{output}")
    if "descriptors" in output:
        sys.exit(f"{name}: there are enough descriptors:\n{output}")


def main():
    # What a process has open when it has none to spare, by what it says of that.
    least = 96
    while True:
        began = time.time()
        output, code, _ = run(least, least)
        found = re.search(r"rank (\d+) .* may make (\d+) connections to its peers; (\d+) are open and (\d+) kept back of (\d+) at", output)
        if found or least < 48:
            break
        least -= 16
    if not found or code == 0 or "lo" not in output or int(found[2]) != NEEDED or int(found[5]) != least:
        sys.exit(f"with {least} descriptors: code {code}, and no sentence with the right numbers:\n{output}")
    if time.time() - began > 30:
        sys.exit(f"with {least} descriptors: it took {time.time() - began:.0f} s to say so")
    enough = int(found[3]) + int(found[4]) + NEEDED + 2  # ranks differ by one or two
    expect_right(f"{enough} descriptors", run(enough, enough))
    expect_right("a soft limit that is too low", run(least, 1024))
    print(f"{least} descriptors are too few, {enough} are enough, also where only the hard limit allows them")


main()
