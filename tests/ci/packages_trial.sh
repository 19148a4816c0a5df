#!/bin/bash
# What packages_test.sh runs in a fresh Debian: /flx/packages are installed, used and removed.
set -u
export DEBIAN_FRONTEND=noninteractive
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
ok() { echo "ok: $*"; }
quietly() { "$@" >/tmp/log 2>&1 || { cat /tmp/log; return 1; }; }
apt() { quietly apt-get -qq -y --no-install-recommends -o APT::Update::Error-Mode=any "$@" </dev/null; }
# All that is there, but what apt and dpkg keep of any package, and the caches of what looks through others' files.
everything() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /flx -o -path /root \
        -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \) -prune -o -print | sort
}

apt update || { fail "apt-get update"; exit 1; }
# What users have who compile programs.
apt install bash-completion cmake gcc libc6-dev make man-db openmpi-bin pkg-config libopenmpi-dev gfortran fish zsh ||
    { fail "Debian's own packages"; exit 1; }

everything >/tmp/before

apt --simulate install /flx/packages/flx-tools_*.deb >/dev/null && fail "flx-tools comes without libflx0"
apt install /flx/packages/*.deb && ok "all are installed" ||
    { fail "the packages cannot be installed"; exit 1; }
ldconfig -p | grep -q libflx.so.0 || fail "the loader does not know libflx.so.0"
dpkg --verify libflx0 libflx-dev flx-tools flx-doc || fail "what is installed is not what the packages have"
for program in /usr/bin/flx*; do
    ldd "$program" 2>/dev/null | grep 'not found' && fail "$program lacks a library"
    man -w "$(basename "$program")" >/dev/null 2>&1 || fail "$program has no man page"
    [ "$program" = /usr/bin/flx-run ] || quietly "$program" --help || fail "$program does not start"
done

# Programs that are compiled with them.
cd /tmp || exit 1
flags=$(pkg-config --cflags --libs flx) || fail "pkg-config does not know flx"
quietly gcc -std=c11 -Wall -Wextra -Werror /flx/consumer/consumer.c -o by_pkg_config $flags || fail "pkg-config: $flags"
readelf -d by_pkg_config | grep -qE 'RPATH|RUNPATH' && fail "pkg-config sets a path for the loader"
built() { quietly cmake -S "$1" -B "$2" -DLANGUAGE=C && quietly cmake --build "$2"; }
built /flx/consumer by_cmake || fail "find_package(flx)"
example=/usr/share/doc/flx/examples/trainer_skeleton
built $example example && quietly mpirun -n 2 example/trainer_skeleton 10 && ok "the example" || fail "the example"
for program in ./by_pkg_config ./by_cmake/consumer; do
    said=$(mpirun -n 2 "$program" 2>&1)
    [ "$(grep -c '^right$' <<<"$said")" = 2 ] && ok "$program" || fail "$program: $said"
done
printf '%s\n' 'program consumer' 'use flx' 'print "(a)", "right"' 'end program' >in_fortran.f90
flags=$(pkg-config --cflags --libs flx-fortran) || fail "pkg-config does not know flx-fortran"
quietly gfortran in_fortran.f90 -o in_fortran $flags && [ "$(./in_fortran)" = right ] && ok "use flx" || fail "use flx"

# A program that knows nothing of FLX.
cat >plain.c <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int one = 1, sum = 0;
    for (int i = 0; i < 100; i++)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("the sum is %d\n", sum);
    MPI_Finalize();
    return 0;
}
C
quietly mpicc plain.c -o plain || fail "mpicc"
said=$(FLX_MPI=on mpirun -n 2 flx-run --stats -- ./plain 2>&1)
[ "$(grep -c '^the sum is 2$' <<<"$said")" = 2 ] && grep -q 'flx_mpi: collectives of 2 ranks' <<<"$said" &&
    ok "flx-run" || fail "flx-run: $said"
[ -r "$(flx-run --library)" ] && [ -r "$(flx-run --nccl --library)" ] || fail "flx-run --library"
quietly mpirun -n 2 flx_perf allreduce --sizes 1K --max-seconds 0.1 && ok "flx_perf" || fail "flx_perf"
quietly flx_top --once || fail "flx_top"

python=$(dpkg-query -W -f='${Package} ' python3-flx python3-flx-torch 2>/dev/null)  # where the build had them
if [ -n "$python" ]; then
    said=$(MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 RANK=0 WORLD_SIZE=1 python3 -c 'import flx
numbers = bytearray(b"right")
flx.Communicator.from_store().allreduce(numbers)
print(numbers.decode())' 2>&1)
    [ "$said" = right ] && ok "import flx" || fail "import flx: $said"
fi

# What a person reads and types.
for name in flx_allreduce flx flx_iallreduce; do
    man -P cat 3 $name 2>/tmp/log | grep -q "$name" || fail "man $name: $(cat /tmp/log)"
done
man -P cat flx_allreduce | grep -q 'flx_status_t flx_allreduce(const void \*sendbuf' && ok "man flx_allreduce" ||
    fail "man flx_allreduce: $(man -P cat flx_allreduce)"
mandb -q && apropos -s 3 flx_allreduce | grep -q 'flx_allreduce (3)' || fail "apropos flx_allreduce"
said=$(bash -ic '. /usr/share/bash-completion/bash_completion; _completion_loader flx_info; COMP_WORDS=(flx_info --kn)
    COMP_CWORD=1; _flx_info; echo "${COMPREPLY[@]}"' 2>/dev/null)
[ "$said" = --knobs ] && ok "completion by bash" || fail "completion by bash: $said"
said=$(fish -c 'complete -C "flx_info --kn"' | cut -f 1)
[ "$said" = --knobs ] && ok "completion by fish" || fail "completion by fish: $said"
said=$(zsh -fc 'autoload -Uz compinit && compinit -u && echo $_comps[flx_info]')
[ "$said" = _flx_info ] && ok "completion by zsh" || fail "completion by zsh: $said"
[ -e /usr/share/doc/flx/tutorial.md ] || fail "flx-doc has no tutorial"

# And nothing is left of them, nor of what they brought along.
apt purge libflx0 libflx-dev flx-tools flx-doc $python || fail "they cannot be removed"
apt autoremove --purge || fail "what they brought cannot be removed"
everything >/tmp/after
left=$(comm -13 /tmp/before /tmp/after)
[ -z "$left" ] || fail "left behind: $left"
ldconfig -p | grep -i libflx && fail "the loader still knows libflx"
dpkg -l | grep -i flx && fail "dpkg still knows them"
[ $failures = 0 ] && ok "nothing is left of them"
