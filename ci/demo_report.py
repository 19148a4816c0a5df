"""What ci/demo says about flx_perf's results; the exit code is 1 where a check fails.

demo_report.py ratios JSON                        the smallest ratio to MPI, over all sizes and from 1 MiB up; no wrong element
demo_report.py rails JSON RATE…                   bus bandwidths as part of the sum of the rails' rates (Mbit/s)
demo_report.py shares CSV BEFORE_S AFTER_S SLOWED RATE_BEFORE… / RATE_AFTER…
        mean shares of rail1, rail2, … in the calls that began before BEFORE_S and after AFTER_S (seconds of the log),
        beside what the rates make best; the rail SLOWED must end within 0.05 of it, and have been further away before
"""
import csv
import json
import sys


def results(path):
    with open(path) as file:
        return json.load(file)["results"]


def ratios(path):
    rows = results(path)
    wrong = sum(row["wrong"] for row in rows)
    least = min(rows, key=lambda row: row["ratio"])
    print(f"sizes: {len(rows)}, wrong elements: {wrong}")
    print(f"smallest ratio MPI/FLX: {least['ratio']:.2f} at {least['bytes']} B")
    large = [row for row in rows if row["bytes"] >= 1 << 20]
    if large:
        least = min(large, key=lambda row: row["ratio"])
        print(f"smallest from 1 MiB up: {least['ratio']:.2f} at {least['bytes']} B")
    return wrong == 0


def rails(path, rates):
    total = sum(map(float, rates)) / 8000  # GB/s
    best = max(map(float, rates)) / 8000
    ok = True
    for row in results(path):
        flx = row["busbw_GBps"]
        mpi = flx * row["flx_us"] / row["peer_us"]
        print(f"rails together {total:.4f} GB/s, fastest alone {best:.4f} GB/s; {row['bytes']} B:")
        print(f"FLX            {flx:.4f} GB/s, {flx / total:.2f} of the sum, {flx / best:.2f} of the fastest")
        print(f"Open MPI       {mpi:.4f} GB/s, {mpi / total:.2f} of the sum; FLX is {row['ratio']:.2f} times as fast")
        ok = ok and row["wrong"] == 0
    return ok


def shares(path, before_s, after_s, slowed, rates):
    middle = rates.index("/")
    best = []
    for part in (rates[:middle], rates[middle + 1 :]):
        part = list(map(float, part))
        best.append([rate / sum(part) for rate in part])
    names = [f"rail{i + 1}" for i in range(len(best[0]))]
    sums = [[0.0] * len(names), [0.0] * len(names)]
    count = [0, 0]
    wrong = 0
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            wrong += int(row["wrong"] or 0)
            began = float(row["seconds"])
            if before_s < began < after_s:
                continue
            when = 0 if began <= before_s else 1
            count[when] += 1
            for i, name in enumerate(names):
                sums[when][i] += float(row[f"{name}_share"])
    if 0 in count:
        print(f"too few calls in the log: {count[0]} before, {count[1]} after")
        return False
    mean = [[value / count[when] for value in sums[when]] for when in (0, 1)]
    print(f"{'rail':8}{'share before':>14}{'best':>8}{'share after':>14}{'best':>8}")
    for i, name in enumerate(names):
        mark = "  slowed" if name == slowed else ""
        print(f"{name:8}{mean[0][i]:14.3f}{best[0][i]:8.3f}{mean[1][i]:14.3f}{best[1][i]:8.3f}{mark}")
    i = names.index(slowed)
    followed = abs(mean[1][i] - best[1][i]) <= 0.05
    moved = abs(mean[0][i] - best[1][i]) > 0.05
    print(f"means of {count[0]} calls before and {count[1]} after; wrong elements: {wrong}")
    if not followed:
        print(f"{slowed}'s share is not within 0.05 of the best")
    if not moved:
        print(f"{slowed}'s share was there before it was slowed: nothing was seen to move")
    return followed and moved and wrong == 0


command, arguments = sys.argv[1], sys.argv[2:]
if command == "ratios":
    good = ratios(arguments[0])
elif command == "rails":
    good = rails(arguments[0], arguments[1:])
else:
    good = shares(arguments[0], float(arguments[1]), float(arguments[2]), arguments[3], arguments[4:])
sys.exit(0 if good else 1)
