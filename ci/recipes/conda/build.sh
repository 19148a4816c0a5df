#!/bin/bash
# What conda-build runs, at the top of the tree.
set -eu
cmake --preset release $CMAKE_ARGS -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
    -DFLX_TESTS=OFF -DFLX_BENCHMARKS=OFF -DFLX_CUDA=OFF
cmake --build --preset release -j "$CPU_COUNT"
cmake --install build/release
