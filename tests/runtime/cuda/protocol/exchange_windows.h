/// \file exchange_windows.h
/// Windows of ranks on GPUs (exchange.h) in host memory, and jobs on them, for tests that run kernels' code by threads.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/cuda/protocol/plan.h"

namespace flx::cuda::testing {

/// The first multiple of `to` from `memory` on, which has `to` bytes to spare.
inline char *align_up(char *memory, uintptr_t to) {
    return memory + (to - reinterpret_cast<uintptr_t>(memory) % to) % to;
}

struct ExchangeWindows {
    explicit ExchangeWindows(int ranks, uint64_t budget = 16 << 20)
        : ExchangeWindows(ranks, window_for(budget, ranks)) {}
    ExchangeWindows(int ranks, const WindowLayout &its) : layout(its) {
        for (int rank = 0; rank < ranks; ++rank)
            windows.emplace_back(layout.bytes() + kLine);
    }
    char *window(int rank) { return align_up(windows[rank].data(), kLine); }

    static constexpr uintptr_t kLine = 64;
    WindowLayout layout;
    std::vector<std::vector<char>> windows;
};

/// All of it but the buffers.
inline Job job_for(Collective collective, uint64_t bytes, int root, int rank, const Plan &plan,
                   ExchangeWindows &memory) {
    Job job;
    job.collective = collective;
    job.rank = rank;
    job.ranks = static_cast<int>(memory.windows.size());
    job.root = root;
    job.flat = plan.flat;
    job.bytes = bytes;
    job.part_bytes = plan.part_bytes;
    job.tile_bytes = plan.tile_bytes;
    job.blocks = plan.blocks;
    job.layout = memory.layout;
    for (int peer = 0; peer < job.ranks; ++peer)
        job.windows[peer] = memory.window(peer);
    return job;
}

}  // namespace flx::cuda::testing
