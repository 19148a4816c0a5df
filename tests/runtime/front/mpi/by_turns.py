#!/usr/bin/env python3
"""How long a program takes under plain MPI and under flx-run, by turns.

  by_turns.py LAUNCHER FLX_RUN [--turns N] PLACEMENT... -- PROGRAM ARGUMENTS...

LAUNCHER is tests/ranks of the build. A PLACEMENT is 4 (ranks on this host) or 4@2 (on 2 hosts that ci/rails makes, with
rails of --rates). The program prints `seconds: S`. Prints for each placement the medians of plain MPI and of FLX, their ratio (above 1 FLX is faster)
with the least and the most of all turns, and the noise: the ratio of plain MPI's later turns to the ones before.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

RAILS = pathlib.Path(__file__).resolve().parents[4] / "ci" / "rails"


def launch(launcher, placement, rates):
    ranks, _, hosts = placement.partition("@")
    if not hosts:
        return [launcher, "-n", ranks]
    each = int(ranks) // int(hosts)
    return [str(RAILS), "once", hosts, rates, "-n", ranks, "--per-host", str(each), "--"]


def seconds(command):
    run = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"^seconds: ([\d.]+)$", run.stdout, re.MULTILINE)
    if run.returncode != 0 or not found:
        sys.exit(f"by_turns.py: {' '.join(command)} ended with {run.returncode}\n{run.stdout}{run.stderr}")
    return float(found.group(1))


def main():
    if "--" not in sys.argv:
        sys.exit(__doc__)
    split = sys.argv.index("--")
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("launcher")
    parser.add_argument("flx_run")
    parser.add_argument("placements", nargs="+")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rates", default="800,400,200")
    options = parser.parse_args(sys.argv[1:split])
    program = sys.argv[split + 1 :]
    for placement in options.placements:
        mpi = launch(options.launcher, placement, options.rates)
        plain, flx = [], []
        for _ in range(options.turns):
            plain.append(seconds(mpi + program))
            flx.append(seconds(mpi + [options.flx_run, "--"] + program))
        ratios = [p / f for p, f in zip(plain, flx)]
        noise = [b / a for a, b in zip(plain, plain[1:])] or [1]
        print(
            f"{placement:>6}: plain {statistics.median(plain):.2f} s, FLX {statistics.median(flx):.2f} s, "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
            f"plain against itself {min(noise):.2f} to {max(noise):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
