#!/bin/bash
# Runs a program under Slurm, on two nodes: hosts of ci/rails with a daemon each, and the controller on the first one.
#   slurm.sh pmix|pmi2 -n N PROGRAM ARGUMENTS…
# Nothing of it is seen outside of the hosts' namespaces, and all ends with this script. Where it cannot be had it says
# why, and the exit code is 77.
set -u
rails=$(dirname "$(readlink -f "$0")")/../../../../ci/rails
mpi=$1 ranks=$3
for program in slurmctld slurmd sinfo srun; do
    command -v $program >/dev/null || { echo "skipped: $program is missing; ci/setup --slurm installs it"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bed=$("$rails" create --owner $$ --share "$work" --share "$PWD" 2 800,400) || exit
trap '"$rails" --bed "$bed" destroy; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
on() { "$rails" --bed "$bed" exec "$@"; }

# Who may talk to whom needs no proof where nobody else can. A host's /tmp is its own.
cat >"$work/slurm.conf" <<CONF
ClusterName=flx
SlurmctldHost=h1
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=/tmp/state
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdSpoolDir=/tmp/spool
SlurmdPidFile=/tmp/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
NodeName=h[1-2] CPUs=8
PartitionName=all Nodes=ALL Default=YES
CONF
export SLURM_CONF=$work/slurm.conf
for host in 1 2; do on $host mkdir -p /tmp/state /tmp/spool; done
on 1 slurmctld -D </dev/null >"$work/controller" 2>&1 &
for host in 1 2; do on $host slurmd -D -N h$host </dev/null >"$work/node$host" 2>&1 & done
for ((i = 0; i < 100; ++i)); do
    on 1 sinfo -h -t idle -o %D >"$work/idle" 2>&1 && [ "$(cat "$work/idle")" = 2 ] && break
    sleep 0.1
done
[ $i -lt 100 ] || { echo "slurm.sh: the nodes do not come up"; tail -n 5 "$work/idle" "$work/controller" "$work"/node*; exit 1; } >&2
# Open MPI takes hosts to have all of this machine's cores, and to be alone there.
on 1 srun --mpi="$mpi" -N 2 -n "$ranks" -m cyclic \
    env OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_tcp_if_include=10.77.0.0/16 "${@:4}" &
wait $!  # which a signal ends at once
