#!/usr/bin/env python3
"""Trains fashion.py on FLX and on Gloo by turns, on one host and between emulated ones, and makes one table.

    PYTHONPATH=build/release/python apps/torch/fashion_compare.py                    4 ranks, and 2 hosts with 2 each
    PYTHONPATH=build/release/python apps/torch/fashion_compare.py --placements 1x4   one host, without root

Between hosts (ci/rails, as root) Gloo takes the fastest rail; `gloo, all rails` names it all three, which it uses one
after the other, a bucket each. Lines below the table say whether runs of one backend are equal to the last bit. The
exit code is 1 where FLX's are not, where the mean losses of the two are further apart than 1e-3, or where a run
failed; 77 where nothing could be run.
"""
import argparse
import json
import pathlib
import signal
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
from fashion_ranks import Bed, NoBed, Ranks, RATES  # noqa: E402

ALLOWED = 1e-3
RAILS = [f"rail{number + 1}" for number in range(RATES.count(",") + 1)]
BACKENDS = {  # of a placement's hosts: name, and the environment of the ranks
    1: {"flx": {}, "gloo": {"GLOO_SOCKET_IFNAME": "lo"}},
    2: {"flx": {}, "gloo": {"GLOO_SOCKET_IFNAME": RAILS[0]},
        "gloo, all rails": {"GLOO_SOCKET_IFNAME": ",".join(RAILS)}},
}


def one(options, backend, environment, ranks, bed, folder):
    """What a run found, or None."""
    file = pathlib.Path(folder) / "found.json"
    file.unlink(missing_ok=True)
    words = ["--backend", backend.split(",")[0], "--steps", options.steps, "--turns", options.turns, "--json", file]
    words += ["--data", options.data] if options.data else []
    with Ranks(ranks, words, bed, environment) as started:
        codes = started.end(options.timeout)
    if codes != [0] * ranks or not file.exists():
        print(f"FAIL {backend}: exit codes {codes}\n{started.text()[-4000:]}", flush=True)
        return None
    return json.loads(file.read_text())


def placement(options, hosts, each, folder, bed=None):
    """{backend: [what its runs found]}"""
    runs = {backend: [] for backend in BACKENDS[hosts]}
    for turn in range(1, options.repeat + 1):
        for backend, environment in BACKENDS[hosts].items():
            found = one(options, backend, environment, hosts * each, bed, folder)
            runs[backend].append(found)
            if found:
                print(f"  {hosts}x{each} {backend}, run {turn}: {found['step_ms']:.1f} ms a step, communication alone "
                      f"{found['communication']['alone']:.2f} ms", flush=True)
    return runs


def figure(found, of):
    """The median of the runs, and half of how far they are apart."""
    values = [of(run) for run in found]
    return statistics.median(values), (max(values) - min(values)) / 2


def table(everything):
    lines = ["| hosts x ranks | backend | ms a step | with ms | without ms | visible ms | alone ms | hidden "
             "| visible, of Gloo's | alone, of Gloo's |", "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for name, runs in everything.items():
        base = [run for run in runs["gloo"] if run]
        for backend, found in runs.items():
            found = [run for run in found if run]
            if not found:
                lines.append(f"| {name} | {backend} |" + " - |" * 8)
                continue
            cells = ["{:.1f} ± {:.1f}".format(*figure(found, lambda run: run["step_ms"]))]
            for what in ("with", "without", "visible", "alone"):
                cells.append("{:.2f} ± {:.2f}".format(*figure(found, lambda run: run["communication"][what])))
            cells.append("{:.0%}".format(figure(found, lambda run: run["communication"]["hidden"])[0]))
            for what in ("visible", "alone"):
                of = [figure(runs_of, lambda run: run["communication"][what])[0] for runs_of in (found, base)
                      if runs_of]
                cells.append(f"{of[0] / of[1]:.2f}" if len(of) == 2 and of[1] > 0 else "-")
            lines.append(f"| {name} | {backend} | {' | '.join(cells)} |")
    return "\n".join(lines)


def apart(one_, other):
    pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(one_["losses"], other["losses"])]
    return max((abs(a - b) / max(abs(a), abs(b)) for a, b in pairs if a != b), default=0.0)


def judge(name, runs):
    """Prints what runs say of each other. Whether that is as it should be."""
    right = all(run for found in runs.values() for run in found)
    for backend, found in runs.items():
        found = [run for run in found if run]
        same = all((run["losses"], run["hashes"]) == (found[0]["losses"], found[0]["hashes"]) for run in found)
        if len(found) > 1:
            print(f"- {name} {backend}: {len(found)} runs are {'' if same else 'not '}equal to the last bit")
        right = right and (same or backend != "flx")
    firsts = [next((run for run in runs[backend] if run), None) for backend in ("flx", "gloo")]
    if all(firsts):
        # Sums in another order differ in the last bit, and training magnifies that: means over all steps are compared.
        means = [statistics.fmean(map(float.fromhex, run["losses"])) for run in firsts]
        difference = abs(means[0] - means[1]) / means[1]
        print(f"- {name}: mean loss {means[0]:.6f} with FLX, {means[1]:.6f} with Gloo; single steps' are apart by "
              f"{apart(*firsts):.1e} at most; right of 1000 test images: {firsts[0]['accuracy']:.2%}, "
              f"{firsts[1]['accuracy']:.2%}")
        right = right and difference <= ALLOWED
    return right


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", default="1x4,2x2", help="hosts x ranks of each (1x4,2x2)")
    parser.add_argument("--repeat", type=int, default=3, help="runs with each backend (3)")
    parser.add_argument("--steps", type=int, default=300, help="of each training (300)")
    parser.add_argument("--turns", type=int, default=20, help="times that communication is measured in a run (20)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a run may take (300)")
    parser.add_argument("--data", help="as of fashion.py")
    parser.add_argument("--json", type=pathlib.Path, help="file for all that was found")
    options = parser.parse_args()
    try:
        options.placements = [tuple(map(int, text.split("x"))) for text in options.placements.split(",")]
        if any(hosts not in BACKENDS or each < 1 or hosts * each < 2 for hosts, each in options.placements):
            raise ValueError
    except ValueError:
        parser.error("placements are as 1x4 or 2x2, of one or two hosts and two ranks or more")
    if min(options.repeat, options.steps, options.turns) < 1:
        parser.error("--repeat, --steps and --turns are numbers from 1 on")
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # through `finally`, so that ranks end, too
    everything = {}
    with tempfile.TemporaryDirectory() as folder:
        for hosts, each in options.placements:
            name = f"{hosts}x{each}"
            if hosts == 1:
                everything[name] = placement(options, hosts, each, folder)
                continue
            try:
                with Bed(folder, hosts) as bed:
                    everything[name] = placement(options, hosts, each, folder, bed)
            except NoBed as why:
                print(f"skipped: {name}: {why}")
    if not everything:
        return 77
    example = next((run for runs in everything.values() for found in runs.values() for run in found if run), None)
    if example:
        print(f"\ntorch {example['torch']}, {example['parameters']} parameters in buckets of "
              f"{', '.join(map(str, example['communication']['buckets']))} B, data: {example['data']}, rails: {RATES} "
              f"Mbit/s, medians of {options.repeat} runs\n")
    print(table(everything) + "\n")
    right = [judge(name, runs) for name, runs in everything.items()]
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
