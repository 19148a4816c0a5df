/// \file lane.h
/// Lanes of a staged share as kernels (staging.h). Copies between GPU and host by copy engines would take no
/// multiprocessor, but an engine serves one queue of copies for as long as it has any: a program whose queue is never
/// empty would keep the share, and so the call, from its end for ever. Kernels share PCIe with it instead.
#pragma once

#include "runtime/cuda/protocol/staging.h"

namespace flx::cuda {

/// Blocks of a lane. Each carries a run of every chunk, and waits for the block of its number at peers alone: some
/// copy while the flags of others are under way.
inline constexpr uint32_t kLaneTeams = 4;
/// Threads of a block. What is written to the host goes the same way out of the GPU as what goes over NVLink: with 256
/// KiB under way at a time instead of 24, copies to peers fell to half (H200). Reading keeps nobody waiting, and takes
/// more under way, since the way is there and back.
inline constexpr uint32_t kWritingThreads = 96;
inline constexpr uint32_t kReadingThreads = 384;

/// What `team` carries of `bytes` in the slot of a chunk: always the same run of the slot, since teams that are ahead
/// write to it while others read.
FLX_HD constexpr Piece run_of(uint32_t team, uint32_t teams, uint64_t chunk, uint64_t bytes) {
    constexpr uint64_t kLine = 128;
    const uint64_t each = ((chunk + teams - 1) / teams + kLine - 1) / kLine * kLine;
    const uint64_t from = team * each < bytes ? team * each : bytes;
    return {from, bytes - from < each ? bytes - from : each};
}

/// Where flags and counts of lanes lie in a rank's window: after those of exchange.h. Flags count the steps of all
/// operations since the window was made, so that graphs can be replayed between eager calls.
struct LaneFlags {
    static constexpr uint64_t kBegin = (WindowLayout::kFlagBytes + WindowLayout::kCountBytes + 127) / 128 * 128;
    static constexpr uint64_t kSignals = 2;
    static constexpr uint64_t kEach = uint64_t{kMaxRanks} * kLaneTeams * sizeof(uint32_t);
    /// Where the flag lies that `source` sets for the window's rank.
    FLX_HD static constexpr uint64_t flag(Signal signal, int source, uint32_t team) {
        return kBegin + static_cast<uint64_t>(signal) * kEach +
               (static_cast<uint64_t>(source) * kLaneTeams + team) * sizeof(uint32_t);
    }
    /// Steps of all operations that are over.
    FLX_HD static constexpr uint64_t count(Lane lane, uint32_t team) {
        return kBegin + kSignals * kEach + (static_cast<uint64_t>(lane) * kLaneTeams + team) * sizeof(uint32_t);
    }
    static_assert(kBegin + kSignals * kEach + 2 * kLaneTeams * sizeof(uint32_t) <= WindowLayout::kHead);
};

/// Steps [first, last) of a lane. The last of an operation must be the last of a run; every rank runs both lanes.
struct LaneRun {
    Staging staging;
    char *slots = nullptr;  ///< as the GPU sees them
    Lane lane = Lane::out;
    uint32_t first = 0;
    uint32_t last = 0;
};
/// Takes a LaneRun; up to kLaneTeams blocks, equally many on all ranks and in both lanes.
const void *lane_kernel();

}  // namespace flx::cuda
