#!/usr/bin/env python3
"""A trace of ranks on several hosts, which are emulated and so have one clock: what is measured of their clocks can be
compared with what is so. traced_hosts_test.py RAILS FLX_PERF"""

import json
import os
import subprocess
import sys
import tempfile

RAILS, PERF = sys.argv[1:3]
HOSTS = 2
MOST_US = 20

with tempfile.TemporaryDirectory() as folder:
    run = subprocess.run(
        [RAILS, "once", str(HOSTS), "800,400", "-n", "2", "--per-host", "1", "-x", "FLX_TRACE=trace.json",
         "-x", "FLX_PARTITION=rail1:.6,rail2:.4", "--", PERF, "allreduce", "--sizes", "8,4M", "--iterations", "5",
         "--warmup", "1"],
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
assert said["ranks"] == 2 and said["hosts"] == HOSTS and not said["notes"], said
for clock in said["clocks"]:
    print(f"{clock['host']}: {clock['offset_us']:.1f} us +- {clock['error_us']:.1f}, drift {clock['drift_ppm']:.2f} ppm")
    assert abs(clock["offset_us"]) <= clock["error_us"] + 0.001, clock
    assert abs(clock["offset_us"]) <= MOST_US, clock
carried = [event for event in trace["traceEvents"] if event.get("cat") == "link" and event["ph"] == "X"]
links = {event["args"]["link"] for event in carried if event["args"]["bytes"] > 100_000}
assert len(links) >= 2, links
assert {link["name"] for link in said["links"]} >= links, said["links"]
shares = [event for event in trace["traceEvents"] if event["ph"] == "C"]
assert any(0.1 < share < 0.9 for event in shares for share in event["args"].values()), shares[:5]
