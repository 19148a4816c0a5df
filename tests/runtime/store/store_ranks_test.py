#!/usr/bin/env python3
"""Ranks that are started without MPI, by the environment alone.

    store_ranks_test.py PROGRAM CASE [LIBFLX OTHER | RAILS | LAUNCHER…]

PROGRAM is store_ranks. Cases: host (processes of one host, once as if of two), errors (what is said where ranks are
missing, double or differ, where the store is not, and where LIBFLX has no part for MPI, or OTHER instead of it), rails
(two emulated hosts, by ci/rails), mpirun (started by it)."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(program, rank, size, port, *options, address="127.0.0.1", before=(), **knobs):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "FLX_"))
    }
    environment |= {"MASTER_ADDR": address, "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(size)}
    environment |= knobs
    return subprocess.Popen(
        [*before, program, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(ranks):
    """(exit code, output) of each."""
    ended = []
    for rank in ranks:
        try:
            out, err = rank.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            rank.kill()
            out, err = rank.communicate()
            out += "(it did not end)"
        ended.append((rank.returncode, out + err))
    return ended


def expect(what, right):
    if not right:
        sys.exit(f"wrong: {what}")


def all_well(ended, what):
    for rank, (code, output) in enumerate(ended):
        expect(f"{what}: rank {rank} ended with {code}: {output}", code == 0)


def run_host(program):
    for size, options in ((1, []), (2, []), (4, ["twice"]), (3, ["moves"]), (5, ["--hosts=0,0,1,1,0", "twice"])):
        port = free_port()
        all_well(finish([start(program, rank, size, port, *options) for rank in range(size)]), f"{size} {options}")
    # Children of ranks are processes of their own, and live while they compute. UCX serves none whose parent uses it.
    port, knobs = free_port(), {"CHILDREN_PORT": str(free_port()), "FLX_DEADLINE": "2", "FLX_RAILS": "none"}
    all_well(finish([start(program, rank, 2, port, "forks", **knobs) for rank in range(2)]), "children")
    # By name, and started late and in the other order.
    port = free_port()
    ranks = []
    for rank in (2, 1, 0):
        ranks.append(start(program, rank, 3, port, address="localhost"))
        time.sleep(0.3)
    all_well(finish(ranks), "late ranks")


def failed(ended, *patterns):
    for rank, (code, output) in enumerate(ended):
        expect(f"rank {rank} ended with {code}: {output}", code == 3)
        for pattern in patterns:
            expect(f"rank {rank} does not say {pattern!r}: {output}", re.search(pattern, output))


def create_of_mpi(library, folder="."):
    """What flx_comm_create says in a process that loads `library` by that name and leaves `folder` then."""
    script = (
        "import ctypes, os, sys; flx = ctypes.CDLL(sys.argv[1]); flx.flx_last_error.restype = ctypes.c_char_p; "
        "os.chdir('/'); made = ctypes.c_void_p(); print(flx.flx_comm_create(None, None, ctypes.byref(made)), "
        "flx.flx_last_error().decode())"
    )
    return subprocess.run(
        [sys.executable, "-c", script, library], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def check_mpi_part(library, other):
    """A libflx that was copied without its part for MPI, or with another's, and one that was loaded by a relative
    name."""
    with tempfile.TemporaryDirectory() as folder:
        copied = shutil.copy(library, folder)
        said = create_of_mpi(copied)
        expect(f"no part for MPI: {said}", re.search(r"^8 .*libflx_with_mpi.so, cannot be loaded.*FLX-E821", said))
        shutil.copy(other, f"{folder}/libflx_with_mpi.so")
        said = create_of_mpi(copied)
        expect(f"another part for MPI: {said}", re.search(r"^8 .*belongs to another build of FLX.*FLX-E821", said))
    folder, name = os.path.split(library)
    said = create_of_mpi(f"./{name}", folder)
    expect(f"a relative name: {said}", "MPI is not initialized" in said)


def run_errors(program, library="", other=""):
    if library:
        check_mpi_part(library, other)
    began = time.monotonic()
    port = free_port()
    ended = finish([start(program, rank, 4, port, FLX_DEADLINE="1") for rank in (0, 2)])
    failed(ended, r"^6 ranks 1 and 3 did not come to the store at .* within 1 s .*2 of 4 .*FLX-E605")
    expect("it took long", time.monotonic() - began < 10)

    failed(finish([start(program, 1, 2, free_port(), FLX_DEADLINE="0.5")]), r"^8 .*Connection refused.*FLX-E820")

    port = free_port()
    ranks = [start(program, 0, 3, port, FLX_DEADLINE="3"), start(program, 1, 3, port, FLX_DEADLINE="3")]
    time.sleep(1)
    failed(finish([start(program, 1, 3, port)]), r"^1 two processes say that they are rank 1.*FLX-E127")
    failed(finish([start(program, 2, 4, port)]), r"^1 rank 2 says that there are 4 ranks.*FLX-E127")
    failed(finish([start(program, 0, 3, port)]), r"^8 rank 0 cannot listen.*another process whose rank is 0.*FLX-E820")
    failed(finish(ranks), r"^6 rank 2 did not come .*refused: rank 2 says that there are 4")

    # A knob that one rank has wrong is told to all.
    port = free_port()
    failed(
        finish([start(program, 0, 2, port), start(program, 1, 2, port, FLX_STRICT="perhaps")]),
        r"^2 .*FLX_STRICT.*FLX-E202",
    )

    port = free_port()
    ended = finish([start(program, rank, 3, port, "die") for rank in range(3)])
    expect(f"rank 1 lives: {ended[1]}", ended[1][0] == -signal.SIGKILL)
    for code, output in (ended[0], ended[2]):
        expect(f"the death of rank 1 is not told: {output}", code == 0 and "rank 1" in output)


def run_rails(program, rails):
    made = subprocess.run(
        [rails, "create", "2", "800,400", "--owner", str(os.getpid())], capture_output=True, text=True, check=False
    )
    if made.returncode == 77:
        print(made.stderr)
        sys.exit(77)
    bed = made.stdout.strip()
    try:
        ranks = [
            start(
                program, rank, 4, 29500, address="10.77.1.1", before=(rails, "--bed", bed, "exec", str(1 + rank // 2))
            )
            for rank in range(4)
        ]
        all_well(finish(ranks), "two hosts")
        # The host of rank 0 knows its name by two addresses, and the other by either.
        script = 'printf "$0" >/tmp/hosts.$$ && mount --bind /tmp/hosts.$$ /etc/hosts && exec "$@"'
        for known in ("10.77.1.1 head", "10.77.2.1 head"):
            ranks = []
            for rank, hosts in enumerate(("10.77.1.1 head\n10.77.2.1 head\n", known + "\n")):
                inside = (rails, "--bed", bed, "exec", str(1 + rank), "unshare", "--mount", "sh", "-c", script, hosts)
                ranks.append(start(program, rank, 2, 29501, address="head", before=inside, FLX_DEADLINE="10"))
            all_well(finish(ranks), f"a name of two addresses, of which one host knows {known}")
    finally:
        subprocess.run([rails, "--bed", bed, "destroy"], check=False)


def run_mpirun(program, launcher):
    script = (
        f"export RANK=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 "
        f"MASTER_PORT={free_port()}; exec {program} twice"
    )
    ended = subprocess.run([*launcher, "-n", "4", "sh", "-c", script], capture_output=True, text=True, check=False)
    expect(f"mpirun: {ended.stdout}{ended.stderr}", ended.returncode == 0)


CASES = {
    "host": run_host,
    "errors": run_errors,
    "rails": run_rails,
    "mpirun": lambda program, *launcher: run_mpirun(program, launcher),
}
CASES[sys.argv[2]](sys.argv[1], *sys.argv[3:])
