#!/usr/bin/env python3
"""Archives of OTF2 beside the traces that they are made of, read by otf2-print:
otf2_test.py LAUNCHER HANG FLX_TOP FLX_TRACE FLX_PERF"""

import collections
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from hanging import LAUNCHER, RANKS, Hang, until

TRACE, PERF = sys.argv[4:6]
ROOTED = {"bcast", "reduce", "gather", "scatter", "gatherv", "scatterv"}
EVENT = re.compile(r"^([A-Z_]+) +(\d+) +(\d+)(?:  (.*))?$")
NAMED = re.compile(r'^"(.*)" <(\d+)>$')


def convert(file, folder):
    return subprocess.run([TRACE, "--otf2", folder, file], capture_output=True, text=True, timeout=100, check=False)


def fields_of(text):
    """`Region: "flx_bcast" <0>, Root: 2` as a dictionary."""
    return dict(re.findall(r'(?:^|, )([A-Z][A-Za-z. ]*): ("(?:[^"])*" <\d+>|[^,]*)', text or ""))


class Archive:
    """What otf2-print says of it."""

    def __init__(self, folder):
        anchor = os.path.join(folder, "traces.otf2")
        self.definitions = self.print("-G", anchor)
        self.regions, self.groups, self.communicators = {}, {}, {}
        self.events = collections.defaultdict(list)  # by location
        last = None
        for line in self.print(anchor).splitlines():
            if line.startswith(" ") and "ADDITIONAL ATTRIBUTES" in line:
                last.update(dict(re.findall(r'\("([a-z]+)" <\d+>; [A-Z0-9]+; "?([^;")]*)"?(?: <\d+>)?\)', line)))
                continue
            event = EVENT.match(line)
            if not event:
                continue
            last = {"what": event[1], "at": int(event[3]), **fields_of(event[4])}
            self.events[int(event[2])].append(last)

    @staticmethod
    def print(*arguments):
        run = subprocess.run(["otf2-print", "-Werror", *arguments], capture_output=True, text=True, timeout=100, check=False)
        assert run.returncode == 0 and not run.stderr, (run.returncode, run.stderr, run.stdout[-2000:])
        return run.stdout

    def of(self, location, *kinds):
        return [event for event in self.events[location] if event["what"] in kinds]


def name_of(field):
    return NAMED.match(field)[1]


def compare(trace, archive):
    """Counts, times, communicators, roots and bytes of all calls that block, rank by rank."""
    ranks = {event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"}
    sizes = {}
    for event in trace["traceEvents"]:
        if event["name"] == "communicator":
            sizes[event["pid"], event["tid"]] = event["args"]["rank"], event["args"]["size"]
    for rank in ranks:
        calls = [e for e in trace["traceEvents"] if e["pid"] == rank and e.get("cat") == "call"]
        waits = [e for e in trace["traceEvents"] if e["pid"] == rank and e.get("cat") == "wait"]
        enters = archive.of(rank, "ENTER")
        waited = [event for event in enters if name_of(event["Region"]) == "waits for a rank"]
        called = [event for event in enters if "number" in event]
        assert len(waited) == len(waits), (rank, len(waited), len(waits))
        assert len(called) == len(calls), (rank, len(called), len(calls))
        assert len(archive.of(rank, "LEAVE")) == len(enters)
        for call, event in zip(sorted(calls, key=lambda call: call["ts"]), called):
            assert event["at"] == round(call["ts"] * 1e3), (call, event)
            assert name_of(event["Region"]).removeprefix("flx_") == call["name"].removeprefix("flx_"), (call, event)
            assert int(event["number"]) == call["args"]["number"] and event["way"] == call["args"]["way"], (call, event)
            assert event.get("type") == call["args"].get("type"), (call, event)
        # Records of collectives, by when they ended.
        records = archive.of(rank, "MPI_COLLECTIVE_END")
        ended = [call for call in calls if call["name"] != "messages" and "unfinished" not in call["args"]]
        assert len(records) == len(ended) == len(archive.of(rank, "MPI_COLLECTIVE_BEGIN")), (len(records), len(ended))
        for call, record in zip(sorted(ended, key=lambda call: call["ts"] + call["dur"]), records):
            assert abs(record["at"] - (call["ts"] + call["dur"]) * 1e3) < 2, (call, record)
            assert name_of(record["Communicator"]) == f"communicator {call['tid']}", (call, record)
            place, size = sizes[rank, call["tid"]]
            named = record["Operation"].lower()
            assert named == call["name"] or call["name"] == "flx_comm_free" and named == "destroy_handle", (call, record)
            root, whole = call["args"].get("root"), call["args"].get("bytes", 0)
            assert (call["name"] in ROOTED) == (root is not None), call
            if root is not None:
                assert record["Root"].split()[0] == str(root), (call, record)
            moved = int(record["Sent"]), int(record["Received"])
            if call["name"] == "allreduce":
                assert moved == (whole, whole), (call, record)
            elif call["name"] == "bcast":
                assert moved == ((whole, 0) if place == root else (0, whole)), (call, record)
            elif call["name"] == "allgather":
                assert moved == (whole // size, whole), (call, record)
            elif call["name"] == "barrier":
                assert moved == (0, 0), (call, record)
        times = [event["at"] for event in archive.events[rank]]
        assert times == sorted(times)
    return ranks


def load(file):
    with open(file, encoding="utf-8") as text:
        return json.load(text)


def of_a_run(folder, collective):
    file = os.path.join(folder, f"{collective}.json")
    run = subprocess.run(
        [LAUNCHER, "-n", "3", PERF, collective, "--sizes", "8,64K", "--max-seconds", "0.05"], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "FLX_TRACE": file},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    made = convert(file, file + ".otf2")
    trace = load(file)
    calls = [event for event in trace["traceEvents"] if event.get("cat") == "call"]
    assert made.returncode == 0 and made.stdout == f"{file}.otf2/traces.otf2: {len(calls)} calls of 3 ranks\n", made
    archive = Archive(file + ".otf2")
    assert compare(trace, archive) == {0, 1, 2}
    for name in (f'"flx_{collective}"', '"communicator 1"', "3 Members: 0 (", "Ticks per Seconds: 1000000000"):
        assert name in archive.definitions, (name, archive.definitions)
    print(f"{collective}: {len(calls)} calls")


def of_parts(folder):
    file = os.path.join(folder, "killed.json")
    with Hang("sleep", FLX_TRACE=file, FLX_LATE_WARNING="600") as hang:
        time.sleep(0.3)
        os.kill(hang.pid_of(2), signal.SIGKILL)
        until(lambda: hang.run.poll() is not None, "the launcher ends the others")
        made = convert(file, os.path.join(folder, "killed"))
    assert made.returncode == 0 and made.stdout.count(f"of {RANKS} ranks") == 2, made
    assert compare(load(file), Archive(os.path.join(folder, "killed"))) == set(range(RANKS))


def event_text(**members):
    return json.dumps(members)


def write(file, *events):
    with open(file, "w", encoding="utf-8") as text:
        text.write('{"otherData":{"flx":"0","command":"p","began_since_1970_s":1.5,"clocks":[{"host":"n1","offset_us":0,'
                   '"drift_ppm":0,"error_us":0.25}]},"traceEvents":[\n' + ",\n".join(events) + "\n]}\n")


def communicator(rank, tid, place, size, uid="5f"):
    return event_text(ph="M", name="communicator", pid=rank, tid=tid,
                      args={"communicator": tid, "rank": place, "size": size, "hosts": 1, "first_uid": uid})


def of_all_kinds(folder):
    """A trace by hand: what a short run has not."""
    file, to = os.path.join(folder, "hand.json"), os.path.join(folder, "hand")
    args = {"communicator": 1, "number": 1, "way": "fused", "bytes": 64, "type": "f32"}
    write(
        file,
        event_text(ph="M", name="process_name", pid=0, args={"name": "rank 0 (n1, pid 7)"}),
        communicator(0, 1, 0, 3), communicator(0, 2, 0, 1, "60"),
        event_text(ph="b", cat="nonblocking", id="0.1", name="allreduce", pid=0, tid=1, ts=1, args=args),
        event_text(ph="e", cat="nonblocking", id="0.1", name="allreduce", pid=0, tid=1, ts=9),
        event_text(ph="X", cat="call", name="allreduce", pid=0, tid=1, ts=2, dur=4, args={**args, "number": 2}),
        event_text(ph="X", cat="phase", name="phase 1 of 2", pid=0, tid=1, ts=2, dur=3, args={"number": 2, "bytes": 8}),
        event_text(ph="b", cat="phase", id="0.1", name="phase 1 of 2", pid=0, tid=1, ts=3, args={"number": 1, "bytes": 8}),
        event_text(ph="e", cat="phase", id="0.1", name="phase 1 of 2", pid=0, tid=1, ts=4, args={"number": 1, "bytes": 8}),
        event_text(ph="X", cat="phase", name="between hosts", pid=0, tid=1, ts=5, dur=1, args={"number": 2, "bytes": 8}),
        event_text(ph="b", cat="phase", id="0.1", name="phase 2 of 2", pid=0, tid=1, ts=5.5, args={"number": 1, "bytes": 8}),
        event_text(ph="e", cat="phase", id="0.1", name="phase 2 of 2", pid=0, tid=1, ts=7, args={"number": 1, "bytes": 8}),
        event_text(ph="X", cat="wait", name="waits for rank 1", pid=0, tid=1, ts=3, dur=3.004, args={"peer": 1}),
        event_text(ph="X", cat="call", name="allreduce", pid=0, tid=2, ts=5, dur=3, args={**args, "communicator": 2}),
        event_text(ph="X", cat="link", name="x", pid=0, tid=9, ts=2, dur=1,
                   args={"link": "rail1", "bytes": 100, "MBps": 1, "communicator": 1}),
        event_text(ph="X", cat="link", name="x", pid=0, tid=9, ts=4, dur=1,
                   args={"link": "rail1", "bytes": 50, "MBps": 1, "communicator": 1}),
        event_text(ph="C", name="shares of communicator 1", pid=0, ts=5, args={"rail1": 0.75, "rail2": 0.25}),
        event_text(ph="i", s="p", cat="link", name="rail2 carries nothing", pid=0, tid=9, ts=6),
        event_text(ph="M", name="process_name", pid=1, args={"name": "rank 1 (n2, pid 8)"}), communicator(1, 1, 2, 3),
        event_text(ph="X", cat="call", name="allreduce", pid=1, tid=1, ts=2, dur=4,
                   args={**args, "number": 2, "unfinished": True, "error": "FLX_ERR_PEER"}),
    )
    made = convert(file, to)
    assert made.returncode == 0 and ": 4 calls of 2 ranks" in made.stdout, made
    archive = Archive(to)
    names = [(event["what"], event["at"]) for event in archive.events[0] if event["what"] != "METRIC"]
    assert names == [
        ("ENTER", 1000), ("NON_BLOCKING_COLLECTIVE_REQUEST", 1000), ("LEAVE", 1000),
        ("ENTER", 2000), ("MPI_COLLECTIVE_BEGIN", 2000), ("ENTER", 3000), ("LEAVE", 6000), ("MPI_COLLECTIVE_END", 6000),
        ("LEAVE", 6000), ("NON_BLOCKING_COLLECTIVE_COMPLETE", 9000),
    ], names
    complete = archive.of(0, "NON_BLOCKING_COLLECTIVE_COMPLETE")[0]
    assert (complete["Operation"], complete["Sent"], complete["Received"]) == ("ALLREDUCE", "64", "64"), complete
    beside = [event["what"] for event in archive.events[1 << 32]]
    assert beside == ["ENTER", "MPI_COLLECTIVE_BEGIN", "MPI_COLLECTIVE_END", "LEAVE"], archive.events
    # Phases overlap waits, and those of calls that do not block, so they stand apart.
    phases = [[(event["what"], event["at"], name_of(event["Region"])) for event in archive.events[stack << 32]]
              for stack in (2, 3)]
    assert phases == [[("ENTER", 2000, "phase 1 of 2"), ("LEAVE", 5000, "phase 1 of 2"),
                       ("ENTER", 5000, "between hosts"), ("LEAVE", 6000, "between hosts")],
                      [("ENTER", 3000, "phase 1 of 2"), ("LEAVE", 4000, "phase 1 of 2"),
                       ("ENTER", 5500, "phase 2 of 2"), ("LEAVE", 7000, "phase 2 of 2")]], phases
    assert archive.events[2 << 32][0]["number"] == "2" and archive.events[2 << 32][0]["bytes"] == "8", archive.events[2 << 32]
    # Whose rank died in it has no record of the collective.
    assert [event["what"] for event in archive.events[1]] == ["ENTER", "LEAVE"], archive.events[1]
    assert archive.events[1][0]["unfinished"] == "1" and archive.events[1][0]["error"] == "FLX_ERR_PEER"
    values = [line for line in archive.print(os.path.join(to, "traces.otf2")).splitlines() if "bytes of communicator 1" in line]
    assert [int(re.search(r"; (\d+)[ )]", line)[1]) for line in values] == [0, 100, 100, 150], values
    for text in ('"a rank without a trace"', '"n1"', '"n2"', "FLX::clock::error_us", '"rail1: shares of communicator 1"',
                 "ACCUMULATED_START", "ABSOLUTE_NEXT", '"rank 0, phases"', '"waits for a rank"', '"flx_iallreduce"'):
        assert text in archive.definitions, (text, archive.definitions)
    marks = subprocess.run(["otf2-marker", os.path.join(to, "traces.otf2")], capture_output=True, text=True, check=False)
    assert "rail2 carries nothing" in marks.stdout, marks


def refuse(folder):
    good, there = os.path.join(folder, "good.json"), os.path.join(folder, "there")
    write(good, event_text(ph="X", cat="call", name="barrier", pid=0, tid=1, ts=0, dur=1, args={}))
    os.mkdir(there)
    bad = os.path.join(folder, "bad.json")
    with open(bad, "w", encoding="utf-8") as text:
        text.write("no trace\n")
    mixed, none = os.path.join(folder, "mixed.json"), os.path.join(folder, "none.json")
    call = [event_text(ph="X", cat="call", name="barrier", pid=rank, tid=1, ts=0, dur=1, args={}) for rank in (0, 1, 0)]
    write(mixed, *call)
    for file, to, why in (
        (good, there, f"{there} is there already"),
        (good, good, f"{good} is there already"),
        (good, os.path.join(folder, "no/such/folder"), "cannot be made: No such file or directory"),
        (none, os.path.join(folder, "new"), f"there are no parts of a trace in {none}.parts"),
        (bad, os.path.join(folder, "new"), "this is no trace"),
        (mixed, os.path.join(folder, "new"), "mixed.json:4: the events of rank 0 do not stand together"),
    ):
        run = convert(file, to)
        assert run.returncode == 1 and why in run.stderr and run.stderr.count("\n") == 1, (why, run)
        assert not os.path.exists(os.path.join(folder, "new"))
    assert not os.listdir(there)
    # Where a file can grow no more, what was begun goes. Python ignores the signal, and so do programs that it starts.
    run = subprocess.run(
        [TRACE, "--otf2", os.path.join(folder, "new"), good], capture_output=True, text=True, timeout=100, check=False,
        restore_signals=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
    )
    assert run.returncode == 1 and "new cannot be written: " in run.stderr and run.stderr.count("\n") == 1, run
    assert not os.path.exists(os.path.join(folder, "new"))


with tempfile.TemporaryDirectory() as scratch:
    tried = convert(os.path.join(scratch, "none"), os.path.join(scratch, "archive"))
    if "built without OTF2" in tried.stderr:
        assert tried.returncode == 1 and "libopen-trace-format2-dev" in tried.stderr, tried
        print("skipped: this build has no OTF2; ci/setup --otf2 installs it")
        sys.exit(77)
    refuse(scratch)
    if not shutil.which("otf2-print"):
        print("skipped: there is no otf2-print; ci/setup --otf2 installs it")
        sys.exit(77)
    of_all_kinds(scratch)
    of_a_run(scratch, "allreduce")
    of_a_run(scratch, "bcast")
    of_a_run(scratch, "allgather")
    of_parts(scratch)
