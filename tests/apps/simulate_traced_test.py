#!/usr/bin/env python3
"""What flx_simulate makes of a trace that FLX wrote: simulate_traced_test.py LAUNCHER FLX_PERF FLX_SIMULATE MACHINES"""

import collections
import json
import os
import subprocess
import sys
import tempfile

from trace_events import read

LAUNCHER, PERF, SIMULATE, MACHINES = sys.argv[1:5]
RANKS = 4
MACHINE = os.path.join(MACHINES, "2048x8.toml")


def run(command, code=0, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False,
                          **more)
    assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def traced(file, *arguments):
    run([LAUNCHER, "-n", str(RANKS), PERF, *arguments, "--max-seconds", "0.02"], env={**os.environ, "FLX_TRACE": file})
    return read(file)["traceEvents"]


def check_collectives():
    events = traced("allgather.json", "allgather", "--sizes", "4K,64K")
    called = collections.Counter(
        (event["name"], event["args"].get("bytes", 0))
        for event in events
        if event.get("cat") == "call" and event["pid"] == 0 and event["name"] != "flx_comm_free"
    )
    assert called[("allgather", 64 << 10)] > 2, called
    text = run([SIMULATE, MACHINE, "--hosts", "16", "--trace", "allgather.json", "--json", "found.json"])
    with open("found.json", encoding="utf-8") as file:
        found = json.load(file)
    assert found["program"]["ranks"] == RANKS and f"a program of {RANKS} ranks, on 128 ranks" in text, text
    rows = {(row["collective"], row["traced_bytes"]): row for row in found["rows"]}
    assert {key: row["calls"] for key, row in rows.items()} == {key: n for key, n in called.items() if key[1] or
                                                               key[0] == "barrier"}, (rows, called)
    # A rank's block stays, so there are 32 times as many bytes.
    assert rows[("allgather", 64 << 10)]["bytes"] == 32 * (64 << 10)
    total = sum(row["calls"] * row["us"] for row in found["rows"])
    assert abs(total / found["program"]["us"] - 1) < 1e-9, found
    assert found["program"]["best_us"] <= found["program"]["us"]
    alone = json.loads(run([SIMULATE, MACHINE, "--hosts", "16", "allgather", "--sizes", "2M", "--json", "-"]))
    cell = alone["cells"][0]
    row = rows[("allgather", 64 << 10)]
    assert row["chosen"] == cell["chosen"] and row["best"] == cell["best"]
    assert row["best_us"] == cell["candidates"][0]["us"], (row, cell)


def check_what_has_no_prediction():
    traced("messages.json", "sendrecv", "--sizes", "4K")
    text = run([SIMULATE, MACHINE, "--hosts", "2", "--trace", "messages.json"], code=1)
    assert "no call that can be predicted: " in text and "messages of two ranks" in text, text


def check_refusals():
    assert "nowhere.json cannot be read" in run([SIMULATE, MACHINE, "--trace", "nowhere.json"], code=1)
    for more in ["allreduce"], ["--sizes", "8"], ["--all"], ["--fault", "0:0.5:1:2"], ["--plot", "a.svg"]:
        said = subprocess.run([SIMULATE, MACHINE, "--trace", "allgather.json", *more], capture_output=True, text=True,
                              check=False)
        assert said.returncode > 1 and "--trace" in said.stderr, said
    with open("no.json", "w", encoding="utf-8") as file:
        file.write('{"traceEvents":[\n{"ph":1},\n]}\n')
    assert "no.json:2: " in run([SIMULATE, MACHINE, "--trace", "no.json"], code=1)
    with open("empty.json", "w", encoding="utf-8") as file:
        file.write('{"traceEvents":[\n{"ph":"M","name":"end","pid":0}\n]}\n')
    assert "empty.json: there is no call that can be predicted" in run([SIMULATE, MACHINE, "--trace", "empty.json"],
                                                                       code=1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_collectives()
        check_what_has_no_prediction()
        check_refusals()
        os.chdir("/")


main()
