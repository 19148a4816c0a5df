#!/bin/sh
# orphan_test.sh FLX_RUN RANKS PROGRAM: a rank that was killed is noticed within seconds, under the preload, although a
# child that it has forked lives on.
set -u
export FLX_MPI=on
flx_run=$1 ranks=$2 program=$3
log=$(mktemp)
trap 'rm -f "$log"' EXIT
timeout -k 5 50 mpirun --allow-run-as-root --oversubscribe --bind-to none --enable-recovery -n "$ranks" \
    "$flx_run" "$program" >"$log" 2>&1
cat "$log"
# A second for a death, and one that it takes to be killed, on a machine that has more ranks than cores.
awk -v wanted=$((ranks - 1)) '/^noticed after/ && $3 < 2 { found++ } END { exit found == wanted ? 0 : 1 }' "$log"
