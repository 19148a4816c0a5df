/// \file lane_step.h
/// What the lanes of a staged share do between copies: flags in peers' windows (staging.h).
#pragma once

#include "exchange.h"

namespace flx::cuda {

enum class Signal : uint8_t { filled, drained };

/// Where flags and counts of staged shares lie in a rank's window: after those of exchange.h.
struct StagingFlags {
    static constexpr uint64_t kBegin = (WindowLayout::kFlagBytes + WindowLayout::kCountBytes + 127) / 128 * 128;
    static constexpr uint64_t kEach = uint64_t{kMaxRanks} * sizeof(uint32_t);
    /// What `source` last told the window's rank.
    FLX_HD static constexpr uint64_t flag(Signal signal, int source) {
        return kBegin + static_cast<uint64_t>(signal) * kEach + source * sizeof(uint32_t);
    }
    /// How often the window's rank told `peer`, and how much it has heard of it.
    FLX_HD static constexpr uint64_t told(Signal signal, int peer) { return flag(signal, peer) + 2 * kEach; }
    FLX_HD static constexpr uint64_t heard(Signal signal, int peer) { return flag(signal, peer) + 4 * kEach; }
    static_assert(kBegin + 6 * kEach <= WindowLayout::kHead);
};

/// Says to the peers of one mask that this rank got so many steps further; waits until those of the other did.
struct LaneStep {
    Job job;
    Signal signal = Signal::filled;
    uint32_t tell = 0;
    uint32_t hear = 0;
    uint32_t times = 0;
};
/// Takes a LaneStep; one block of one warp.
const void *lane_step_kernel();

}  // namespace flx::cuda
