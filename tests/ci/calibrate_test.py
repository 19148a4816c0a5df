#!/usr/bin/env python3
"""ci/calibrate: that it compares what it says, and that a fit finds what was changed: calibrate_test.py SOURCE
SIMULATE"""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
SOURCE = pathlib.Path(sys.argv[1])
SCRIPT = SOURCE / "ci/calibrate"
MACHINE = SOURCE / "apps/flx_simulate/machines/emulated-rails.toml"
BED = "2x2:4000,2000"


def module():
    loader = importlib.machinery.SourceFileLoader("calibrate", str(SCRIPT))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader("calibrate", loader))
    loader.exec_module(made)
    made.PROGRAM = sys.argv[2]
    return made


def figures_of(calibrate, machine, folder):
    """As if what is predicted on the machine had been measured."""
    asked = [(BED, "allreduce", size) for size in (8, 4096)] + [(BED, "allgather", 64), (BED, "barrier", 8)]
    cells = {}
    for (_, collective, size), (us, name) in calibrate.predicted_on(machine, BED, asked).items():
        cells.setdefault(collective, {})[str(size)] = {name: [[us, 0.9 * us, 1.1 * us], [us, us, us]]}
    file = pathlib.Path(folder) / "figures.json"
    file.write_text(json.dumps({"beds": {BED: {"cells": cells}}}), encoding="utf-8")
    return file


def check_beds():
    calibrate = module()
    fields = calibrate.Bed("4x2:4000,1000").fields()
    assert fields["", "hosts"] == "4" and fields["", "ranks"] == "2" and fields["far", "rails"] == "2", fields
    rates = json.loads(fields["far", "bandwidth"])
    assert abs(rates[0] - calibrate.PAYLOAD * 0.5) < 1e-6 and abs(rates[0] / rates[1] - 4) < 1e-3, fields
    assert calibrate.Bed("1x8").fields() == {("", "hosts"): "1", ("", "ranks"): "8"}
    try:
        calibrate.Bed("4by2")
        raise AssertionError("this is no bed")
    except SystemExit as error:
        assert "bed '4by2' is not HOSTSxRANKS" in str(error), error


def check_summary():
    calibrate = module()
    text = calibrate.summary("x", {i: off for i, off in enumerate([0.01, -0.05, 0.1, 0.2, -0.5])})
    assert text == "x: 5 cells, median error 10 %, 4 within 20 %, 9 of 10 within 50 %", text


def check_fit():
    calibrate = module()
    machine = calibrate.read_machine(MACHINE)
    with tempfile.TemporaryDirectory() as folder:
        figures = calibrate.measured(figures_of(calibrate, machine, folder))
    assert figures[BED, "barrier", 8].low < figures[BED, "barrier", 8].us < figures[BED, "barrier", 8].high
    assert all(abs(off) < 1e-9 for off in calibrate.errors(figures, calibrate.predicted(machine, figures)).values())
    off = {**machine, ("far", "latency_ns"): str(2 * float(machine["far", "latency_ns"]))}
    before = calibrate.far_off(figures, off)
    assert before > 0.05, before
    calibrate.FIELDS = {("far", "latency_ns"): calibrate.FIELDS["far", "latency_ns"]}
    assert calibrate.far_off(figures, calibrate.fit(figures, off)) < 0.2 * before


def check_program():
    with tempfile.TemporaryDirectory() as folder:
        calibrate = module()
        file = figures_of(calibrate, calibrate.read_machine(MACHINE), folder)
        done = subprocess.run([SCRIPT, "--program", sys.argv[2], "--markdown", f"{folder}/tables.md", MACHINE, file],
                              capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0 and "all: 7 cells, median error 0 %" in done.stdout, done
        tables = pathlib.Path(folder, "tables.md").read_text(encoding="utf-8")
        assert "## 2x2, rails of 4000,2000" in tables and "| barrier |" in tables, tables
        done = subprocess.run([SCRIPT, "--program", sys.argv[2], MACHINE, f"{folder}/none.json"], capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode != 0 and "none.json: this file cannot be read" in done.stderr, done


check_beds()
check_summary()
check_fit()
check_program()
