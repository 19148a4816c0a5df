#!/usr/bin/env python3
"""flx_top looks at ranks on several hosts at once, which are emulated: top_hosts_test.py RAILS HANG FLX_TOP"""

import json
import os
import subprocess
import sys
import time

RAILS, HANG, TOP = sys.argv[1:4]


def rails(*words):
    run = subprocess.run([RAILS, *words], capture_output=True, text=True, timeout=60, check=False)
    if run.returncode == 77:
        print(run.stdout + run.stderr)
        sys.exit(77)
    assert run.returncode == 0, (words, run.stdout, run.stderr)
    return run.stdout


def look(hosts, *options, reach=RAILS + " exec {}"):
    return subprocess.run([TOP, "--hosts", hosts, "--reach", reach, *options], capture_output=True, text=True, timeout=60,
                          check=False)


def until(condition, what):
    for _ in range(100):
        if result := condition():
            return result
        time.sleep(0.3)
    raise AssertionError(f"not within 30 s: {what}")


def expect(how, trouble, *parts):
    program = subprocess.Popen(
        [RAILS, "mpirun", "--mgmt", "-n", "4", "--per-host", "2", "-x", "FLX_CACHE=none", "--", HANG, how, "3"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )

    def found():
        run = look("1,2", "--json")
        assert run.returncode == 0, run.stderr
        said = json.loads(run.stdout)
        return said if said["findings"] and len(said["jobs"][0]["ranks"]) == 4 else None

    try:
        said = until(found, f"{how} is named")
        time.sleep(1)  # what is found at first may be a rank that has not come so far
        said = found()
        assert [row["host"] for row in sorted(said["jobs"][0]["ranks"], key=lambda row: row["rank"])] == [
            "h1", "h1", "h2", "h2"], said
        finding = said["findings"][0]
        assert finding["trouble"] == trouble and len(said["findings"]) == 1, said["findings"]
        for part in parts:
            assert part in finding["sentence"], finding
        text = look("1,2", "--explain").stdout
        assert " h1 " in text and " h2 " in text and f"{trouble}: " in text, text
        # One host alone knows less, and so does who cannot reach the other one.
        run = look("1,9", "--explain")
        assert run.returncode == 1 and "Host 9 says nothing: the command that leads there has ended (" in run.stderr, run
        assert run.stderr.count("\n") == 1, "what the command says beside its answers is in that sentence alone: " + run.stderr
        assert " h2 " not in run.stdout and "rank 0" in run.stdout, run.stdout
        # One that is silent takes its time, and not that of the next.
        run = look("9,2", "--explain", reach=f"if [ {{}} = 9 ]; then trap '' TERM; exec sleep 60; fi; exec {RAILS} exec {{}}")
        assert run.returncode == 1 and "Host 9 says nothing: it did not answer within 10 s" in run.stderr, run
        assert "rank 3" in run.stdout, run.stdout
    finally:
        for host in "12":
            subprocess.run([RAILS, "exec", host, "pkill", "-9", "-x", "hang"], check=False)
        program.wait(timeout=60)
        for host in "12":
            subprocess.run([RAILS, "exec", host, "sh", "-c", "rm -f /dev/shm/calls-of-flx.*"], check=False)


for wrong in "-oProxyCommand=x", "a;b", "$(x)", "":
    run = look(wrong, "--json")
    assert run.returncode != 0 and not run.stdout, run
os.environ["RAILS_BED"] = rails("create", "2", "200,100", "--owner", str(os.getpid())).split()[-1]
try:
    expect("sleep", "late", "for rank 3 (pid ", " on h2), which left its last call", "sleeps")
    expect("stop", "stopped", "for rank 3 (pid ", " on h2), which is stopped")
finally:
    rails("destroy")
