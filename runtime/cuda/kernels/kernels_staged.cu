#include "runtime/cuda/kernels/team.cuh"
#include "runtime/cuda/protocol/lane.h"

namespace flx::cuda {
namespace {

static_assert(kWritingThreads <= kThreads && kReadingThreads <= kThreads);

/// A block as a Machine of runtime/cuda/protocol/staging.h. Accesses to host memory are always wide, wherever the
/// program's buffers begin.
class BlockLane {
  public:
    __device__ explicit BlockLane(const LaneRun &run)
        : job_(run.staging.job),
          slots_(run.slots),
          chunk_(run.staging.chunk),
          count_(word(job_.rank, LaneFlags::count(run.lane, blockIdx.x))),
          before_(*count_) {}

    __device__ void tell(Signal signal, uint32_t peers, uint32_t count) {
        __syncthreads();
        const uint32_t peer = threadIdx.x;
        if (peer < kMaxRanks && (peers >> peer & 1) != 0)
            store_release(word(static_cast<int>(peer), LaneFlags::flag(signal, job_.rank, blockIdx.x)),
                          before_ + count);
    }
    __device__ bool hear(Signal signal, uint32_t peers, uint32_t count) {
        const uint32_t peer = threadIdx.x;
        bool gave_up = false;
        if (peer < kMaxRanks && (peers >> peer & 1) != 0) {
            Patience patience(job_);
            const uint32_t *flag = word(job_.rank, LaneFlags::flag(signal, static_cast<int>(peer), blockIdx.x));
            while (static_cast<int32_t>(load_acquire(flag) - before_ - count) < 0 && !gave_up)
                gave_up = !patience.more(static_cast<int>(peer));
        }
        return __syncthreads_or(gave_up ? 1 : 0) == 0;
    }
    __device__ void fill(uint64_t slot, const char *from, uint64_t bytes) {
        const Piece run = run_of(blockIdx.x, gridDim.x, chunk_, bytes);
        copy<false>(slots_ + slot + run.offset, from + run.offset, run.bytes);
    }
    __device__ void drain(char *to, uint64_t slot, uint64_t bytes) {
        const Piece run = run_of(blockIdx.x, gridDim.x, chunk_, bytes);
        copy<true>(to + run.offset, slots_ + slot + run.offset, run.bytes);
    }
    /// The operation is over.
    __device__ void close(uint32_t steps) {
        __syncthreads();
        if (threadIdx.x == 0)
            *count_ = before_ + steps;
    }

  private:
    [[nodiscard]] __device__ uint32_t *word(int rank, uint64_t at) const {
        return reinterpret_cast<uint32_t *>(job_.windows[rank] + at);
    }

    /// `from_slot`, or to one: that side lies on lines.
    template <bool from_slot>
    __device__ static void copy(char *to, const char *from, uint64_t bytes) {
        constexpr int kUnroll = from_slot ? 8 : 4;
        const bool wide = aligned(reinterpret_cast<uint64_t>(from_slot ? to : from), sizeof(uint4));
        const uint64_t threads = blockDim.x;
        const uint64_t packs = bytes / sizeof(uint4);
        const auto load = [&](uint64_t at) {
            return from_slot || wide ? reinterpret_cast<const uint4 *>(from)[at]
                                     : load_bytes<uint4>(from + at * sizeof(uint4));
        };
        const auto store = [&](uint64_t at, uint4 value) {
            if (!from_slot || wide)
                reinterpret_cast<uint4 *>(to)[at] = value;
            else
                store_bytes(to + at * sizeof(uint4), value);
        };
        for (uint64_t at = threadIdx.x; at < packs; at += uint64_t{kUnroll} * threads) {
            uint4 value[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                if (at + u * threads < packs)
                    value[u] = load(at + u * threads);
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                if (at + u * threads < packs)
                    store(at + u * threads, value[u]);
        }
        for (uint64_t at = packs * sizeof(uint4) + threadIdx.x; at < bytes; at += threads)
            to[at] = from[at];
    }

    const Job &job_;
    char *slots_;
    uint64_t chunk_;
    uint32_t *count_;
    uint32_t before_;
};

/// Two fit beside a block that adds.
__global__ void __launch_bounds__(kThreads, 2) lane(const __grid_constant__ LaneRun run) {
    BlockLane machine(run);
    if (__syncthreads_or(threadIdx.x == 0 && *run.staging.job.dead != 0 ? 1 : 0) != 0)
        return;
    const Staging &staging = run.staging;
    const bool ends = run.last == staging.steps();
    const bool done = run.lane == Lane::in ? read_steps(machine, staging, run.first, run.last)
                                           : write_steps(machine, staging, run.first, run.last) &&
                                                 (!ends || end_writing(machine, staging));
    if (done && ends)
        machine.close(staging.steps());
}

}  // namespace

const void *lane_kernel() {
    return reinterpret_cast<const void *>(&lane);
}

}  // namespace flx::cuda
