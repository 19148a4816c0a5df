#!/usr/bin/env python3
"""Kills or stops a rank, or cuts a rail, in the middle of a training on FLX, and judges what comes of it.

    PYTHONPATH=build/release/python apps/torch/fashion_faults.py                       one of each
    PYTHONPATH=build/release/python apps/torch/fashion_faults.py kill --times 30       30 of one kind

kill    SIGKILL to a rank: all others get an exception that names it, within a second
stop    SIGSTOP, and SIGCONT --seconds later: the training goes on, no error is printed, and losses and weights are
        those of an undisturbed run, to the last bit
cut     between two emulated hosts (ci/rails, as root) a rail is cut, and restored --seconds later: the same is asked,
        and that FLX says that it lost the rail

Rank, rail, host and moment are random (--seed). kill and stop happen on this host, or with --hosts 2 on emulated ones.
Each is in a training of its own, or with --together N so many of stop and of cut are in one, a part of --steps steps
for each.
The exit code is 1 where something else happened, 77 where it cannot be tried here.
"""
import argparse
import json
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from fashion_ranks import Bed, NoBed, Ranks, RATES  # noqa: E402

KINDS = ["kill", "stop", "cut"]
WITHIN_S = 1.0
LOST_WITHIN_S = 5.0
TROUBLE = re.compile(r"flx error|lost at \d|Traceback|FAIL")


class Unlike(Exception):
    """What happened instead of what was asked."""


def losses_of(path):
    found = json.loads(path.read_text())
    return found["losses"], found["hashes"]


class Trial:
    """Runs of one placement, and what an undisturbed one found."""

    def __init__(self, options, folder, bed):
        self.options, self.bed, self.file = options, bed, pathlib.Path(folder) / "losses.json"
        self.undisturbed = None

    def start(self):
        self.file.unlink(missing_ok=True)
        words = ["--backend", "flx", "--steps", self.options.steps * self.options.together, "--turns", 0, "--every", 1,
                 "--json", self.file, "--hidden", self.options.hidden]
        words += ["--data", self.options.data] if self.options.data else []
        return Ranks(self.options.ranks, words, self.bed)

    def reference(self):
        with self.start() as ranks:
            codes = ranks.end()
        if codes != [0] * self.options.ranks:
            raise SystemExit(f"the undisturbed training ended with {codes}:\n{ranks.text()}")
        self.undisturbed = losses_of(self.file)

    def middle(self, ranks, part=0):
        """Waits for a moment in the middle of a part of the training."""
        ranks.reach(part * self.options.steps + random.randint(self.options.steps // 6, self.options.steps // 3))
        time.sleep(random.uniform(0, 0.05))

    def goes_on(self, ranks):
        """Ends as if nothing had been, but for warnings. The number of those."""
        codes = ranks.end()
        if codes != [0] * self.options.ranks:
            raise Unlike(f"exit codes {codes}")
        if said := [line for line in ranks.text().splitlines() if TROUBLE.search(line)]:
            raise Unlike(said[0])
        if losses_of(self.file) != self.undisturbed:
            raise Unlike("losses or weights are not those of the undisturbed training")
        return ranks.text().count("flx warning")

    def kill(self, ranks):
        victim = random.randrange(self.options.ranks)
        self.middle(ranks)
        began = time.monotonic()
        ranks.signal(victim, signal.SIGKILL)
        codes = ranks.end(20)
        took = []
        for rank in range(self.options.ranks):
            if rank == victim:
                continue
            said = [line for line in ranks.lines[rank] if line.startswith("lost at ")]
            if codes[rank] != 3 or not said:
                raise Unlike(f"rank {rank} got no exception after the death of rank {victim}: exit code {codes[rank]}")
            if not re.search(rf"\brank {victim} \(pid \d+ on \S+\) died", said[0]):
                raise Unlike(f"rank {rank} does not name rank {victim}: {said[0]}")
            took.append(float(said[0].split()[2].rstrip(":")) - began)
        if max(took) > WITHIN_S:
            raise Unlike(f"rank {victim} was named after {max(took):.2f} s")
        return [(max(took), f"rank {victim} named by all others after at most {max(took):.3f} s")]

    def stop(self, ranks):
        found = [self.stop_once(ranks, part) for part in range(self.options.together)]
        warnings = self.goes_on(ranks)
        return [(took, f"{text}, {warnings} warnings in this training") for took, text in found]

    def stop_once(self, ranks, part):
        victim = random.randrange(1, self.options.ranks)  # rank 0 says which step it is at
        self.middle(ranks, part)
        ranks.signal(victim, signal.SIGSTOP)
        time.sleep(self.options.seconds)
        before = ranks.steps()
        time.sleep(0.2)
        if ranks.steps() != before:
            raise Unlike(f"the others went on while rank {victim} was stopped")
        began = time.monotonic()
        ranks.resume(victim)
        ranks.reach(before + 1)
        took = time.monotonic() - began
        return took, f"rank {victim} stopped {self.options.seconds} s after step {before}; the next {took:.3f} s later"

    def cut(self, ranks):
        found = [self.cut_once(ranks, part) for part in range(self.options.together)]
        self.goes_on(ranks)
        return found

    def cut_once(self, ranks, part):
        rail, host = random.randint(1, RATES.count(",") + 1), random.randint(1, self.bed.hosts)
        self.middle(ranks, part)
        lost = rf"flx warning.*rail{rail}\b.* lost"
        first, before = ranks.steps(), len(re.findall(lost, ranks.text()))
        self.bed("cut", rail, host)
        try:
            until = time.monotonic() + max(self.options.seconds, LOST_WITHIN_S)
            time.sleep(self.options.seconds)
            while (said := len(re.findall(lost, ranks.text())) - before) == 0 and time.monotonic() < until:
                time.sleep(0.05)
            steps = ranks.steps()
        finally:
            self.bed("restore", rail, host)
        if steps >= self.options.steps * self.options.together:
            raise Unlike(f"the training was over before the rail was back; it takes more --steps than {steps}")
        if not said:
            raise Unlike(f"FLX said nothing of rail{rail} while it was cut")
        return steps - first, (f"rail{rail} of host {host} cut {self.options.seconds} s after step {first}: "
                               f"{steps - first} steps meanwhile, {said} ranks lost it")

    def judge(self, kind):
        """(figures and sentences, the only sentence where it went wrong)"""
        with self.start() as ranks:
            try:
                return getattr(self, kind)(ranks), ""
            except (Unlike, RuntimeError) as what:
                ranks.kill()
                return [], f"{what}\n{ranks.text()[-4000:]}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"some of {', '.join(KINDS)} (all)")
    parser.add_argument("--times", type=int, default=1, help="of each (1)")
    parser.add_argument("--together", type=int, default=1, help="stops and cuts in one training (1)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hosts", type=int, choices=[1, 2], default=1, help="for kill and stop; 2: emulated (1)")
    parser.add_argument("--steps", type=int, default=300, help="of each training (300)")
    parser.add_argument("--hidden", type=int, default=256, help="as of fashion.py (256)")
    parser.add_argument("--seconds", type=float, default=2, help="that a rank is stopped or a rail is cut (2)")
    parser.add_argument("--data", help="as of fashion.py")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"no fault '{kind}'; there are {', '.join(KINDS)}")
    if options.ranks < 2 or options.ranks % 2 or options.times < 1 or options.steps < 12 or options.seconds <= 0:
        parser.error("it takes an even number of ranks, 12 steps or more, and numbers above 0")
    if options.together < 1 or options.times % options.together:
        parser.error("--times has to be a multiple of --together")
    options.kinds = options.kinds or KINDS
    return options


def several(options, kinds, folder, bed):
    """Whether all went as asked."""
    trial = Trial(options, folder, bed)
    if kinds != ["kill"]:
        trial.reference()
    right = True
    for kind in kinds:
        figures = []
        for run in range(options.times if kind == "kill" else options.times // options.together):
            found, wrong = trial.judge(kind)
            figures += [figure for figure, _ in found]
            for text in [text for _, text in found] or [f"wrong: {wrong}"]:
                print(f"{kind}, training {run + 1}: {text}", flush=True)
        what = {"kill": "s until all have the exception", "stop": "s until the next step", "cut": "steps during a cut"}
        spread = (f"; {what[kind]}: {min(figures):.3g} to {max(figures):.3g}, median {statistics.median(figures):.3g}"
                  if figures else "")
        print(f"{kind}, {2 if bed else 1} host(s), {options.ranks} ranks: {len(figures)} of {options.times} as asked"
              f"{spread} (seed {options.seed})", flush=True)
        right = right and len(figures) == options.times
    return right


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # through `with`, so that ranks end, too
    random.seed(options.seed)
    here = [kind for kind in options.kinds if kind != "cut" and options.hosts == 1]
    apart = [kind for kind in options.kinds if kind not in here]
    right = True
    with tempfile.TemporaryDirectory() as folder:
        if here:
            right = several(options, here, folder, None)
        if apart:
            try:
                with Bed(folder) as bed:
                    right = several(options, apart, folder, bed) and right
            except NoBed as why:
                print(f"skipped: {', '.join(apart)}: {why}")
                return 77 if right else 1
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
