#!/usr/bin/env python3
"""flx_simulate as a whole: simulate_test.py FLX_SIMULATE SOURCE_DIR

Its table and its JSON agree, machines of the source can be read, a latency grows by rounds, a picture is drawn where
gnuplot is installed, and what is wrong is refused."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

PROGRAM = os.path.abspath(sys.argv[1])
MACHINES = os.path.join(os.path.abspath(sys.argv[2]), "apps", "flx_simulate", "machines")


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def check_machines():
    for name in sorted(os.listdir(MACHINES)):
        text = run(os.path.join(MACHINES, name), "barrier", "--hosts", "4", "--sizes", "8")
        assert "barrier" in text and "FLX chooses" in text, text


def check_json():
    machine = os.path.join(MACHINES, "2048x8.toml")
    found = json.loads(run(machine, "allreduce", "allgather", "--hosts", "16", "--sizes", "8,1M", "--json", "-"))
    assert found["machine"]["hosts"] == 16 and found["machine"]["ranks_of_a_host"] == 8
    assert [(cell["collective"], cell["bytes"]) for cell in found["cells"]] == [
        ("allreduce", 8), ("allreduce", 1 << 20), ("allgather", 1 << 20)], "no allgather of 8 bytes among 128 ranks"
    for cell in found["cells"]:
        times = [one["us"] for one in cell["candidates"]]
        assert times == sorted(times)
        chosen = next(one for one in cell["candidates"] if one["name"] == cell["chosen"])
        assert abs(chosen["us"] / times[0] - cell["times"]) < 1e-9
        walked = [one for one in cell["candidates"] if "path_us" in one]
        assert walked
        for one in walked:
            assert abs(sum(one["path_us"].values()) / one["us"] - 1) < 1e-3, one
    # Nothing that lanes send between hosts is sent twice.
    ring = next(one for one in found["cells"][1]["candidates"] if one["name"] == "lanes(direct,ring)")
    assert abs(ring["bytes"]["between_hosts"] / (2 * 15 * (1 << 20)) - 1) < 1e-6


def check_json_beside_a_fault():
    """Standard output is JSON alone."""
    machine = os.path.join(MACHINES, "2048x8.toml")
    found = json.loads(run(machine, "allreduce", "--hosts", "16", "--sizes", "1M", "--json", "-", "--fault",
                           "0:0.5:1:3", "--calls", "5"))
    assert found["machine"]["levels"] == [{"hosts": 32, "taper": 2.0, "hop_ns": 600.0}], found["machine"]
    assert "job" not in found["fault"]
    assert "fault" not in json.loads(run(machine, "allreduce", "--hosts", "16", "--sizes", "1M", "--json", "-"))


def check_json_of_faults():
    """It has what is printed."""
    few = [os.path.join(MACHINES, "2048x8.toml"), "allreduce", "--hosts", "4", "--sizes", "64K,1M", "--calls", "50"]

    def both(*arguments):
        lines = run(*few, *arguments, "--json", "found.json").splitlines()
        with open("found.json", encoding="utf-8") as file:
            return lines[-1 - ("--fault-rate" in arguments):], json.load(file)["fault"]

    def numbers(line):
        return [float(number) for number in re.findall(r"[0-9][0-9.]*(?:e-?[0-9]+)?", line)]

    lines, fault = both("--fault", "1:0.25:10:30", "--fault-rate", "500:24")
    assert [fault[name] for name in ("collective", "bytes", "calls", "rail", "part", "from", "to")] == [
        "allreduce", 1 << 20, 50, 1, 0.25, 10, 30], fault
    lost = fault["lost"]
    assert 0 < lost["best_shares"] <= lost["with_controller"] < lost["without"], fault
    ways = "with_controller", "without", "best_shares"
    printed = numbers(lines[0])
    assert printed[5:8] == [round(100 * lost[way], 2) for way in ways], (lines, fault)
    assert printed[9] == fault["recovered_after"], (lines, fault)  # behind "within 5 %"
    job = fault["job"]
    assert numbers(lines[1]) == [job["parts"], job["between_h"], job["repair_h"], round(100 * job["faulty"], 2)] + [
        round(100 * job["lost"][way], 3) for way in ways], (lines, fault)
    assert (job["parts"], job["between_h"], job["repair_h"]) == (32, 500, 24)

    lines, fault = both("--fault", "host3:0.5:10:20", "--fault-rate", "100:100")
    assert fault["host"] == 3 and "rail" not in fault and "recovered_after" not in fault
    assert set(fault["lost"]) == set(ways) and len(set(fault["lost"].values())) == 1, fault
    assert numbers(lines[0])[5:] == [round(100 * fault["lost"]["without"], 2), round(fault["times"], 2)], (lines, fault)
    assert numbers(lines[1])[-1] == round(100 * fault["job"]["lost"]["without"], 3), (lines, fault)
    assert fault["job"]["parts"] == 4

    lines, fault = both("--fault", "1:0.001:10:11")
    assert "no call came within 5 %" in lines[0] and fault["recovered_after"] is None, (lines, fault)
    lines, fault = both("--fault", "1:0.25:10:30", "--fault-rate", "1e-9:1e-9")
    assert "faults come faster than the controller follows" in lines[1], lines
    assert fault["job"]["lost"]["with_controller"] is None and fault["job"]["lost"]["without"] > 0, fault


def check_faults():
    machine = os.path.join(MACHINES, "2048x8.toml")
    few = [machine, "allreduce", "--hosts", "4", "--sizes", "1M", "--calls", "50"]
    slow = run(*few, "--fault", "host3:0.5:10:20").splitlines()[-1]
    times = float(re.search(r"host 3 at 0.5 of its pace .* a call takes ([0-9.]+) times as long", slow).group(1))
    lost = float(re.search(r"time lost ([0-9.]+) %", slow).group(1))
    assert 1 < times <= 2 and abs(lost - 20 * (times - 1)) < 0.3, slow  # ten calls of fifty
    rate = run(*few, "--fault", "1:0.25:10:30", "--fault-rate", "100:100").splitlines()[-1]
    said = re.fullmatch(r"each of 32 rails has this fault every 100 hours, for 100 hours: there is one during "
                        r"100.00 % of the time; a job of such calls loses ([0-9.]+) % with the controller, "
                        r"([0-9.]+) % without, ([0-9.]+) % .*", rate)
    assert float(said.group(3)) <= float(said.group(1)) + 0.001 and float(said.group(1)) < float(said.group(2)), rate
    hosts = run(*few, "--fault", "host3:0.5:10:20", "--fault-rate", "100:100").splitlines()[-1]
    job = re.search(r"each of 4 hosts .*one during 93.75 % of the time; a job .*loses ([0-9.]+) %", hosts)
    job = float(job.group(1))
    assert abs(job - 100 * (1 / (0.0625 + 0.9375 / times) - 1)) < 0.5, hosts
    often = run(*few, "--fault", "1:0.25:10:30", "--fault-rate", "1e-9:1e-9").splitlines()[-1]
    assert "faults come faster than the controller follows" in often, often
    assert "there are host0 to host3" in run(*few, "--fault", "host4:0.5:10:20", code=1)
    assert '"5" is no BETWEEN:REPAIR' in run(*few, "--fault", "0:0.5:1:2", "--fault-rate", "5", code=1)
    assert "--fault" in run(*few, "--fault-rate", "5:5", code=107)


def check_growth():
    """Short allreduces take rounds between hosts: one for each doubling."""
    machine = os.path.join(MACHINES, "2048x8.toml")

    def best(hosts):
        text = run(machine, "allreduce", "--hosts", str(hosts), "--sizes", "8", "--json", "-")
        return json.loads(text)["cells"][0]["candidates"][0]["us"]

    round_us = best(64) - best(32)
    assert 2 < round_us < 12, round_us
    assert abs(best(512) - best(64) - 3 * round_us) < round_us


def check_picture():
    if shutil.which("gnuplot") is None:
        print("no picture is drawn: gnuplot is not installed")
        return
    machine = os.path.join(MACHINES, "2048x8.toml")
    run(machine, "bcast", "--hosts", "16", "--sizes", "4K", "--plot", "picture.svg")
    assert ElementTree.parse("picture.svg").getroot().tag.endswith("svg")
    # Names are only shown: nothing of them is run, and a quote ends nothing. 
    with open("named.toml", "w", encoding="utf-8") as file:
        file.write("name = \"`touch run-1` $(touch run-2) it's\"\nhosts = 6\nranks = 2\n")
    path = "it's `touch run-3`.svg"
    run("named.toml", "bcast", "--sizes", "4K", "--plot", path)
    drawn = "".join(ElementTree.parse(path).getroot().itertext())
    assert "`touch run-1` $(touch run-2) it's" in drawn, drawn
    assert not [name for name in os.listdir(".") if name.startswith("run-")]


def check_refusals():
    machine = os.path.join(MACHINES, "2048x8.toml")
    assert "cannot be read" in run("nowhere.toml", code=1)
    assert '"allredcue" is none of' in run(machine, "allredcue", code=1)
    with open("wrong.toml", "w", encoding="utf-8") as file:
        file.write("hosts = 4\n[far]\nlatency = 3\n")
    assert "wrong.toml: [far] has no field latency" in run("wrong.toml", code=1)
    assert "no regular file" in run(".", code=1)
    assert "no more than 262144" in run(machine, "--hosts", "65536", code=1)
    assert "no number" in run(machine, "--hosts", "4", "--most-worse", "nan", code=105)
    assert "after the last call" in run(machine, "allreduce", "--fault", "0:0.5:10:20", "--calls", "10", code=1)
    assert "control character" in run(machine, "allreduce", "--hosts", "4", "--plot", "a\nb.svg", code=105)
    assert "there is a call" in run(machine, "alltoall", "--hosts", "4", "--sizes", "8", code=1)
    # Rules that the library would refuse.
    os.environ["FLX_ALGORITHM"] = "allreduce:lanes(direct,rung)"
    assert "allreduce on 32 ranks is served by direct, ring" in run(machine, "--hosts", "4", code=1)
    os.environ["FLX_ALGORITHM"] = "file:nowhere.txt"
    assert "a file that cannot be read" in run(machine, "--hosts", "4", code=1)
    del os.environ["FLX_ALGORITHM"]
    assert "standard output is for --json" in run(machine, "--rules", "-", "--json", "-", code=105)
    assert "machines of several hosts" in run(machine, "--hosts", "1", "--rules", "-", code=1)
    # A collective that is named twice is simulated once.
    assert run(machine, "barrier", "barrier", "--hosts", "4").count("barrier ") == 1
    assert "cannot be written" in run(machine, "barrier", "--hosts", "4", "--rules", "nowhere/rules.txt", code=1)
    # A choice that is worse than it may be is the program's failure: the order of sums follows from nominal costs.
    slow = "hosts = 64\nranks = 8\n[far]\nlatency_ns = 500000\nbandwidth = 0.5\n"
    with open("slow.toml", "w", encoding="utf-8") as file:
        file.write(slow)
    text = run("slow.toml", "reduce_scatter_block", "--sizes", "4M", "--most-worse", "1.05", code=1)
    assert "times as long by" in text, text


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_machines()
        check_json()
        check_json_beside_a_fault()
        check_json_of_faults()
        check_faults()
        check_growth()
        check_picture()
        check_refusals()
        os.chdir("/")


main()
