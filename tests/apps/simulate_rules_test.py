#!/usr/bin/env python3
"""Rules for a machine: simulate_rules_test.py FLX_SIMULATE MACHINE HOSTS

Some choices are not the best, as the order of sums follows from nominal costs. flx_simulate says which rules mend that,
and with these in FLX_ALGORITHM no choice takes more than 1.1 times as long as the best candidate. Nothing else
changes."""

import json
import os
import subprocess
import sys
import tempfile

PROGRAM, MACHINE = (os.path.abspath(path) for path in sys.argv[1:3])
HOSTS = sys.argv[3]
MOST_WORSE = 1.1
CELLS = ["--hosts", HOSTS, "--sizes", "8,4K,32K,256K,2M,64M"]


def run(*arguments, algorithm=None):
    environment = {name: value for name, value in os.environ.items() if name != "FLX_ALGORITHM"}
    if algorithm is not None:
        environment["FLX_ALGORITHM"] = algorithm
    return subprocess.run([PROGRAM, MACHINE, *arguments], capture_output=True, text=True, check=False,
                          env=environment)


def cells_of(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return {(cell["collective"], cell["bytes"]): cell for cell in json.loads(done.stdout)["cells"]}


def main():
    before = cells_of(run(*CELLS, "--json", "-", "--rules", "rules.txt"))
    worse = {key for key, cell in before.items() if cell["times"] > MOST_WORSE}
    assert worse, "on this machine nothing is to be mended"
    with open("rules.txt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert lines[0].startswith(f"# Rules for FLX_ALGORITHM on {HOSTS} hosts"), lines
    for rule in lines[1:]:
        assert rule.split(":")[0] in {collective for collective, _ in worse}, rule
    after = cells_of(run(*CELLS, "--json", "-", "--most-worse", str(MOST_WORSE), algorithm="file:rules.txt"))
    for key, cell in before.items():
        if key in worse:
            assert after[key]["chosen"] == cell["best"], key
        else:
            assert after[key]["chosen"] == cell["chosen"], key
    # With them there is nothing left to say, and what they say can be set as it is, too.
    again = run(*sorted({collective for collective, _ in worse}), *CELLS, "--rules", "-",
                algorithm=",".join(rule.split("  #")[0] for rule in lines[1:]))
    assert again.stdout.count("\n") == 1 and again.stdout.startswith("# Rules"), again.stdout + again.stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
