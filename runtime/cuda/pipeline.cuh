/// \file pipeline.cuh
/// The kernel between the two phases of a pipeline of copy engines.
#pragma once

#include "kernels.h"
#include "team.cuh"

namespace flx::cuda {

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) local_kernel(const __grid_constant__ LocalReduce work) {
    constexpr uint64_t kTile = 64 * 1024;
    Team<T, Op> team(work.job);
    for (uint64_t at = blockIdx.x * kTile; at < work.bytes; at += gridDim.x * kTile) {
        team.reduce(Places{work.sources, at, work.job.ranks}, Targets{work.out + at, nullptr, 0, 0},
                    work.bytes - at < kTile ? work.bytes - at : kTile, work.job.divisor);
    }
}

}  // namespace flx::cuda
