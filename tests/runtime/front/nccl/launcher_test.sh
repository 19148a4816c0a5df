#!/bin/bash
# flx-run --nccl with a program that loads NCCL privately, and without any NCCL: launcher_test.sh FLX_RUN PROGRAM LIBRARY
set -u
flx_run=$1 program=$2 library=$3
failures=0
try() { # WHAT CODE PATTERN COMMAND…
    local what=$1 code=$2 pattern=$3 said
    shift 3
    said=$(timeout 50 "$@" 2>&1)
    local got=$?
    if [ $got = "$code" ] && grep -qE -- "$pattern" <<<"$said"; then
        echo "ok: $what"
    else
        echo "FAILED: $what: code $got, said: $said"
        failures=$((failures + 1))
    fi
}
try "a library of the program's own has NCCL" 0 '^right$' "$flx_run" --nccl -- "$program" "$library"
try "the report says why calls were passed on" 0 'AllReduce +0 +0 B +2 +80 B +2 FLX_NCCL is off' \
    env FLX_NCCL=off "$flx_run" --nccl --stats "$program" "$library"
[ -e /dev/nvidiactl ] ||
    try "and why no communicator is served" 0 '2 communicators left to NCCL: FLX has no GPU to use: ' \
        "$flx_run" --nccl --stats "$program" "$library"
try "without an NCCL it says where it looked" 0 \
    '^2: FLX stands in front of NCCL and found none behind it: .*/nowhere/libnccl.so cannot be used.*FLX_NCCL_LIBRARY' \
    env FLX_NCCL_LIBRARY=/nowhere/libnccl.so "$flx_run" --nccl "$program"
try "the library's path" 0 '/libflx_nccl.so$' "$flx_run" --nccl --library
try "MPI's library is the one without --nccl" 0 '/libflx_mpi.so$' "$flx_run" --library
[ $failures = 0 ]
