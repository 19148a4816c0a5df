#!/bin/bash
# Every rail between two hosts is cut for longer than FLX's own programs wait: under flx-run the program waits as long as
# MPI would, and goes on when they are back. outage_test.sh BED FLX_RUN OUTAGE, the first being ci/rails.
set -u
rails=$1 flx_run=$2 program=$3
seconds=35
bed=$("$rails" create --owner $$ 2 400,200) || exit $?
work=$(mktemp -d "$(dirname "$program")/outage.XXXXXX")  # which all hosts see
trap '"$rails" --bed "$bed" destroy; rm -rf "$work"' EXIT
fail() { cat "$work/said"; echo "FAILED: $*"; exit 1; }

# MPI's own messages take another network, which stays whole.
timeout 150 "$rails" --bed "$bed" mpirun -n 2 --mgmt -- "$flx_run" -- "$program" "$work/enough" >"$work/said" 2>&1 &
pid=$!
for ((i = 0; i < 300; ++i)); do grep -q begun "$work/said" && break; sleep 0.1; done
grep -q begun "$work/said" || fail "it does not begin"
sleep 1
for rail in 1 2; do "$rails" --bed "$bed" cut $rail 2; done
sleep $seconds
kill -0 $pid 2>/dev/null || fail "it ends while the rails are cut"
for rail in 1 2; do "$rails" --bed "$bed" restore $rail 2; done
sleep 3
touch "$work/enough"
wait $pid || fail "code $?"
grep -q " lost (" "$work/said" || fail "no rail was lost"
grep -qx right "$work/said" || fail "it does not say right"
echo ok
