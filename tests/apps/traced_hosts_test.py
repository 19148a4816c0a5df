#!/usr/bin/env python3
"""Traces of ranks on two hosts, which are emulated and so have one clock: what is measured of their clocks can be compared
with what is so. And what a trace says of the phases of a call. traced_hosts_test.py RAILS FLX_PERF"""

import json
import os
import subprocess
import sys
import tempfile

RAILS, PERF = sys.argv[1:3]
HOSTS = 2
MOST_US = 20
LONG = 4 << 20


def traced(ranks, knob):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [RAILS, "once", str(HOSTS), "800,400", "-n", str(ranks), "--per-host", str(ranks // HOSTS), "-x",
             "FLX_TRACE=trace.json", "-x", knob, "--", PERF, "allreduce", "--sizes",
             f"8,{LONG}", "--iterations", "5", "--warmup", "1"],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280, check=False,
        )
        if run.returncode == 77:
            print(run.stdout + run.stderr)
            sys.exit(77)
        assert run.returncode == 0, run.stdout + run.stderr
        file = os.path.join(folder, "trace.json")
        assert os.path.exists(file), os.listdir(folder)
        with open(file, encoding="utf-8") as text:
            trace = json.load(text)
    said = trace["otherData"]
    assert said["ranks"] == ranks and said["hosts"] == HOSTS and not said["notes"], said
    return trace["traceEvents"], said


def clocks_and_links():
    events, said = traced(HOSTS, "FLX_PARTITION=rail1:.6,rail2:.4")
    for clock in said["clocks"]:
        offset, error = clock["offset_us"], clock["error_us"]
        print(f"{clock['host']}: {offset:.1f} us +- {error:.1f}, drift {clock['drift_ppm']:.2f} ppm")
        assert abs(offset) <= error + 0.001, clock
        assert abs(offset) <= MOST_US, clock
    carried = [event for event in events if event.get("cat") == "link" and event["ph"] == "X"]
    links = {event["args"]["link"] for event in carried if event["args"]["bytes"] > 100_000}
    assert links == {"rail1", "rail2"}, links
    assert {link["name"] for link in said["links"]} >= links, said["links"]
    shares = [event for event in events if event["ph"] == "C"]
    assert any(0.3 < share < 0.7 for event in shares for share in event["args"].values()), shares[:5]


def phases_of_calls():
    """Each lies in its call. A short call goes stage by stage, and one rank of each host through both kinds of stage; a
    long one has phases, in which the bytes go that it must send."""
    events, _ = traced(2 * HOSTS, "FLX_ALGORITHM=allreduce:ring@64K-")
    calls = [event for event in events if event.get("cat") == "call" and event["name"] == "allreduce"]
    phases = [event for event in events if event.get("cat") == "phase"]
    for size, names in (8, {"within the host", "between hosts"}), (LONG, {"phase 1 of 2", "phase 2 of 2"}):
        for rank in range(2 * HOSTS):
            own = {
                call["args"]["number"]: call
                for call in calls
                if call["pid"] == rank and call["args"]["bytes"] == size
            }
            parts = [phase for phase in phases if phase["pid"] == rank and phase["args"]["number"] in own]
            if size == 8 and rank % 2 != 0:
                assert not parts, parts
                continue
            assert own and {phase["name"] for phase in parts} == names, (size, rank, parts)
            for phase in parts:
                call = own[phase["args"]["number"]]
                assert call["ts"] <= phase["ts"], (call, phase)
                assert phase["ts"] + phase["dur"] <= call["ts"] + call["dur"] + 0.002, (call, phase)
            sent = sum(phase["args"]["bytes"] for phase in parts) / len(own)
            print(f"rank {rank} sends {sent:.0f} B of an allreduce of {size} B")
            assert sent == (8 if size == 8 else 2 * size * (2 * HOSTS - 1) / (2 * HOSTS)), (size, rank, sent)


clocks_and_links()
phases_of_calls()
