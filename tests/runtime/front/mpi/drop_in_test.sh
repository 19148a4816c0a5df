#!/bin/bash
# An unmodified program with and without the drop-in library:
#   drop_in_test.sh LAUNCHER FLX_RUN RANKS compare|right SERVED PROGRAM ARGUMENTS…
# LAUNCHER: tests/ranks of the build.
# RANKS: 4 on this host, or 4@WAY: started in a way that started_by.sh knows, such as 4@2, on two hosts.
# compare: it must print the same lines; right: it says "right" itself. SERVED: collectives, with commas between, of which
# FLX must have served some calls, with non-blocking: or persistent: before where that form is meant; or none.
# FLX_MPI=auto in the environment: calls are compared as soon as a communicator has had four, as if programs that were
# too short for that had added up. Else FLX serves all that it can.
set -u
launcher=$1 flx_run=$2 ranks=$3 how=$4 served=$5
shift 5
limit=240
[ "${FLX_TEST_FULL:-}" != 1 ] || limit=7000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FLX_MPI="${FLX_MPI:-on}" FLX_CACHE=$work/cache
way=here
[[ $ranks != *@* ]] || way=${ranks#*@}
mpi=(timeout $limit "$(dirname "$(readlink -f "$0")")/started_by.sh" "$launcher" "$way" -n "${ranks%@*}")

if [ "$FLX_MPI" = auto ]; then
    "${mpi[@]}" "$flx_run" -- "$@" >"$work/with" 2>"$work/stats"
    code=$?
    if [ $code = 77 ]; then cat "$work/with"; sed -n 's/^ci.rails: //p' "$work/stats"; exit 77; fi
    [ $code = 0 ] || { cat "$work/with" "$work/stats"; echo "FAILED: code $code with the library"; exit 1; }
    python3 - "$work"/cache/mpi-*.json <<'PYTHON' || { echo "FAILED: nothing is kept"; exit 1; }
import json, sys
with open(sys.argv[1]) as file:
    kept = json.load(file)
for shape in kept["shapes"].values():
    shape["unpaid_us"] = 1e9
    shape.pop("price_us", None)
    shape.pop("price_when", None)
assert kept["shapes"]
with open(sys.argv[1], "w") as file:
    json.dump(kept, file)
PYTHON
fi
"${mpi[@]}" "$flx_run" --stats -- "$@" >"$work/with" 2>"$work/stats"
code=$?
if [ $code = 77 ]; then cat "$work/with"; sed -n 's/^ci.rails: //p' "$work/stats"; exit 77; fi
[ $code = 0 ] || { cat "$work/with" "$work/stats"; echo "FAILED: code $code with the library"; exit 1; }
if [ "$how" = compare ]; then
    "${mpi[@]}" "$@" >"$work/without" 2>&1 || { cat "$work/without"; echo "FAILED: without the library"; exit 1; }
    [ -s "$work/without" ] && diff <(sort "$work/without") <(sort "$work/with") ||
        { echo "FAILED: other lines with the library"; exit 1; }
else
    grep -qx right "$work/with" || { cat "$work/with" "$work/stats"; echo "FAILED: it does not say right"; exit 1; }
fi
[ "$served" != none ] || served=
for name in ${served//,/ }; do
    # In the table of FLX_STATS the form comes first, then the collective, then how many were served.
    awk -v name="${name/:/ }" '{ first = $1 == "non-blocking" || $1 == "persistent" ? $1 " " $2 : $1
            count = first == $1 ? $2 : $3 } first == name && count > 0 { found = 1 } END { exit !found }' "$work/stats" ||
        { cat "$work/stats"; echo "FAILED: FLX served no $name"; exit 1; }
done
echo "ok"
