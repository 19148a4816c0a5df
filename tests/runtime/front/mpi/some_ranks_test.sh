#!/bin/bash
# flx-run on some ranks only is an error that says so, within the deadline, whoever started them:
#   some_ranks_test.sh LAUNCHER WAY FLX_RUN PROGRAM        WAY: see started_by.sh
set -u
launcher=$1 way=$2 flx_run=$3 program=$4
started_by=$(dirname "$(readlink -f "$0")")/started_by.sh
patience=2  # of 30 s; starting and ending ranks may take long on a machine that is busy
export FLX_DEADLINE=$patience FLX_MPI=on
failures=0
# Without FLX they wait for the others in the program's first collective.
for without in 0 3; do
    said=$(timeout 60 "$started_by" "$launcher" "$way" -n 4 sh -c '
        front="$1 --"
        [ "${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-$PMI_RANK}}" != "$0" ] || front=
        [ -n "$front" ] || date +"began %s.%N" >&2
        shift
        exec $front "$@"' $without "$flx_run" "$program" 1 5 2>&1)
    code=$?
    ended=$(date +%s.%N)
    if [ $code = 77 ]; then sed 's/^ci.rails: //' <<<"$said"; exit 77; fi
    # Of those with FLX at least the first one says it, before it ends the program.
    one="rank $([ $without = 0 ] && echo '[123]' || echo '[012]')"
    took=$(awk -v ended="$ended" '$1 == "began" { print int(ended - $2); exit }' <<<"$said")
    if [ $code = 0 ] || [ $code = 124 ] || [ "${took:-99}" -gt $((patience + 20)) ] ||
        ! grep -qE "^flx_mpi: $one: some ranks of MPI_COMM_WORLD run without FLX, .* flx-run must start all" <<<"$said"; then
        echo "$said"
        echo "FAILED: rank $without without FLX: code $code after ${took:-?} s"
        failures=$((failures + 1))
    else
        echo "ok: rank $without without FLX, after $took s"
    fi
done
[ $failures = 0 ]
