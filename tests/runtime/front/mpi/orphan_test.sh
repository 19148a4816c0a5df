#!/bin/sh
# orphan_test.sh LAUNCHER FLX_RUN RANKS PROGRAM: a rank that was killed is noticed within seconds, under the preload, although a
# child that it has forked lives on.
set -u
export FLX_MPI=on
launcher=$1 flx_run=$2 ranks=$3 program=$4
log=$(mktemp)
trap 'rm -f "$log" "$log.launcher"' EXIT
# Each rank writes to the file itself: a launcher may lose what ranks say when one has died.
timeout -k 5 50 "$launcher" --survivors -n "$ranks" sh -c 'exec "$@" >>"$0" 2>&1' "$log" "$flx_run" "$program" >"$log.launcher" 2>&1
cat "$log.launcher" "$log"
# A second for a death, and one that it takes to be killed, on a machine that has more ranks than cores.
awk -v wanted=$((ranks - 1)) '/^noticed after/ && $3 < 2 { found++ } END { exit found == wanted ? 0 : 1 }' "$log"
