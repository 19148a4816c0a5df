/// \file device_program.h
/// What the programs that test GPUs under mpirun share: who this rank is, and calls that must succeed.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <mpi.h>

#include <string>
#include <vector>

#include "runtime/include/flx.h"

namespace flx::test {

inline int rank_ = 0;
inline int ranks_ = 1;

inline void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return;
    fmt::print(stderr, "rank {}: {}: {}\n", rank_, what, cudaGetErrorString(error));
    MPI_Abort(MPI_COMM_WORLD, 3);
}
inline void must(flx_status_t status, const std::string &what) {
    if (status == FLX_SUCCESS)
        return;
    fmt::print(stderr, "rank {}: {}: {}\n", rank_, what, flx_last_error());
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/// The program: `run` between MPI_Init and MPI_Finalize, with its arguments.
inline int run_ranks(int argc, char **argv, int (*run)(const std::vector<std::string> &arguments)) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const int code = run({argv + 1, argv + argc});
    MPI_Finalize();
    return code;
}

}  // namespace flx::test
