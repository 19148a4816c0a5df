/// \file pipeline.cuh
/// The kernel between the two phases of a pipeline of copy engines. It exchanges the pipeline's flags itself: a kernel
/// more for each of them cost 8 to 10 us a step.
#pragma once

#include "runtime/cuda/kernels/team.cuh"
#include "runtime/cuda/protocol/kernels.h"

namespace flx::cuda {

/// Flags of all pairs on a channel, once a kernel, whose blocks count themselves out: the last one counts the step.
class Meeting {
  public:
    __device__ Meeting(const Job &job, uint32_t channel)
        : job_(job), channel_(channel), step_(*word(job.rank, WindowLayout::count(channel)) + 1) {}

    __device__ void tell() const {
        const int peer = static_cast<int>(threadIdx.x);
        if (peer < job_.ranks && peer != job_.rank)
            store_release(word(peer, WindowLayout::flag(Stage::scattered, channel_, job_.rank)), step_);
    }
    /// False: gave up.
    [[nodiscard]] __device__ bool hear() const {
        const int peer = static_cast<int>(threadIdx.x);
        bool gave_up = false;
        if (peer < job_.ranks && peer != job_.rank) {
            Patience patience(job_);
            const uint32_t *flag = word(job_.rank, WindowLayout::flag(Stage::scattered, channel_, peer));
            while (static_cast<int32_t>(load_acquire(flag) - step_) < 0 && !gave_up)
                gave_up = !patience.more(peer);
        }
        return __syncthreads_or(gave_up ? 1 : 0) == 0;
    }
    /// Whether this block is the last one to come here.
    [[nodiscard]] __device__ bool leave() const {
        __syncthreads();
        bool last = false;
        if (threadIdx.x == 0) {
            uint32_t *left = word(job_.rank, WindowLayout::line_count(channel_));
            __threadfence();
            last = atomicAdd(left, 1) == gridDim.x - 1;
            __threadfence();
            if (last)
                *left = 0;
        }
        return __syncthreads_or(last ? 1 : 0) != 0;
    }
    /// Notes the count, after all threads have read it.
    __device__ void count() const {
        if (threadIdx.x == 0)
            *word(job_.rank, WindowLayout::count(channel_)) = step_;
    }

  private:
    [[nodiscard]] __device__ uint32_t *word(int rank, uint64_t at) const {
        return reinterpret_cast<uint32_t *>(job_.windows[rank] + at);
    }

    const Job &job_;
    uint32_t channel_;
    uint32_t step_;
};

/// Two blocks a multiprocessor: with one, too few loads are under way to keep up with the copies.
template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads, 2) local_kernel(const __grid_constant__ LocalReduce work) {
    constexpr uint64_t kTile = 32 * 1024;
    Team<T, Op> team(work.job);
    if (!team.alive())
        return;
    const Meeting arrival(work.job, work.arrived);
    if (work.arrived != 0) {
        if (blockIdx.x == 0)
            arrival.tell();
        if (!arrival.hear())
            return;
    }
    for (uint64_t at = blockIdx.x * kTile; at < work.bytes; at += gridDim.x * kTile) {
        team.reduce(Places{work.sources, at, work.job.ranks}, Targets{work.out + at, nullptr, 0, 0},
                    work.bytes - at < kTile ? work.bytes - at : kTile, work.job.divisor);
    }
    if (work.arrived == 0 || !arrival.leave())
        return;
    arrival.count();
    if (work.consumed == 0)
        return;
    const Meeting end(work.job, work.consumed);
    end.tell();
    if (end.hear())
        end.count();
}

}  // namespace flx::cuda
