#!/bin/bash
# FLX as it is installed: package_test.sh PROJECT_FOLDER BUILD_FOLDER
# Exported symbols, SONAME, and programs in C11 and C++17 built outside the tree, by CMake and by pkg-config, and run.
set -u
project=$1
build=$2
ranks=$build/tests/ranks
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
library=$(find "$prefix" -name libflx.so)
[ -n "$library" ] || { fail "no libflx.so is installed"; exit 1; }

# Functions of flx.h: the word before '(' in each declaration that begins with FLX_API.
declared=$(sed -n 's/^FLX_API [^(]*[ *]\([a-z_0-9]*\)(.*/\1/p' "$prefix/include/flx.h" | sort)
[ "$(echo "$declared" | wc -l)" = "$(grep -c '^FLX_API ' "$prefix/include/flx.h")" ] ||
    fail "a declaration of flx.h that begins with FLX_API was not understood"
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort)
if [ "$declared" = "$exported" ]; then
    echo "ok: $(echo "$exported" | wc -l) functions are exported, those of flx.h"
else
    diff <(echo "$declared") <(echo "$exported") | sed -n 's/^</only in flx.h:/p; s/^>/only exported:/p'
    fail "the exported symbols are not the functions of flx.h"
fi
version=$(sed -n 's/^#define FLX_VERSION_[A-Z]* //p' "$prefix/include/flx.h" | tr '\n' '.')
soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
# Before 1.0 a minor version may change the interface: a program must not load the next one's library.
case $version in
0.*) interface=$(echo "$version" | cut -d. -f1,2) ;;
*) interface=${version%%.*} ;;
esac
[ "$soname" = "libflx.so.$interface" ] || fail "SONAME is '$soname'"
[ -e "$library.${version%.}" ] || fail "the library's file does not carry flx.h's version $version"
for program in "$prefix"/bin/*; do
    [ -e "$program" ] || continue
    missing=$(env -u LD_LIBRARY_PATH ldd "$program" | grep 'not found') && fail "$program: $missing"
done

try() { # NAME PROGRAM
    local said
    said=$(LD_LIBRARY_PATH=$(dirname "$library") "$ranks" -n 2 "$2" 2>&1)
    case $said in
    *right*right*) echo "ok: $1" ;;
    *) fail "$1: $said" ;;
    esac
}
for language in C CXX; do
    if cmake -G Ninja -S "$project/tests/ci/consumer" -B "$work/$language" -DLANGUAGE=$language \
        -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 && cmake --build "$work/$language" >>"$work/log" 2>&1; then
        try "$language program by CMake" "$work/$language/consumer"
    else
        cat "$work/log"
        fail "$language program by CMake"
    fi
done
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name flx.pc)")
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs flx) || fail "flx.pc"
cc -std=c11 -Wall -Wextra -Werror "$project/tests/ci/consumer/consumer.c" -o "$work/c" $flags &&
    try "C program by pkg-config" "$work/c" || fail "C program by pkg-config"
c++ -std=c++17 -Wall -Wextra -Werror "$project/tests/ci/consumer/consumer.cpp" -o "$work/cpp" $flags &&
    try "C++ program by pkg-config" "$work/cpp" || fail "C++ program by pkg-config"
# The examples, outside the tree, by both.
launch() { LD_LIBRARY_PATH=$(dirname "$library") timeout 100 "$ranks" -n 2 "$@"; }
examples=trainer_skeleton
[ -e "$PKG_CONFIG_PATH/flx-fortran.pc" ] && examples="trainer_skeleton cg_solver"
for example in $examples; do
    cp -r "$project/apps/$example" "$work/$example-source"
    { cmake -G Ninja -S "$work/$example-source" -B "$work/$example" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$work/$example"; } >"$work/log" 2>&1 && launch "$work/$example/$example" 50 >"$work/log" 2>&1 &&
        echo "ok: $example by CMake" || { cat "$work/log"; fail "$example by CMake"; }
done
{ cc -O2 "$work/trainer_skeleton-source/trainer_skeleton.c" -o "$work/trainer" $flags &&
    launch "$work/trainer" 10 >"$work/log" 2>&1; } || { cat "$work/log"; fail "trainer_skeleton by pkg-config"; }
if [ "$examples" != trainer_skeleton ]; then
    { gfortran -O2 -J"$work" "$work/cg_solver-source/cg_solver.f90" -o "$work/cg" $(pkg-config --cflags --libs flx-fortran) &&
        launch "$work/cg" 40 >"$work/log" 2>&1; } || { cat "$work/log"; fail "cg_solver by pkg-config"; }
fi
c++ -std=c++20 -Wall -Wextra -Werror "$project/tests/mpi/cpp_header_test.cpp" -o "$work/hpp" $flags &&
    launch "$work/hpp" >"$work/log" 2>&1 || { cat "$work/log"; fail "flx.hpp by pkg-config"; }
# A program that knows nothing of FLX, by the launcher that is installed.
mpicc -I"$project" "$project/tests/runtime/front/mpi/collectives.c" -o "$work/plain" && FLX_MPI=on launch "$prefix/bin/flx-run" --stats "$work/plain" 1 20 \
    >"$work/log" 2>&1 && grep -q 'flx_mpi: collectives of 2 ranks' "$work/log" ||
    { cat "$work/log"; fail "flx-run, installed"; }
# It finds its libraries by itself, and man its pages by the folder of the programs.
(unset LD_LIBRARY_PATH && FLX_MPI=on timeout 100 "$ranks" -n 2 "$prefix/bin/flx-run" --stats "$work/plain" 1 20) \
    >"$work/log" 2>&1 && grep -q 'flx_mpi: collectives of 2 ranks' "$work/log" ||
    { cat "$work/log"; fail "flx-run, installed, without LD_LIBRARY_PATH"; }
if command -v man >/dev/null && [ -d "$build/pages/man1" ]; then
    env -u MANPATH PATH="$prefix/bin:$PATH" man -w flx_info >/dev/null || fail "man finds no flx_info"
fi
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$project/README.md" >"$work/readme.c"
{ grep -q flx_allreduce "$work/readme.c" && cc -std=c11 -Wall -Wextra -Werror "$work/readme.c" -o "$work/readme" $flags &&
    LD_LIBRARY_PATH=$(dirname "$library") "$ranks" -n 2 "$work/readme"; } ||
    fail "the README's example"
[ $failures = 0 ]
