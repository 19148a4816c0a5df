#!/bin/bash
# A program whose buffers are in GPU memory:
#   gpu_buffers_test.sh LAUNCHER FLX_RUN RANKS MODE SAID PROGRAM [STAND_IN…]
# LAUNCHER: tests/ranks of the build. MODE is FLX_MPI, or none: without
# flx-run. SAID: what must be said on stderr, where the table of --stats is, too, or after a ! must not. STAND_INs are
# preloaded behind FLX.
# FLX_MPI=auto: in the second of three runs FLX is made early, as if programs that were too short to pay had added up;
# in the third one FLX is known to be faster in all classes, and gets the call for which it is made.
set -u
launcher=$1 flx_run=$2 ranks=$3 mode=$4 said=$5 program=$6
shift 6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
preload=$(IFS=:; echo "$*")
run=(timeout 200 "$launcher" -n "$ranks" env ${preload:+LD_PRELOAD="$preload"} FLX_CACHE="$work/cache")
[ "$mode" = none ] || run+=(FLX_MPI="$mode" "$flx_run" --stats --)

once() {
    "${run[@]}" "$program" "$@" >"$work/out" 2>"$work/stats"
    code=$?
    [ $code != 77 ] || { cat "$work/out"; exit 77; }
    [ $code = 0 ] && grep -qx right "$work/out" || { cat "$work/out" "$work/stats"; echo "FAILED: code $code"; exit 1; }
}
once
[ "$mode" = auto ] && for number in 2 3; do
    python3 - "$work"/cache/mpi-*.json $number <<'PYTHON' || { echo "FAILED: nothing is kept"; exit 1; }
import json, sys, time
with open(sys.argv[1]) as file:
    kept = json.load(file)
for shape in kept["shapes"].values():
    shape["unpaid_us"] = 1e9
    shape.pop("price_us", None)
    shape.pop("price_when", None)
    if sys.argv[2] == "3":
        for size in ["0", "any"] + [str(4**power) for power in range(14)]:
            for name in ("allgather allgatherv allreduce alltoall alltoallv alltoallw bcast exscan gather gatherv reduce "
                         "reduce_scatter reduce_scatter_block scan scatter scatterv").split():
                for where in "", " gpu":
                    shape["classes"][f"{name} {size}{where}"] = {"mpi_us": 1e4, "flx_us": 1, "when": int(time.time())}
assert kept["shapes"]
with open(sys.argv[1], "w") as file:
    json.dump(kept, file)
PYTHON
    once 600
done
if [[ $said = !* ]]; then
    ! grep -q "${said#!}" "$work/stats" || { cat "$work/stats"; echo "FAILED: said: ${said#!}"; exit 1; }
else
    [ -z "$said" ] || grep -q "$said" "$work/stats" || { cat "$work/stats"; echo "FAILED: not said: $said"; exit 1; }
fi
grep -h "buffers compared" "$work/out"
