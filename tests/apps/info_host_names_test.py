#!/usr/bin/env python3
"""flx_info writes hosts' names so that they can be read as TOML and as JSON, whatever is in them.
info_host_names_test.py LAUNCHER FLX_INFO"""

import json
import subprocess
import sys

LAUNCHER, INFO = sys.argv[1:3]
SAID = "no rail between the hosts was measured"


def run(name, *arguments):
    command = [LAUNCHER, "-n", "1", "env", f"FLX_HOST_ID={name}", INFO, *arguments, ":", "-n", "1", "env",
               "FLX_HOST_ID=other", INFO, *arguments]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode == 77:
        print(done.stdout + done.stderr)
        sys.exit(77)
    return done


def check(name, printed):
    named = f"{printed} and hosts beside it"
    lines = run(name, "--links").stdout.splitlines()
    costs = lines[lines.index("[costs]") + 1:]
    value = next(line for line in costs if line.startswith("  name = ")).removeprefix("  name = ")
    assert json.loads(value) == named, value
    done = run(name, "--json", "-")
    if done.returncode != 0:  # busy cores, or a machine without devices: there is a sentence, and no exception
        assert SAID in done.stderr and "terminate" not in done.stderr, done
        return
    machine = json.loads(done.stdout)
    assert machine["name"] == named and machine["hosts"] == 2, machine


check('a"b\\c', 'a"b\\c')
check("a\tb", "a?b")
