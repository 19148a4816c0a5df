#!/usr/bin/env python3
"""What leaves hosts, as their devices count it, beside the least that must.

  bytes_test.py RAILS FLX_PERF HOSTS RANKS_A_HOST by-core|by-node [--sizes 1M,4M] [--most 1.08] [COLLECTIVE...]

by-node puts ranks round the hosts, as `mpirun --map-by node` does. Each collective is called some times more in a
second run than in a first one: the difference is what those calls put on the rails, headers and acknowledgements among
it. Fails where that is more than --most times the least. 77: ci/rails cannot make hosts here.
"""

import argparse
import csv
import io
import os
import subprocess
import sys

CALLS = (14, 42)
COLLECTIVES = "allreduce reduce_scatter_block allgather bcast reduce alltoall gather scatter".split()


def least(collective, size, hosts, each):
    """Bytes that leave all hosts together in one call; `size` as flx_perf counts it."""
    others = hosts - 1
    if collective == "allreduce":
        return 2 * others * size
    if collective == "alltoall":
        return each * others * size
    if collective in ("gather", "scatter"):
        return others * size // hosts
    return others * size


class Bed:
    def __init__(self, rails, hosts):
        self.command = [rails, "--bed", f"bytes{os.getpid()}"]
        made = subprocess.run(self.command + ["create", str(hosts), "800,400,200"], capture_output=True, text=True)
        if made.returncode != 0:
            print(made.stdout + made.stderr)
            print("skipped: ci/rails cannot make hosts here")
            sys.exit(77)

    def carried(self):
        text = subprocess.run(self.command + ["stats"], capture_output=True, text=True, check=True).stdout
        return sum(int(row["tx_bytes"]) for row in csv.DictReader(io.StringIO(text)))

    def run(self, ranks, each, mapping, program):
        options = ["-n", str(ranks), "--per-host", str(each), "-x", "FLX_PROBE_MS=0"]
        options += ["--map-by", "node"] if mapping == "by-node" else []
        before = self.carried()
        command = self.command + ["mpirun", "--mgmt"] + options + ["--"] + program
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {run.returncode}\n{run.stdout}{run.stderr}")
        return self.carried() - before

    def destroy(self):
        subprocess.run(self.command + ["destroy"], capture_output=True)


def bytes_of(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("rails")
    parser.add_argument("perf")
    parser.add_argument("hosts", type=int)
    parser.add_argument("each", type=int)
    parser.add_argument("mapping", choices=["by-core", "by-node"])
    parser.add_argument("--sizes", default="1M,4M")
    parser.add_argument("--most", type=float, default=1.08)
    parser.add_argument("collectives", nargs="*")
    options = parser.parse_intermixed_args()
    bed = Bed(options.rails, options.hosts)
    failed = False
    try:
        for collective in options.collectives or COLLECTIVES:
            for size in options.sizes.split(","):
                counted = []
                for calls in CALLS:
                    program = [options.perf, collective, "--sizes", size, "--iterations", str(calls), "--warmup", "1"]
                    counted.append(bed.run(options.hosts * options.each, options.each, options.mapping, program))
                each_call = (counted[1] - counted[0]) / (CALLS[1] - CALLS[0])
                must = least(collective, bytes_of(size), options.hosts, options.each)
                ratio = each_call / must
                wrong = ratio > options.most
                failed = failed or wrong
                print(
                    f"{collective:>22} {size:>4}: {each_call:12.0f} B a call, least {must}, ratio {ratio:.3f}"
                    f"{' FAILED' if wrong else ''}",
                    flush=True,
                )
    finally:
        bed.destroy()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
