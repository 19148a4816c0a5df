#!/usr/bin/env python3
"""Writes files with schedules, and rules that name them, for collectives_test: make_schedules.py FLX_SCHEDULE FOLDER

FOLDER/json-RANKS.txt has a rule for each collective, with what flx_schedule makes of an algorithm that FLX would not
choose; FOLDER/json-hosts-4.txt those of two hosts; FOLDER/pairs-RANKS.txt and FOLDER/ring-RANKS.txt have algorithms of
MSCCL (tests/apps/msccl_programs.py)."""

import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps"))
import msccl_programs

ALGORITHMS = {
    "allreduce": "double_binary_tree",
    "reduce_scatter_block": "ring",
    "allgather": "bruck",
    "bcast": "double_binary_tree",
    "reduce": "ring",
    "barrier": "direct",
    "gather": "binomial_tree",
    "scatter": "binomial_tree",
    "scan": "prefix_doubling",
    "exscan": "prefix_chain",
}
# Of two hosts with two ranks each.
TIERS = {
    "allreduce": "lanes(direct,ring)",
    "reduce_scatter_block": "lanes(direct,direct)",
    "allgather": "leaders(direct,direct)",
    "bcast": "lanes(direct,ring)",
    "reduce": "leaders(direct,ring)",
}


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    program, folder = sys.argv[1], os.path.abspath(sys.argv[2])
    os.makedirs(folder, exist_ok=True)

    def export(name, algorithms, shape):
        rules = ""
        for collective, algorithm in algorithms.items():
            path = f"{folder}/{collective}-{name}.json"
            subprocess.run([program, collective, algorithm, *shape, "--json", path], check=True)
            rules += f"{collective}:file:{path}\n"
        write(f"{folder}/json-{name}.txt", rules)

    export("hosts-4", TIERS, ["--hosts", "2,2"])
    for ranks in (2, 4):
        export(ranks, ALGORITHMS, ["--ranks", str(ranks)])
        for name, build in msccl_programs.PROGRAMS.items():
            write(f"{folder}/{name}-{ranks}.xml", build(ranks))
        write(
            f"{folder}/pairs-{ranks}.txt",
            f"allreduce:file:{folder}/all_pairs-{ranks}.xml\nallgather:file:{folder}/doubling-{ranks}.xml\n",
        )
        write(f"{folder}/ring-{ranks}.txt", f"allreduce:file:{folder}/ring-{ranks}.xml\n")


main()
