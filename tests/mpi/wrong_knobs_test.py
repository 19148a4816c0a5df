#!/usr/bin/env python3
"""Knobs that are wrong: FLX says so itself, once however many ranks there are, as a program may not look at the status.

    wrong_knobs_test.py RANKS FLX_PERF
"""
import os
import subprocess
import sys

LAUNCHER, PERF = sys.argv[1:3]
RANKS = 3
LAST = '[ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" = 2 ] && export %s; exec "$@"'


def said(environment, first=""):
    """The lines of FLX's log, where `first` is what each rank's shell does before the program."""
    done = subprocess.run(
        [LAUNCHER, "-n", str(RANKS), "bash", "-c", first or 'exec "$@"', "bash", PERF, "allreduce", "--sizes", "8"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
        env={**os.environ, **environment})
    if done.returncode == 0:
        sys.exit(f"{environment} {first}: nothing is wrong:\n{done.stdout}")
    return [line for line in done.stdout.splitlines() if line.startswith("flx ")]


def expect(lines, line):
    if lines != [line]:
        sys.exit(f'not "{line}" once:\n' + "\n".join(lines))


expect(said({"FLX_LINK": "shm"}),
       "flx error rank 0: FLX_LINK is not a knob of FLX; did you mean FLX_LINKS? flx_info --knobs lists all [FLX-E201]")
expect(said({"FLX_LOG": "loud"}), 'flx error rank 0: FLX_LOG is "loud"; error, warn, info or debug is allowed [FLX-E202]')
expect(said({}, LAST % "FLX_CHECK=maybe"), 'flx error rank 2: FLX_CHECK is "maybe"; 0 or 1 is allowed [FLX-E202]')
expect(said({}, LAST % "FLX_STRICT=1"),
       "flx error rank 0: rank 0 has FLX_STRICT=0, rank 2 has FLX_STRICT=1; these must be equal on all ranks [FLX-E203]")
print("each was said once")
