#!/usr/bin/env python3
"""Ranks as in containers: each in a user namespace, so that the kernel keeps them out of each other's memory, each with
process numbers of its own, and with a small /dev/shm or none to speak of. FLX says what it does without, the results
are right, and nothing is left in /dev/shm.

    containers_test.py RANKS FLX_PERF FLX_INFO FURTHER_TEST
"""
import json
import os
import subprocess
import sys
import tempfile

LAUNCHER, PERF, INFO, FURTHER = sys.argv[1:5]
RANKS = 3
SIZES = [8, 65536, 2 << 20]
# MPI's own shared memory cannot be had in some of these.
MPI_BY_TCP = {"OMPI_MCA_btl": "tcp,self", "MPIR_CVAR_NOLOCAL": "1"}
NO_NAMESPACES = "skipped: user namespaces cannot be made here"


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False,
                          env={**os.environ, "FLX_PROBE_MS": "20", "FLX_LOG": "warn", **MPI_BY_TCP})


def mpirun(program, each=(), around=()):
    return [*around, LAUNCHER, "-n", str(RANKS), *each, *program]


def check(name, said, each=(), around=()):
    """What is wrong: flx_info is to say `said`, and calls are to give right results."""
    wrong = []
    done = run(mpirun([INFO], each, around))
    if done.returncode != 0 or said not in done.stdout:
        wrong.append(f"{name}: flx_info (code {done.returncode}) does not say {said!r}:\n{done.stdout}")
    for memory in ("host", "shared"):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = run(mpirun([PERF, "allreduce", "--memory", memory, "--sizes", ",".join(map(str, SIZES)), "--max-seconds",
                               "0.02", "--json", file.name], each, around))
            results = json.load(open(file.name, encoding="utf-8"))["results"] if done.returncode == 0 else []
        if len(results) != len(SIZES):
            wrong.append(f"{name}: flx_perf ended with code {done.returncode}:\n{done.stdout}")
        wrong += [f"{name}: {row['bytes']} bytes of {memory} memory: {row['wrong']} wrong elements" for row in results
                  if row["wrong"]]
    return wrong


def own_shm(user, kib):
    """What runs in a /dev/shm of its own."""
    return [*user, "--mount", "sh", "-c", f'mount -t tmpfs -o size={kib}k tmpfs /dev/shm && exec "$@"', "sh"]


def main():
    if run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "true"]).returncode != 0:
        print(NO_NAMESPACES)
        return 77
    before = set(os.listdir("/dev/shm"))
    own_user = ["unshare", "--user", "--map-root-user"]
    wrong = check("user namespaces", "ranks do not reach each other's buffers: reading memory of rank", each=own_user)
    # Each rank is process 1 for itself, so numbers of others name itself.
    wrong += check("pid namespaces", "ranks do not reach each other's buffers: ",
                   each=[*own_user, "--pid", "--fork", "--kill-child"])
    for kib, said in ((1024, "/dev/shm has too little room for FLX_SHM_BYTES=4194304"),
                      (64, "off   no room for a shared-memory segment")):
        wrong += check(f"/dev/shm of {kib} KiB", said, around=own_shm(own_user, kib))
    done = run(mpirun([FURTHER, "--gtest_filter=*RunsOut*"], ["env", "FLX_TEST_OWN_SHM=1"],
                      own_shm(own_user, 400 << 10)))
    if done.returncode != 0 or "OK" not in done.stdout:
        wrong.append(f"room that runs out: code {done.returncode}:\n{done.stdout}")
    left = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("flx-") and "test" not in name}
    # Other programs' segments have a name for a moment.
    left = {name for name in left if os.path.exists("/dev/shm/" + name)}
    if left:
        wrong.append(f"left in /dev/shm: {', '.join(sorted(left))}")
    print("\n".join(wrong) or "ranks in containers: right results, and it was said what they do without")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
