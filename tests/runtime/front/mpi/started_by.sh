#!/bin/bash
# Starts the ranks of a program in one of the ways in which users do:
#   started_by.sh LAUNCHER WAY -n N PROGRAM ARGUMENTS…
# LAUNCHER: tests/ranks of the build. WAY:
#   here        on this host
#   core        on this host, each rank bound to a core: mpirun --map-by core --bind-to core
#   container   on this host, with the 64 MiB of /dev/shm that a container has
#   2, 3, …     on so many hosts that ci/rails makes, with two rails between them, neighbours on the same host
#   by_node     on two of them, neighbours on different ones: mpirun --map-by node
#   pmix, pmi2  on two nodes of Slurm, neighbours on different ones: srun --mpi=…
# Where that cannot be had it says why, and the exit code is 77.
set -u
here=$(dirname "$(readlink -f "$0")")
rails=$here/../../../../ci/rails
launcher=$1 way=$2 ranks=$4
case $way in
here) exec "$launcher" "${@:3}" ;;
core) exec "$launcher" --by-core "${@:3}" ;;
container)
    mount='mount -t tmpfs -o size=64m,mode=1777 shm /dev/shm'
    own=(unshare --user --map-root-user --mount)
    why=$("${own[@]}" sh -c "$mount" 2>&1) || { echo "skipped: /dev/shm cannot be replaced here: $why"; exit 77; }
    exec "${own[@]}" sh -c "$mount"' && exec "$@"' sh "$launcher" "${@:3}" ;;
pmi*) exec "$here/slurm.sh" "$way" "${@:3}" ;;
*)
    hosts=$way options=()
    [ "$way" != by_node ] || hosts=2 options=(--map-by node)
    exec "$rails" once "$hosts" 800,400 -n "$ranks" --per-host $((ranks / hosts)) ${options[@]+"${options[@]}"} -- "${@:5}" ;;
esac
