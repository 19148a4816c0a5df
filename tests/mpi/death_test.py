#!/usr/bin/env python3
"""Ranks die, are stopped or are late in the middle of collectives; what the others make of it.

    death_test.py RANKS DEATH_RANKS NO_DATAGRAMS [--seeds N] [--only TEXT]

After a death or a stop longer than the deadline: every other rank gets FLX_ERR_PEER whose sentence names the victim, in
time, then FLX_ERR_COMM, can free the communicator, and nothing is left in /dev/shm. After a short stop, a fork, or while
a rank is late: no error, no wrong element, and for the late rank one warning. The same where datagrams do not come
through ("blocked": NO_DATAGRAMS is preloaded).
"""
import argparse
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import time

ERR_PEER, ERR_COMM = 6, 7
DEADLINE = 2.0
LATE_WARNING = 0.5
DEADLINE_OF_LATE = 0.8  # the rank is late by three times that
KILLED = ("kill", "orphan")
UNHARMED = ("pause", "late", "forks")
LIMIT = 20.0  # s for one run, beyond which it hangs


def segments():
    return {name for name in os.listdir("/dev/shm") if name.startswith("flx-")}


def run(options, ranks, arguments, environment):
    """The lines that were printed, and whether all ranks that should have given a verdict did."""
    event, victim = arguments[0], int(arguments[1])
    wanted = ranks - (1 if event in KILLED else 0)
    command = [options.ranks, "--survivors", "-n", str(ranks), options.program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               env={**os.environ, **environment}, start_new_session=True)
    lines, rest, verdicts = [], b"", 0
    end = time.monotonic() + LIMIT
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    while time.monotonic() < end and verdicts < wanted:
        if not selector.select(0.5):
            continue
        read = os.read(process.stdout.fileno(), 65536)
        if not read:
            break
        *whole, rest = (rest + read).split(b"\n")
        for line in whole:
            lines.append(line.decode(errors="replace"))
            verdicts += lines[-1].startswith("verdict\t")
    try:
        if verdicts == wanted and event in UNHARMED:
            process.wait(10)  # these finalize MPI
        else:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
    except subprocess.TimeoutExpired:
        lines.append("mpirun did not end")
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return lines


def judge(event, victim, ranks, hosts, lines):
    """Complaints, and the times from the event until each rank's error."""
    wrong, times = [], []
    began = next((float(line.split("\t")[1]) for line in lines if line.startswith("event\t")), None)
    if began is None:
        return ["the event did not happen"], times
    verdicts = {}
    for line in lines:
        if line.startswith("verdict\t"):
            _, rank, *rest = line.split("\t", 8)
            verdicts[int(rank)] = rest
    host_of = lambda rank: rank * hosts // ranks
    for rank in range(ranks):
        if rank == victim and event in KILLED:
            continue
        if rank not in verdicts:
            wrong.append(f"rank {rank} hangs")
            continue
        status, when, later, freed, free_s, bad, sentence = verdicts[rank]
        if int(bad):
            wrong.append(f"rank {rank}: {bad} wrong elements")
        if int(freed):
            wrong.append(f"rank {rank}: flx_comm_free gives {freed}")
        if float(free_s) > 2:
            wrong.append(f"rank {rank}: flx_comm_free took {free_s} s")
        if event in UNHARMED:
            if int(status):
                wrong.append(f"rank {rank}: status {status}: {sentence}")
            continue
        if rank == victim and not int(status):
            continue  # what it was stopped in was complete on its side, and it has made no other call
        if int(status) != ERR_PEER:
            wrong.append(f"rank {rank}: status {status}, not FLX_ERR_PEER: {sentence}")
        if not sentence.startswith(f"rank {victim} "):
            wrong.append(f"rank {rank} does not name rank {victim}: {sentence}")
        if int(status) == ERR_PEER and not sentence.endswith((" [FLX-E601]", " [FLX-E602]")):
            wrong.append(f"rank {rank}: not the code of a rank that died or is silent: {sentence}")
        if int(later) != ERR_COMM:
            wrong.append(f"rank {rank}: a later call gives {later}")
        if rank == victim:
            continue
        times.append(float(when) - began)
        near = host_of(rank) == host_of(victim)
        # Half a second for a machine that has more ranks than cores.
        allowed = 1.0 if event == "orphan" or (event == "kill" and near) else DEADLINE + 0.5
        if times[-1] > allowed:
            wrong.append(f"rank {rank}: {times[-1]:.2f} s until the error; {allowed} are allowed")
    if event == "late":
        warnings = [line for line in lines if "it runs, but is late" in line and f"waits for rank {victim} " in line]
        if not 1 <= len(warnings) < ranks:
            wrong.append(f"{len(warnings)} warnings of {ranks - 1} waiting ranks")
    return wrong, times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ranks")
    parser.add_argument("program")
    parser.add_argument("no_datagrams")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)

    cases = []  # event, ranks, hosts, bytes
    for size in (32, 1 << 20, 8 << 20):
        cases.append(("kill", 4, 1, size))
        cases.append(("kill", 4, 2, size))
    cases.append(("kill", 3, 3, 1 << 20))
    cases += [("stop", 3, 1, 32), ("stop", 4, 1, 1 << 20), ("stop", 4, 2, 1 << 20)]
    cases += [("pause", 3, 1, 1 << 20), ("pause", 4, 2, 1 << 20), ("late", 3, 1, 32), ("late", 4, 2, 1 << 20)]
    cases = [(*case, "allreduce") for case in cases]
    cases.append(("kill", 4, 1, 8 << 20, "shared"))  # an allreduce in memory that ranks have mapped
    # Messages that are fetched from where they lie: it is their sender that dies, their receiver, or one that is both.
    cases += [("kill", 2, 1, 4 << 20, "from"), ("kill", 2, 1, 4 << 20, "to"), ("kill", 3, 1, 1 << 20, "ring")]
    cases += [("orphan", 4, 1, 32, "allreduce"), ("orphan", 4, 2, 1 << 20, "allreduce"),
              ("forks", 3, 2, 1 << 20, "allreduce")]
    cases = [(*case, False) for case in cases]
    cases += [("late", 2, 2, 32, "allreduce", True), ("kill", 4, 2, 1 << 20, "allreduce", True)]
    if options.seeds > 1:
        more = [("kill", 3, 1, 4 << 20, "from"), ("kill", 3, 1, 4 << 20, "to"), ("kill", 2, 1, 64 << 10, "from"),
                  ("kill", 2, 1, 64 << 10, "to"), ("stop", 3, 1, 4 << 20, "from"), ("stop", 3, 1, 4 << 20, "to"),
                  ("pause", 3, 1, 4 << 20, "ring")]
        cases += [(*case, False) for case in more]

    environment = {"FLX_DEADLINE": str(DEADLINE), "FLX_LATE_WARNING": str(LATE_WARNING), "FLX_PROBE_MS": "20",
                   "FLX_RAILS": "tcp/lo", "FLX_LINKS": "auto", "OMPI_MCA_btl_base_warn_component_unused": "0"}
    failed = 0
    for seed in range(1, options.seeds + 1):
        chance = random.Random(seed)
        for event, ranks, hosts, size, what, blocked in cases:
            victim, after = chance.randrange(ranks), chance.randrange(20, 500)
            name = f"{event} rank {victim} of {ranks} on {hosts} hosts, {what} {size} B, after {after} ms, seed {seed}"
            name += ", datagrams blocked" if blocked else ""
            if options.only not in name:
                continue
            before = segments()
            # The late rank is late by more than the deadline: that alone must not matter.
            special = {"FLX_DEADLINE": str(DEADLINE_OF_LATE)} if event == "late" else {}
            if blocked:
                special["LD_PRELOAD"] = os.path.abspath(options.no_datagrams)
            began = time.monotonic()
            lines = run(options, ranks, [event, str(victim), str(after), str(size), str(hosts), what],
                        {**environment, **special})
            wrong, times = judge(event, victim, ranks, hosts, lines)
            for _ in range(20):  # other programs' segments have a name for a moment
                if not segments() - before:
                    break
                time.sleep(0.1)
            else:
                wrong.append(f"left in /dev/shm: {segments() - before}")
            spread = f", errors after {min(times):.2f} to {max(times):.2f} s" if times else ""
            print(f"{'FAILED' if wrong else 'ok'}: {name}{spread} ({time.monotonic() - began:.1f} s)", flush=True)
            if wrong or options.verbose:
                print("    " + "\n    ".join(wrong + ["---"] + lines), flush=True)
            failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
