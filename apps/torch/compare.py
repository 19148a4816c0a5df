#!/usr/bin/env python3
"""Runs train.py with NCCL and with FLX in front of it, by turns, and says what FLX gains and whether it trains alike.

    apps/torch/compare.py --gpus 2                                  all four workloads
    apps/torch/compare.py --gpus 8 --workloads ddp,moe --repeat 3   some

Two of NCCL's own algorithms, ring and tree, differ in the last bits of sums, and training magnifies that: FLX may
differ from NCCL twice as much as they do, or by 1e-3, whichever is more; its own runs must be equal to the last bit.
The exit code is 1 where that does not hold or a run failed. NVLink multicast (NCCL_NVLS_ENABLE) is off in all runs.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
WORKLOADS = ["ddp", "fsdp", "tensor", "moe"]
# Ring everywhere, and a tree where NCCL has one: it has none for the other collectives, and would refuse them.
ALGORITHMS = {"ring": "Ring", "tree": "Ring;AllReduce:Tree"}
ALWAYS = 1e-3  # a relative difference of losses that is allowed whatever ring and tree differ


def losses(result):
    return [float.fromhex(loss) for loss in result["losses"]]


def difference(one, other):
    """The largest relative difference of two runs' losses; infinite where they cannot be compared."""
    a, b = losses(one), losses(other)
    if len(a) != len(b) or not all(map(math.isfinite, a + b)):
        return math.inf
    return max((abs(x - y) / max(abs(x), abs(y)) for x, y in zip(a, b) if x != y), default=0.0)


def same(one, other):
    """Equal to the last bit: losses, and what each rank has in the end."""
    return one["losses"] == other["losses"] and one["hashes"] == other["hashes"]


def of(runs, library):
    return [run["result"] for run in runs if run["library"] == library and run["result"]]


def median_and_spread(results):
    """Of the runs' medians: their median, and how far they are apart, as a part of it."""
    times = [result["step_ms"]["median"] for result in results]
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median


def communication(results):
    found = [result["profile"]["communication"] for result in results if result.get("profile")]
    return statistics.median(found) if found else None


def judge(workload, runs):
    """What the runs of one workload say; `problems` are the sentences for which the exit code is 1."""
    nccl, flx = of(runs, "nccl"), of(runs, "flx")
    problems = [f"{workload}: {run['library']}, run {run['turn']}: {run['why']}" for run in runs
                if not run["result"] and run["library"] in ("nccl", "flx")]
    notes = [f"{workload}: no run with NCCL_ALGO={ALGORITHMS[run['library']]}: {run['why']}" for run in runs
             if not run["result"] and run["library"] in ALGORITHMS]
    for run in runs:
        result = run["result"]
        if result and result.get("ranks_agree") is False:
            problems.append(f"{workload}: {run['library']}, run {run['turn']}: the ranks ended with different results")
        if result and run["library"] in ("nccl", "flx") and result["flx"] != (run["library"] == "flx"):
            problems.append(f"{workload}: {run['library']}, run {run['turn']}: FLX was "
                            f"{'' if result['flx'] else 'not '}in front of NCCL")
    verdict = {"workload": workload, "problems": problems, "notes": notes, "nccl": None, "flx": None, "gain": None,
               "repeatable": None, "nccl_repeatable": None, "difference": None, "ring_tree": None, "allowed": None}
    for name, results in (("nccl", nccl), ("flx", flx)):
        if results:
            median, spread = median_and_spread(results)
            verdict[name] = {"ms": median, "spread": spread, "communication": communication(results),
                             "tokens_per_second": statistics.median(r["tokens_per_second"] for r in results)}
    if nccl and flx:
        verdict["gain"] = verdict["nccl"]["ms"] / verdict["flx"]["ms"] - 1
        verdict["difference"] = max(difference(a, b) for a in flx for b in nccl)
    if len(nccl) > 1:
        verdict["nccl_repeatable"] = all(same(nccl[0], other) for other in nccl[1:])
    if len(flx) > 1:
        verdict["repeatable"] = all(same(flx[0], other) for other in flx[1:])
        if not verdict["repeatable"]:
            apart = max(difference(flx[0], other) for other in flx[1:])
            problems.append(f"{workload}: FLX's runs differ from each other; their losses by {apart:.2e}")
    ring, tree = of(runs, "ring"), of(runs, "tree")
    if ring and tree:
        verdict["ring_tree"] = difference(ring[0], tree[0])
    if verdict["difference"] is not None:
        # Without ring and tree, or where they did not get through, there is nothing that would allow more.
        reference = verdict["ring_tree"] if verdict["ring_tree"] is not None and verdict["ring_tree"] < math.inf else 0
        verdict["allowed"] = max(ALWAYS, 2 * reference)
        if not verdict["difference"] <= verdict["allowed"]:
            problems.append(f"{workload}: FLX's losses differ from NCCL's by {verdict['difference']:.2e}; "
                            f"{verdict['allowed']:.2e} is allowed")
    return verdict


def cell(value, form):
    return "-" if value is None else format(value, form)


def table(verdicts, gpus):
    """Markdown; times are medians of the runs' medians, ± half of what these are apart."""
    lines = ["| workload | GPUs | NCCL ms/step | FLX ms/step | gain | NCCL tokens/s | FLX tokens/s "
             "| NCCL communication | FLX communication |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for v in verdicts:
        sides = [v["nccl"] or {}, v["flx"] or {}]
        times = [f"{s['ms']:.3f} ± {s['spread'] / 2:.1%}" if s else "-" for s in sides]
        lines.append(" | ".join(["| " + v["workload"], str(gpus), *times, cell(v["gain"], "+.1%"),
                                 *(cell(s.get("tokens_per_second"), ",.0f") for s in sides),
                                 *(cell(s.get("communication"), ".1%") for s in sides)]) + " |")
    return "\n".join(lines)


def sentences(verdict):
    word = {True: "yes", False: "no", None: "not known, as it takes two runs"}
    said = [f"{verdict['workload']}: bitwise the same in all of FLX's runs: {word[verdict['repeatable']]}; "
            f"in NCCL's: {word[verdict['nccl_repeatable']]}"]
    if verdict["difference"] is not None:
        apart = "not measured" if verdict["ring_tree"] is None else f"{verdict['ring_tree']:.1e}"
        said.append(f"{verdict['workload']}: largest relative difference of losses, FLX and NCCL: "
                    f"{verdict['difference']:.1e}; NCCL's ring and tree: {apart}; allowed: {verdict['allowed']:.1e}")
    return said


def served(text):
    """What FLX says at the end that it served (FLX_STATS): the table of the process with rank 0."""
    found = re.search(r"^flx_nccl: calls of process .*\n(?:  .*\n?)*", text, re.MULTILINE)
    return found.group(0).rstrip() if found else None


def last_words(text):
    """A line that says why a run failed: the last error that is not torchrun's own report of a failed process."""
    telling = re.compile(r"error|train\.py: |refus|invalid", re.IGNORECASE)
    other = re.compile(r"ChildFailedError|elastic|error_file|Warning|traceback :|--workload")
    lines = [line.strip() for line in text.splitlines() if telling.search(line) and not other.search(line)]
    return lines[-1][:300] if lines else "it said no more"


def stop(process):
    """torchrun ends its workers when it is told to end; what is left is killed."""
    for signum, wait in ((signal.SIGTERM, 45), (signal.SIGKILL, 15)):
        try:
            os.killpg(process.pid, signum)
            process.wait(wait)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass


def execute(command, environment, said, result, timeout):
    """Runs a command; what it prints goes to the file `said`. (its JSON or None, a sentence why there is none)"""
    result.unlink(missing_ok=True)
    with open(said, "w") as file:
        print(" ".join(map(str, command)), file=file, flush=True)
        process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None, f"it took longer than {timeout} s (--timeout) and was ended"
        finally:
            if process.poll() is None:
                stop(process)
    if not result.exists():
        return None, f"exit code {code}: {last_words(said.read_text(errors='replace'))}"
    found = json.loads(result.read_text())
    if code != 0 and found.get("ranks_agree") is not False:
        return None, f"exit code {code} after it had its result: {last_words(said.read_text(errors='replace'))}"
    return found, None


def run(options, workload, library, turn):
    """One run of train.py: {"library", "turn", "result", "why", "served"}."""
    name = f"{workload}-{options.gpus}-{library}-{turn}"
    said, result = options.out / f"{name}.txt", options.out / f"{name}.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", options.gpus,
               HERE / "train.py", "--workload", workload, "--steps", options.steps, "--warmup", options.warmup,
               "--seed", options.seed, "--json", result, *(["--small"] if options.small else [])]
    # torchrun chooses 1, too, but with a warning in every output.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "NCCL_NVLS_ENABLE": "0"}
    environment.pop("NCCL_ALGO", None)
    if library == "flx":
        command = [options.flx_run, "--nccl", "--", *command]
        environment["FLX_STATS"] = "1"
    elif library in ALGORITHMS:
        environment["NCCL_ALGO"] = ALGORITHMS[library]
    began = time.monotonic()
    found, why = execute(command, environment, said, result, options.timeout)
    text = f"{found['step_ms']['median']:.3f} ms a step" if found else why
    print(f"  {name}: {text} ({time.monotonic() - began:.0f} s)", flush=True)
    return {"library": library, "turn": turn, "result": found, "why": why,
            "served": served(said.read_text(errors="replace")) if library == "flx" else None}


def turns(workload, repeat, reference=True):
    """Which library runs when: by turns, so that what changes on the machine meets both."""
    order = [(library, turn) for turn in range(1, repeat + 1) for library in ("nccl", "flx")]
    return order + ([(library, 1) for library in ALGORITHMS] if reference and workload != "tensor" else [])


def flx_run(given):
    """The flx-run to take, or None: the given one, PATH's, or this build's."""
    if given:
        return shutil.which(given)
    return shutil.which("flx-run") or shutil.which(str(TOP / "build/release/bin/flx-run"))


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return number


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=positive, default=2, help="processes, one for each GPU (2)")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help=f"some of {','.join(WORKLOADS)} (all)")
    parser.add_argument("--steps", type=positive, default=20, help="steps that are timed (20)")
    parser.add_argument("--warmup", type=positive, default=5, help="steps before them (5)")
    parser.add_argument("--repeat", type=positive, default=2, help="runs with each library (2: does it repeat?)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-reference", action="store_true", help="no runs with NCCL's ring and tree alone")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that everything runs")
    parser.add_argument("--timeout", type=positive, default=300, help="seconds that a run may take (300)")
    parser.add_argument("--flx-run", help="default: the one in PATH, then build/release/bin/flx-run")
    parser.add_argument("--out", type=pathlib.Path, default="torch-results", help="folder of results (torch-results)")
    options = parser.parse_args(words)
    options.workloads = options.workloads.split(",")
    for workload in options.workloads:
        if workload not in WORKLOADS:
            parser.error(f"no workload '{workload}'; there are {', '.join(WORKLOADS)}")
    found = flx_run(options.flx_run)
    if not found:
        parser.error(f"no flx-run {'at ' + options.flx_run if options.flx_run else 'in PATH or in build/release/bin'}; "
                     "build or install FLX, or say where it is (--flx-run)")
    options.flx_run = found
    return options


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # through `finally`, so that the run under way ends, too
    verdicts, everything = [], {}
    for workload in options.workloads:
        print(f"== {workload}", flush=True)
        runs = everything[workload] = [
            run(options, workload, *turn) for turn in turns(workload, options.repeat, not options.no_reference)]
        verdicts.append(judge(workload, runs))
    example = next((r["result"] for runs in everything.values() for r in runs if r["result"]), None)
    about = "no run ended well"
    if example:
        about = f"{options.gpus} × {example['device']}, torch {example['torch']}, NCCL {example['nccl']}"
    text = [about, "", table(verdicts, options.gpus), ""]
    for verdict in verdicts:
        text += [f"- {sentence}" for sentence in sentences(verdict) + verdict["notes"]]
    for workload, runs in everything.items():
        report = next((r["served"] for r in runs if r["served"]), None)
        text += [f"\n{workload}, first run with FLX:\n\n{report}"] if report else []
    problems = [problem for verdict in verdicts for problem in verdict["problems"]]
    text += [f"\nFAIL {problem}" for problem in problems]
    print("\n" + "\n".join(text))
    summary = {"about": about, "gpus": options.gpus, "small": options.small, "verdicts": verdicts, "runs": everything}
    (options.out / f"torch-{options.gpus}.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
