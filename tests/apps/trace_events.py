"""A trace as its reader takes it: whether each event has what its kind must have."""

import json

MEMBERS = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "b": {"name", "cat", "id", "pid", "tid", "ts", "args"},
    "e": {"name", "cat", "id", "pid", "tid", "ts"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "cat", "s", "pid", "tid", "ts"},
    "M": {"name", "pid"},
}


def read(file):
    with open(file, encoding="utf-8") as text:
        trace = json.load(text)
    for event in trace["traceEvents"]:
        assert MEMBERS[event["ph"]] <= set(event), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0, event
    return trace


def calls_of(trace, rank, communicator=1):
    return [
        event
        for event in trace["traceEvents"]
        if event.get("cat") == "call" and event["pid"] == rank and event["tid"] == communicator
    ]
