#!/bin/bash
# What flx_tune leaves for the next program, and what it says when it is not started as it should be:
#   tune_test.sh LAUNCHER FLX_RUN FLX_TUNE
set -u
launcher=$1 flx_run=$2 flx_tune=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FLX_CACHE=$work/cache
fail() { echo "FAILED: $1"; cat "$work/out"; exit 1; }
run() { timeout 100 "$launcher" -n 2 "$@" >"$work/out" 2>&1; }

run "$flx_tune" && fail "it runs without flx-run"
grep -q "flx_tune: rank 0: it must be started by flx-run: mpirun -n N flx-run -- flx_tune" "$work/out" || fail "no reason"
run "$flx_run" -- "$flx_tune" --collectives bcast,allredcue && fail "it takes an unknown collective"
grep -q "allredcue is none; allgather, allgatherv, allreduce" "$work/out" || fail "it does not say which there are"
for size in 2 2G 1K,2K big; do
    run "$flx_run" -- "$flx_tune" --largest $size && fail "it takes --largest $size"
    grep -q -- "--largest $size: " "$work/out" || fail "it does not say what is wrong with --largest $size"
done
[ ! -e "$FLX_CACHE" ] || fail "something was kept"

run "$flx_run" -- "$flx_tune" --collectives allreduce,barrier,bcast --largest 16K --seconds 6 || fail "code $?"
grep -qE "^3 collectives, up to 16 KiB: [0-9]+ rounds in [0-9]+ s\." "$work/out" || fail "it does not say what it did"
python3 - "$FLX_CACHE" <<'PYTHON' >"$work/out" 2>&1 || fail "not what should be kept"
import json, pathlib, sys
(times,) = pathlib.Path(sys.argv[1]).glob("mpi-*.json")
shapes = json.loads(times.read_text())["shapes"]
(shape,) = shapes.values()
expected = {"barrier 0"} | {f"{name} {4**power}" for name in ("allreduce", "bcast") for power in range(1, 8)}
missing = expected - set(shape["classes"])
assert not missing, f"{missing} of {shapes}"
assert all(each["mpi_us"] > 0 and each["flx_us"] > 0 for each in shape["classes"].values()), shapes
assert shape["price_us"] > 0, shapes
(links,) = pathlib.Path(sys.argv[1]).glob("links-*.json")
assert json.loads(links.read_text())["communicators"]
PYTHON
# The next program begins with it.
run "$flx_run" --stats -- "$flx_tune" --collectives barrier --seconds 1 || fail "code $?"
grep -q "times of 1 kinds of communicators were read" "$work/out" || fail "it is not read"
echo ok
