#!/bin/bash
# Programs of another MPI than FLX was built for are refused with one sentence, and before they do anything:
#   other_mpi_test.sh FLX_RUN CC OTHER_MPICC PATTERN
# CC compiles what needs no MPI. OTHER_MPICC may be missing. PATTERN: what is said of a program that it compiled.
set -u
flx_run=$1 cc=$2 mpicc=$3 pattern=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
refused() { # NAME PATTERN PROGRAM…
    local name=$1 wanted=$2 said code
    shift 2
    said=$(timeout 60 "$flx_run" -- "$@" 2>&1)
    code=$?
    if [ $code = 1 ] && [ "$(wc -l <<<"$said")" = 1 ] && grep -qE "^flx_mpi: this program uses $wanted" <<<"$said"; then
        echo "ok: $name"
    else
        echo "FAILED: $name (code $code): $said"
        failures=1
    fi
}
cat >"$work/program.c" <<'C'
#include <stdio.h>
int MPI_Init(int *, char ***);
int begin(void) {
    puts("it begins");
    fflush(stdout);
    return MPI_Init(0, 0);
}
#ifndef PART
int main(void) { return begin(); }
#endif
C
cat >"$work/late.c" <<'C'
#include <dlfcn.h>
int main(int argc, char **argv) {
    void *part = dlopen(argv[argc - 1], RTLD_NOW);
    int (*begin)(void) = part ? (int (*)(void))dlsym(part, "begin") : 0;
    return begin ? begin() : 2;
}
C

# A library of MPI's standard ABI, as far as it is known by its name.
echo 'int MPI_Init(int *argc, char ***argv) { return argc || argv; }' >"$work/abi.c"
"$cc" -shared -fPIC -Wl,-soname,libmpi_abi.so.0 "$work/abi.c" -o "$work/libmpi_abi.so.0" &&
    "$cc" "$work/program.c" -o "$work/abi" "$work/libmpi_abi.so.0" -Wl,-rpath,"$work" || exit 1
refused "a program of the standard ABI" "MPI's standard ABI \(.*libmpi_abi.so.0\), which FLX does not serve; it must" "$work/abi"

if ! command -v "$mpicc" >/dev/null; then
    echo "not tried: a program of another MPI, as there is no $mpicc"
    exit $failures
fi
"$mpicc" "$work/program.c" -o "$work/other" && "$mpicc" -DPART -shared -fPIC "$work/program.c" -o "$work/part.so" &&
    "$cc" "$work/late.c" -o "$work/late" -ldl || exit 1
refused "a program of another MPI" "$pattern" "$work/other"
said=$(timeout 60 "$flx_run" -- "$work/late" "$work/part.so" 2>&1)
if [ $? = 1 ] && [ "$(head -1 <<<"$said")" = "it begins" ] && grep -qE "^flx_mpi: this program uses $pattern" <<<"$said"; then
    echo "ok: one that loads it late"
else
    echo "FAILED: one that loads it late: $said"
    failures=1
fi
exit $failures
