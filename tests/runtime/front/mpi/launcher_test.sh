#!/bin/bash
# What users get wrong with flx-run and FLX_MPI, and what they choose:
#   launcher_test.sh LAUNCHER FLX_RUN COLLECTIVES INITIATION WRONG SHORT
set -u
launcher=$1 flx_run=$2 program=$3 initiation=$4 wrong=$5 short=$6
failures=0
export FLX_MPI=on FLX_CACHE=none
try() { # NAME CODE PATTERN COMMAND…: the exit code (nonzero: any) and a pattern in what is said
    local name=$1 wanted=$2 pattern=$3 said code
    shift 3
    said=$(timeout 100 "$@" 2>&1)
    code=$?
    if { [ "$wanted" = 0 ] && [ $code != 0 ]; } || { [ "$wanted" != 0 ] && [ $code = 0 ]; } ||
        ! grep -qE -- "$pattern" <<<"$said"; then
        echo "FAILED: $name (code $code): $said"
        failures=$((failures + 1))
    else
        echo "ok: $name"
    fi
}
mpi=("$launcher" -n 2)
try "an unknown collective" 1 'names "allredcue".*auto, on, off, or some of allgather, allgatherv, allreduce' \
    "${mpi[@]}" "$flx_run" --only allredcue "$program" 1 5
try "an unknown knob" 1 'FLX_STAT is not a knob of FLX; did you mean FLX_STATS' "${mpi[@]}" env FLX_STAT=1 "$flx_run" "$program" 1 5
try "ranks that choose otherwise" 1 'must be the same on all' \
    "$launcher" -n 1 "$flx_run" --only bcast "$program" 1 5 \
    : -n 1 "$flx_run" --only barrier "$program" 1 5
began=$SECONDS
try "only some ranks" 1 'rank 0: some ranks of MPI_COMM_WORLD run without FLX, .* flx-run must start all of them' \
    env FLX_DEADLINE=2 "$launcher" -n 1 "$flx_run" "$program" 1 5 : -n 1 "$program" 1 5
[ $((SECONDS - began)) -lt 40 ] || { echo "FAILED: only some ranks: after $((SECONDS - began)) s"; failures=$((failures + 1)); }
try "some collectives" 0 'allreduce +0 .*not in FLX_MPI' "${mpi[@]}" "$flx_run" --only bcast,barrier --stats "$program" 1 60
try "the chosen ones are served" 0 'barrier +[1-9]' "${mpi[@]}" "$flx_run" --only bcast,barrier --stats "$program" 1 60
try "not blocking, at first" 0 'non-blocking barrier .* not blocking, (before FLX served a blocking call on the communicator|and MPI is not)' \
    "${mpi[@]}" "$flx_run" --stats "$initiation"
try "one rank" 0 'one rank' "$flx_run" --stats "$program" 1 20
try "links are measured briefly on one host" 0 '^for 40 ms$' "${mpi[@]}" "$flx_run" -- sh -c 'echo "for $FLX_PROBE_MS ms"'
try "or as long as the user says" 0 '^for 77 ms$' env FLX_PROBE_MS=77 "${mpi[@]}" "$flx_run" -- sh -c 'echo "for $FLX_PROBE_MS ms"'
try "and as ever on several" 0 '^for  ms$' env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 "$flx_run" -- \
    sh -c 'echo "for $FLX_PROBE_MS ms"'
# What most people will run first: nothing is made that would not pay.
try "a short program is MPI's" 0 '[0-9] before FLX would pay' env FLX_MPI=auto "${mpi[@]}" "$flx_run" --stats "$program" 1 20
# libflx and what it needs take each rank 20 ms to load.
loads() { # MODE YES-OR-NO
    try "libflx in a short program with FLX_MPI=$1: $2" 0 "^right, loaded: $2\$" env FLX_MPI="$1" "${mpi[@]}" "$flx_run" -- sh -c '
        said=$(LD_DEBUG=files "$0" 2>&1) || exit 1
        case $said in *"calling init: "*/libflx.so*) loaded=yes ;; *) loaded=no ;; esac
        case $said in *right*) echo "right, loaded: $loaded" ;; esac' "$short"
}
loads auto no
loads on yes
try "everything off" 0 '[0-9] not in FLX_MPI' env FLX_MPI=off "${mpi[@]}" "$flx_run" --stats "$program" 1 20
try "a folder that cannot be written" 0 'what is kept: /proc/none/.* is not written: ' \
    env FLX_MPI=auto FLX_CACHE=/proc/none "${mpi[@]}" "$flx_run" --stats "$program" 1 20
try "whoever's launcher started them" 0 '^for  ms$' env PMI_SIZE=4 MPI_LOCALNRANKS=2 "$flx_run" -- \
    sh -c 'echo "for $FLX_PROBE_MS ms"'
try "or on one" 0 '^for 40 ms$' env PMI_SIZE=4 MPI_LOCALNRANKS=4 "$flx_run" -- sh -c 'echo "for $FLX_PROBE_MS ms"'
for nodes in 1 2; do
    try "or Slurm's, on $nodes nodes" 0 "^for $([ $nodes != 1 ] || echo 40) ms\$" env SLURM_STEP_NUM_NODES=$nodes "$flx_run" -- \
        sh -c 'echo "for $FLX_PROBE_MS ms"'
done
try "a program that is not MPI's" 0 '^hello$' "$flx_run" -- echo hello
try "arguments that are wrong on one rank" 1 'rank 1 called MPI_Gather with arguments that MPI does not allow' \
    "${mpi[@]}" "$flx_run" -- "$wrong" fatal
# Open MPI's runtime may lose the text on its way to mpirun when a rank ends at once, and then says so.
try "the error that MPI gives for them" 1 'MPI_ERR_COUNT|Invalid count|ORTE_ERROR_LOG.*show_help' "${mpi[@]}" "$flx_run" -- "$wrong" fatal
try "no program" 2 'flx-run \[OPTIONS\]' "$flx_run"
try "an unknown option" 2 '--stats, --library' "$flx_run" --stat "$program"
[ $failures = 0 ]
