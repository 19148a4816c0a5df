#!/bin/bash
# What libflx_nccl.so exports: symbols_test.sh LIBRARY FUNCTIONS_H [NCCL_H]
# The functions of FUNCTIONS_H and nothing else; where nccl.h is, all that it declares.
set -u
library=$1
declared=$(grep -oE 'X\([^,]+, nccl[A-Za-z0-9]+' "$2" | grep -oE 'nccl[A-Z][A-Za-z0-9]*$' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort)
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
for name in $exported; do
    grep -qx "$name" <<<"$declared" || fail "$name is exported and not in functions.h"
done
[ "$(wc -l <<<"$declared")" -ge 41 ] || fail "functions.h was not understood"
for name in $declared; do
    grep -qx "$name" <<<"$exported" || fail "$name of functions.h is not exported"
done
if [ -n "${3:-}" ]; then
    # ncclResult_t  ncclName( and const char*  ncclName( of nccl.h, without the names of profilers.
    wanted=$(sed -nE 's/^ *(ncclResult_t|const char\*|void) +(nccl[A-Z][A-Za-z0-9]*)\(.*/\2/p' "$3" | sort -u)
    [ "$(wc -l <<<"$wanted")" -ge 30 ] || fail "nccl.h was not understood"
    for name in $wanted; do
        grep -qx "$name" <<<"$exported" || fail "nccl.h has $name, which is not exported"
    done
    echo "compared with $(wc -l <<<"$wanted") functions of $3"
else
    echo "no nccl.h to compare with"
fi
needed=$(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }')
grep -qE '^lib(mpi|nccl|flx)' <<<"$needed" && fail "the library needs $(grep -E '^lib(mpi|nccl|flx)' <<<"$needed")"
[ $failures = 0 ] && echo "ok: $(wc -l <<<"$exported") functions"
