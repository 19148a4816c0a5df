#!/usr/bin/env python3
"""How long real MPI programs of Debian's, and a solver of this project's, take with FLX in front of MPI and without, by
turns.

  ci/preload-programs --time [--turns N] [--rates R1,R2] [--placements "1x2 2x2"] [--build DIR] [--mode auto|on]
                             [--work DIR] [PROGRAM...]

A placement is HOSTSxRANKS-A-HOST; several hosts are emulated by ci/rails. Each program runs once with FLX before that
counts for nothing, so that the tuning cache is warm, and then plain, FLX, plain, ... The table has whole wall times as a
user sees them, mpirun's own included: medians, their ratio (above 1 FLX is faster), the least and the greatest ratio of
a turn, and the noise, which is the same of plain turns against the plain ones before.
"""

import argparse
import gzip
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
LAMMPS = pathlib.Path("/usr/share/lammps/examples")
PROGRAMS_OF_TESTS = TOP / "tests" / "runtime" / "front" / "mpi"
ESPRESSO = pathlib.Path("/usr/share/doc/quantum-espresso/examples/EPW/sic/pp")

PW_INPUT = """&control
 calculation='scf', prefix='si', pseudo_dir='.', outdir='.', verbosity='low', disk_io='none'
/
&system
 ibrav=1, celldm(1)=10.26, nat=8, ntyp=1, ecutwfc={cutoff}
/
&electrons
 conv_thr=1e-8
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS crystal
 Si 0.00 0.00 0.00
 Si 0.50 0.50 0.00
 Si 0.50 0.00 0.50
 Si 0.00 0.50 0.50
 Si 0.25 0.25 0.25
 Si 0.75 0.75 0.25
 Si 0.75 0.25 0.75
 Si 0.25 0.75 0.75
K_POINTS automatic
 2 2 2 0 0 0
"""


def prepare_hpcc(folder, ranks):
    text = pathlib.Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^\S+( +Ps)$", r"1\1", text)
    text = re.sub(r"(?m)^\S+( +Qs)$", rf"{ranks}\1", text)
    text = re.sub(r"(?m)^\S+( +Ns)$", r"1000\1", text)
    (folder / "hpccinf.txt").write_text(text, encoding="utf-8")
    return ["hpcc"]


def prepare_lammps(name, steps):
    def prepare(folder, _ranks):
        shutil.copytree(LAMMPS / name, folder, dirs_exist_ok=True)
        path = folder / f"in.{name}"
        path.write_text(re.sub(r"(?m)^run\s.*", f"run {steps}", path.read_text(encoding="utf-8")), encoding="utf-8")
        return ["lmp", "-in", path.name, "-log", "none"]

    return prepare


def prepare_cp2k(name):
    def prepare(folder, _ranks):
        path = pathlib.Path("/usr/share/doc/cp2k/examples") / f"{name}.inp"
        text = path.read_bytes() if path.exists() else gzip.decompress(path.with_suffix(".inp.gz").read_bytes())
        (folder / path.name).write_bytes(text)
        return ["env", "CP2K_DATA_DIR=/usr/share/cp2k", "cp2k.psmp", "-i", path.name]

    return prepare


def prepare_scalapack(folder, ranks):
    side = 2 if ranks % 2 == 0 else 1
    # As large as the program's memory allows (TOTMEM), and as often as it takes.
    sizes = " ".join(["600"] * 20)
    (folder / "LU.dat").write_text(
        "'LU'\n'MPI machine'\n'LU.out' output file name (if any)\n6 device out\n20 number of problem sizes\n"
        f"{sizes} values of M\n{sizes} values of N\n1 number of NB's\n32 values of NB\n1 number of NRHS's\n"
        "1 values of NRHS\n1 number of NBRHS's\n1 values of NBRHS\n1 number of process grids\n"
        f"{side} values of P\n{ranks // side} values of Q\n3.0 threshold\nF (T or F) Test Cond. Est.\n",
        encoding="utf-8",
    )
    (test,) = pathlib.Path("/usr/lib").glob("*/scalapack/openmpi-tests/xdlu")
    return [str(test)]


def prepare_espresso(cutoff):
    def prepare(folder, _ranks):
        (folder / "Si.pz-vbc.UPF").write_bytes(gzip.decompress((ESPRESSO / "Si.pz-vbc.UPF.gz").read_bytes()))
        (folder / "si.in").write_text(PW_INPUT.replace("{cutoff}", str(cutoff)), encoding="utf-8")
        return ["pw.x", "-in", "si.in"]

    return prepare


def prepare_petsc(_folder, _ranks):
    return ["/usr/bin/python3", str(PROGRAMS_OF_TESTS / "petsc_cg.py"), "400"]


def prepare_poisson(_folder, _ranks):
    return ["{build}/bin/preload_poisson", "256", "800"]


PROGRAMS = {
    "hpcc": prepare_hpcc,
    "lammps-melt": prepare_lammps("melt", 1500),
    "lammps-peptide": prepare_lammps("peptide", 500),
    "cp2k-h2o": prepare_cp2k("h2o"),
    "cp2k-argon": prepare_cp2k("Ar-qmmm"),
    "scalapack-lu": prepare_scalapack,
    "espresso-si8": prepare_espresso(24),
    "espresso-si8-fine": prepare_espresso(90),
    "petsc-cg": prepare_petsc,  # with neighbourhood collectives
    "poisson": prepare_poisson,  # with those and persistent ones
}


def launcher(hosts, per_host, rates):
    ranks = str(hosts * per_host)
    if hosts == 1:
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", ranks]
    return [str(TOP / "ci" / "rails"), "once", str(hosts), rates, "-n", ranks, "--per-host", str(per_host), "--"]


def seconds(command, folder, environment, what):
    began = time.monotonic()
    with (folder / "out").open("wb") as out:
        run = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    took = time.monotonic() - began
    if run.returncode != 0:
        tail = (folder / "out").read_text(errors="replace").splitlines()[-15:]
        raise RuntimeError(f"{what} ended with {run.returncode}:\n" + "\n".join(tail))
    return took


def compare(name, hosts, per_host, options):
    folder = options.work / f"{name}-{hosts}x{per_host}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program = [word.replace("{build}", str(options.build)) for word in PROGRAMS[name](folder, hosts * per_host)]
    start = launcher(hosts, per_host, options.rates)
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", FLX_MPI=options.mode)
    environment["FLX_CACHE"] = str(options.work / "cache")
    with_flx = [str(options.build / "bin" / "flx-run"), "--"]
    where = f"{name}, {hosts}x{per_host}"
    seconds(start + with_flx + program, folder, environment, f"{where} with FLX")
    plain, flx = [], []
    for _ in range(options.turns):
        plain.append(seconds(start + program, folder, environment, f"{where} without FLX"))
        flx.append(seconds(start + with_flx + program, folder, environment, f"{where} with FLX"))
    ratios = [a / b for a, b in zip(plain, flx)]
    noise = [a / b for a, b in zip(plain, plain[1:])] or [1.0]
    return (
        f"| {name} | {hosts}×{per_host} | {statistics.median(plain):.2f} | {statistics.median(flx):.2f} "
        f"| {statistics.median(plain) / statistics.median(flx):.2f} | {min(ratios):.2f} to {max(ratios):.2f} "
        f"| {min(noise):.2f} to {max(noise):.2f} |"
    )


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rates", default="800,400,200")
    parser.add_argument("--placements", default="1x2 1x4 2x1 2x2 4x1")
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build" / "release")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--work", type=pathlib.Path, default=TOP / "build" / "preload-times")
    options = parser.parse_args()
    unknown = set(options.programs) - set(PROGRAMS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(PROGRAMS)}")
    options.build = options.build.resolve()
    options.work = options.work.resolve()
    failures = 0
    print("| program | hosts×ranks | plain s | FLX s | ratio | of turns | plain against itself |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for placement in options.placements.split():
        hosts, per_host = (int(part) for part in placement.split("x"))
        for name in options.programs:
            try:
                print(compare(name, hosts, per_host, options), flush=True)
            except RuntimeError as error:
                failures += 1
                print(f"| {name} | {hosts}×{per_host} | failed | | | | |", flush=True)
                print(error, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
