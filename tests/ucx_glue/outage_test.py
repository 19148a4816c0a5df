#!/usr/bin/env python3
"""Cuts the rails of emulated hosts while outage_ranks calls collectives, and judges what came of it.

    outage_test.py BED OUTAGE_RANKS SCENARIO HOSTS [RANKS]

RANKS: of each host; 1 by default, other numbers are for `outages` and `storm`. BED is ci/rails. SCENARIO: `outages` (a slow rail, a cut, a silent loss, all come back), `probing` (the same while the communicator is made), `alone` (every rail to one host is gone, for
good), `impatient` (the same, with a deadline that is the communicator's own), `relay` (every rail between two hosts is gone, but both reach the third), `subset` (FLX_LINKS leaves out a rail that works: with 2 hosts, those that it names are lost
one by one; with 3, they are lost between two hosts), `directions` (silent losses of one direction alone), `ipv6` (the same, and a cut, over rails that have addresses of IPv6 alone), `routed` (rails of networks that a router joins), `storm` (cuts, losses and returns at random; longer with FLX_TEST_FULL=1).
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

RATES = "400,200,100"
RAILS = 3
BYTES = 2 << 20
EACH = int(sys.argv[5]) if len(sys.argv) > 5 else 1  # ranks of a host


class Bed:
    def __init__(self, script, hosts, options=(), rates=RATES):
        self.script = script
        self.name = f"outage{os.getpid()}"
        made = subprocess.run([script, "--bed", self.name, "create", "--owner", str(os.getpid()), *options, str(hosts), rates],
                              capture_output=True, text=True)
        if made.returncode == 77:
            print(made.stderr.strip().replace("ci/rails: ", ""))
            sys.exit(77)
        if made.returncode != 0:
            sys.exit(made.stderr)
        usage = subprocess.run([script, "help"], capture_output=True, text=True).stdout
        self.managed = "--mgmt" in usage  # a network that mpirun may use and nobody cuts

    def __call__(self, *command):
        subprocess.run([self.script, "--bed", self.name, *map(str, command)], check=True)

    def destroy(self):
        subprocess.run([self.script, "--bed", self.name, "destroy"], check=False)


class Run:
    """outage_ranks on the bed; its lines as they come."""

    def __init__(self, bed, hosts, program, seconds, knobs, pause_ms=0, until=None, size=BYTES):
        command = [bed.script, "--bed", bed.name, "mpirun", "-n", str(hosts * EACH), "--per-host", str(EACH)]
        command += ["--mgmt"] if bed.managed else []
        command += ["--", program, str(seconds), str(size), str(pause_ms), *([until] if until else [])]
        self.lines = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=os.environ | knobs)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.wait_for("making")

    def wait_for(self, word, limit=60):
        end = time.time() + limit
        while not any((line + " ").startswith(word + " ") for line in self.lines):
            if self.process.poll() is not None or time.time() > end:
                self.fail(f"no line \"{word}\" after {limit} s")
            time.sleep(0.02)

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def starting(self, word):
        return [line.split(" ") for line in self.lines if line.startswith(word + " ")]

    def end(self, limit):
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.fail(f"it hangs: no end after {limit} s")
        self.reader.join()

    def fail(self, why):
        print("\n".join(line for line in self.lines if not line.startswith("op ")))
        if self.process.poll() is None:
            self.process.kill()
        raise AssertionError(why)

    def expect_right(self, hosts):
        ends = self.starting("end")
        if len(ends) != hosts * EACH or any(end[3] != "0" or end[4] != "fine" for end in ends):
            self.fail("wrong results, or not all ranks reached the end")

    def count(self, *texts):
        return sum(all(text in line for text in texts) for line in self.lines)

    def wait_for_operation(self, began, limit=40):
        """Whether one ended after `began` within so many seconds from now."""
        end = time.time() + limit
        while time.time() < end and self.process.poll() is None:
            if any(float(op[1]) + float(op[2]) > began for op in self.starting("op")):
                return True
            time.sleep(0.02)
        return False

    def wait_until_said(self, *texts, limit=40, times=1):
        """Whether `times` lines with all of `texts` came within so many seconds."""
        end = time.time() + limit
        while self.count(*texts) < times and time.time() < end and self.process.poll() is None:
            time.sleep(0.02)
        return self.count(*texts) >= times


def outages(bed, program, hosts):
    folder = tempfile.TemporaryDirectory(dir=pathlib.Path(program).parent)  # one that all hosts see
    enough = pathlib.Path(folder.name) / "enough"
    run = Run(bed, hosts, program, 150, {}, until=enough)
    run.wait_for("begin")
    time.sleep(1)
    bed("rate", 1, int(RATES.split(",")[0]) // 8)
    if not run.wait_until_said("rail1", "slowed to", "Mbit/s: share"):
        run.fail("nobody said that rail1 slowed down")
    if run.count("rail rail"):
        run.fail("a rail is called a rail twice")
    bed("rate", 1, RATES.split(",")[0])
    gone = []  # (from, to) of each outage
    for do, undo, where in (("cut", "restore", (1,)), ("blackhole", "unblackhole", (2, 2))):
        time.sleep(1)
        bed(do, *where)
        began = time.time()
        time.sleep(3)
        gone.append((began, time.time()))
        bed(undo, *where)
        if not run.wait_until_said(f"rail{where[0]}", " lost ("):
            run.fail(f"nobody said that rail{where[0]} was lost")
        if not run.wait_until_said(f"rail{where[0]}", "is back"):
            run.fail(f"rail{where[0]} did not come back")
    if run.count("chunks re-sent over rail") == 0:
        run.fail("nobody said where chunks were sent again")
    time.sleep(0.5)
    enough.touch()
    run.end(120)
    run.expect_right(hosts)
    # Operations go on without the rail. On a busy machine 2.5 s of 3 are time enough to notice.
    for began, ended in gone:
        finished = [op for op in run.starting("op") if began + 0.5 < float(op[1]) + float(op[2]) < ended]
        if not finished:
            run.fail("no operation ended while a rail was gone")
    print("longest operation: %.2f s" % max(float(op[2]) for op in run.starting("op")))


def directions(bed, program, hosts, more=()):
    """One direction of a rail swallows everything while the other works: chunks vanish and nobody misses them, or all
    arrive and no acknowledgement does. Each in turn, for the process that mends a connection and for the one that
    follows."""
    folder = tempfile.TemporaryDirectory(dir=pathlib.Path(program).parent)  # one that all hosts see
    enough = pathlib.Path(folder.name) / "enough"
    run = Run(bed, hosts, program, 150, {}, until=enough)
    run.wait_for("begin")
    for rail, host, direction in ((1, 2, "in"), (2, 1, "in"), (1, 2, "out"), (3, 1, "out"), *more):
        lost, back = (run.count(f"rail{rail} to", text) for text in (" lost (", "is back"))
        began = time.time()
        bed(*(("cut", rail, host) if direction == "at all" else ("blackhole", rail, host, direction)))
        if not run.wait_until_said(f"rail{rail} to", " lost (", times=lost + hosts):
            run.fail(f"rail{rail} was not lost at both ends, though nothing gets {direction} at host {host}")
        took = time.time() - began
        if not run.wait_for_operation(began=time.time() + 0.2):
            run.fail(f"no operation ended while nothing got {direction} at host {host} on rail{rail}")
        bed("restore" if direction == "at all" else "unblackhole", rail, host)
        if not run.wait_until_said(f"rail{rail} to", "is back", times=back + hosts):
            run.fail(f"rail{rail} did not come back")
        print(f"rail{rail}, nothing {direction} at host {host}: lost at both ends after {took:.1f} s")
    enough.touch()
    run.end(120)
    run.expect_right(hosts)


def ipv6(bed, program, hosts):
    """Rails that have addresses of IPv6 alone; one of them also goes down and comes back."""
    directions(bed, program, hosts, more=((2, 1, "at all"),))


def routed(bed, program, hosts):
    """Each host has networks of its own, which a router joins."""
    if not bed.managed:
        print("skipped: the bed has no network beside the rails")
        sys.exit(77)
    folder = tempfile.TemporaryDirectory(dir=pathlib.Path(program).parent)  # one that all hosts see
    enough = pathlib.Path(folder.name) / "enough"
    run = Run(bed, hosts, program, 150, {}, until=enough)
    run.wait_for("begin")
    if not run.wait_for_operation(began=time.time() + 0.5):
        run.fail("no operation ended")
    for rail in range(1, RAILS + 1):
        if payload(bed, rail) < 1:
            run.fail(f"rail{rail} carries nothing, though routers join its networks")
    bed("cut", 1, 2)
    if not run.wait_until_said("rail1 to", " lost (") or not run.wait_for_operation(began=time.time() + 0.5):
        run.fail("operations do not go on without rail1")
    bed("restore", 1, 2)
    if not run.wait_until_said("rail1 to", "is back"):
        run.fail("rail1 did not come back")
    enough.touch()
    run.end(120)
    run.expect_right(hosts)
    # Where one host has no route, nobody's device is used, and all say why.
    bed("exec", 1, "ip", "route", "del", "10.101.0.0/16")
    info = pathlib.Path(program).parent / "flx_info"
    said = subprocess.run([bed.script, "--bed", bed.name, "mpirun", "-n", str(hosts), "--mgmt", "--", str(info)],
                          capture_output=True, text=True, timeout=100).stdout
    for text in ("rail2        on", "no other host is on its network (tcp 10.101.1.0/24); no route by it to 10.101.2.2"):
        if text not in said:
            run.fail(f"flx_info does not say \"{text}\":\n{said}")


def probing(bed, program, hosts):
    """A rail goes while the communicator is made, and comes back much later."""
    for do, delay in (("cut", 0.05), ("blackhole", 0.2), ("cut", 0.6), ("blackhole", 1.0)):
        run = Run(bed, hosts, program, 2, {"FLX_PROBE_MS": "1500"})
        time.sleep(delay)
        bed(do, 2, 2)
        run.wait_for("begin", 20)
        run.end(30)
        bed({"cut": "restore", "blackhole": "unblackhole"}[do], 2, 2)
        run.expect_right(hosts)


def alone(bed, program, hosts, knob="FLX_DEADLINE"):
    if not bed.managed:
        print("skipped: the bed has no network beside the rails")
        sys.exit(77)
    run = Run(bed, hosts, program, 60, {knob: "3"})
    run.wait_for("begin")
    time.sleep(1)
    for rail in range(1, RAILS + 1):
        bed("cut", rail, 2)
    began = time.time()
    run.end(60)
    errors = run.starting("error")
    if len(errors) != hosts:
        run.fail(f"{len(errors)} of {hosts} ranks have an error")
    text = "\n".join(" ".join(error) for error in errors)
    for part in ("rank 1 ", "h2", "rail1", "rail2", "rail3", " B "):
        if part not in text:
            run.fail(f"no error names {part}")
    took = max(float(e[2]) for e in errors) - began
    if took > 15:  # the default is 30
        run.fail(f"error after {took:.1f} s")
    print("error after %.1f s: %s" % (took, " ".join(errors[0][3:])))


def oneway(bed, program, hosts):
    """Bytes that go one way are complete for their sender when they are copied for a rail. Where all rails are silent
    for a second the receiver waits, and nothing else."""
    run = Run(bed, hosts, program, 6, {"FLX_TEST_ONE_WAY": "1"}, size=16000)
    run.wait_for("begin")
    for _ in range(2):
        time.sleep(1)
        for rail in range(1, RAILS + 1):
            bed("blackhole", rail)
        time.sleep(1)
        for rail in range(1, RAILS + 1):
            bed("unblackhole", rail)
    run.end(60)
    run.expect_right(hosts)


def impatient(bed, program, hosts):
    alone(bed, program, hosts, "FLX_TEST_DEADLINE")


def relay(bed, program, hosts):
    if not bed.managed:
        print("skipped: the bed has no network beside the rails")
        sys.exit(77)
    run = Run(bed, hosts, program, 13, {})
    run.wait_for("begin")
    gone = []
    for do, undo in (("cut", "restore"), ("blackhole", "unblackhole")):
        time.sleep(1)
        bed(do, 3)
        began = time.time()
        time.sleep(3.5)
        gone.append((began, time.time()))
        bed(undo, 3)
        time.sleep(1.5)
    run.end(120)
    run.expect_right(hosts)
    for began, ended in gone:
        finished = [op for op in run.starting("op") if began + 1 < float(op[1]) + float(op[2]) < ended]
        if not finished:
            run.fail("no operation ended while two hosts had no rail between them")
        print("%d operations in %.1f s through the third host" % (len(finished), ended - began - 1))
    for text in ("relaying through h2", "no longer relaying", "is back"):
        if run.count(text) == 0:
            run.fail(f'nobody said "{text}"')
    print("longest operation: %.2f s" % max(float(op[2]) for op in run.starting("op")))


def payload(bed, rail):
    """MiB that all hosts have sent over the rail."""
    rows = subprocess.run([bed.script, "--bed", bed.name, "stats"], capture_output=True, text=True, check=True).stdout
    return sum(int(row.split(",")[2]) for row in rows.split()[1:] if row.split(",")[1] == str(rail)) / (1 << 20)


def subset(bed, program, hosts):
    if not bed.managed:
        print("skipped: the bed has no network beside the rails")
        sys.exit(77)
    deadline = 3
    if hosts == 3:
        folder = tempfile.TemporaryDirectory(dir=pathlib.Path(program).parent)  # one that all hosts see
        enough = pathlib.Path(folder.name) / "enough"
        run = Run(bed, hosts, program, 150, {"FLX_LINKS": "rail1,rail2,rail3"}, until=enough)
        run.wait_for("begin")
        time.sleep(1)
        bed("blackhole", 3)
        began = time.time()
        if not run.wait_until_said("relaying through h2"):
            run.fail("nobody relays, though no rail in FLX_LINKS is left between two hosts")
        time.sleep(1)
        if not run.wait_for_operation(began=time.time()):
            run.fail("no operation ended while others relayed")
        bed("unblackhole", 3)
        if not run.wait_until_said("rail3", "is back") or not run.wait_until_said("no longer relaying"):
            run.fail("rail3 did not come back")
        time.sleep(1)
        enough.touch()
        run.end(60)
        run.expect_right(hosts)
        left_out = 4
    else:
        run = Run(bed, hosts, program, 60, {"FLX_LINKS": "rail1,rail2", "FLX_DEADLINE": str(deadline)})
        run.wait_for("begin")
        time.sleep(1)
        bed("blackhole", 1, 2)
        if not run.wait_until_said("rail1 to", "lost") or run.wait_until_said("re-sent over rail3", limit=0.5):
            run.fail("what rail1 had taken did not go over rail2")
        if not run.wait_for_operation(began=time.time()):
            run.fail("no operation ended while rail1 was gone")
        bed("cut", 2, 1)
        began = time.time()
        run.end(60)
        errors = run.starting("error")
        if len(errors) != hosts:
            run.fail(f"{len(errors)} of {hosts} ranks have an error")
        for error in errors:
            for part in ("rail1 (", "rail2 (", "rail3 works, but is not among"):
                if part not in " ".join(error) and "gave up" not in error:
                    run.fail(f"an error does not say \"{part}\"")
        took = max(float(error[2]) for error in errors) - began
        print("error after %.1f s: %s" % (took, " ".join(errors[0][3:])))
        if took > deadline + 2:  # one of them for a busy machine
            run.fail(f"error after {took:.1f} s")
        left_out = 3
    if payload(bed, left_out) > payload(bed, 1) / 20:  # processes ask each other over all of them whether they live
        run.fail(f"{payload(bed, left_out):.1f} MiB went over rail{left_out}, which FLX_LINKS leaves out")


def storm(bed, program, hosts):
    full = os.environ.get("FLX_TEST_FULL") == "1"
    seconds = 120 if full else 12
    seed = int(os.environ.get("FLX_TEST_SEED", "1"))
    chance = random.Random(seed)
    folder = tempfile.TemporaryDirectory(dir=pathlib.Path(program).parent)  # one that all hosts see
    enough = pathlib.Path(folder.name) / "enough"
    run = Run(bed, hosts, program, seconds + 100, {}, until=enough)
    run.wait_for("begin")
    end = time.time() + seconds - 4
    undo = {}
    events = 0
    # On a busy machine an event takes seconds, and a storm of two of them is none.
    while (time.time() < end or events < 8) and run.process.poll() is None:
        events += 1
        time.sleep(chance.uniform(0.1, 1.0 if not full else 2.0))
        rail = chance.randint(2, RAILS)  # the first stays whole, so that nobody is ever cut off
        host = chance.randint(1, hosts)
        if (rail, host) in undo:
            bed(undo.pop((rail, host)), rail, host)
        elif chance.random() < 0.3:
            bed("rate", rail, chance.choice((25, 50, 100, 200)))
        else:
            do, back = chance.choice((("cut", "restore"), ("blackhole", "unblackhole")))
            bed(do, rail, host)
            undo[(rail, host)] = back
    for (rail, host), back in undo.items():
        bed(back, rail, host)
    time.sleep(3)
    enough.touch()
    run.end(seconds + 120)
    run.expect_right(hosts)
    operations = run.starting("op")
    print("seed %d: %d operations, longest %.2f s, %d losses, %d returns" %
          (seed, len(operations), max(float(op[2]) for op in operations), run.count(" lost ("), run.count(" is back")))
    if run.count(" lost (") == 0:
        run.fail("the storm met nobody")


def main():
    script, program, scenario, hosts = sys.argv[1:5]
    # With `relay`, and `subset` of three, each pair of hosts has a rail of its own.
    options = ["--only", "1:1,2", "--only", "2:2,3", "--only", "3:1,3"] if scenario == "relay" or (scenario, hosts) == ("subset", "3") else []
    if scenario == "routed":
        options = [word for rail in range(1, RAILS + 1) for word in ("--routed", str(rail))]
    if scenario == "ipv6":
        options = ["--ipv6"]
    bed = Bed(script, int(hosts), options, RATES + ",400" if (scenario, hosts) == ("subset", "3") else RATES)
    try:
        {"outages": outages, "probing": probing, "alone": alone, "impatient": impatient, "oneway": oneway, "relay": relay, "subset": subset, "directions": directions, "ipv6": ipv6, "routed": routed, "storm": storm}[scenario](bed, program, int(hosts))
    finally:
        bed.destroy()


main()
