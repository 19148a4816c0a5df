/// \file shares.h
/// Which share of a call goes through host memory, where all ranks must cut alike, calls return before they are carried
/// out, and no rank may wait for another: ranks count their calls in shared memory, and whoever decides lets a new
/// share hold from the first call that no rank has begun. Lock-free, so that a rank that dies keeps none waiting.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

/// Lies in shared memory; all zero at first. One for each collective and size of call.
class ShareBoard {
  public:
    static constexpr uint32_t kWhole = 1U << 16;

    /// The share of this rank's call `number` (counted from 0, one after the other), of kWhole. `first` holds until
    /// another was proposed.
    uint32_t share_of(int rank, uint64_t number, uint32_t first);
    /// Lets `share` hold from the first call that no rank has begun. Only one rank may call this. False: a rank is so
    /// far behind that it may still need what this would overwrite; the caller tries again later.
    bool propose(int ranks, uint32_t share);

    /// What a call took at one rank: the links' bytes divided by these are their rates.
    struct Times {
        uint64_t nvlink_ns;
        uint64_t pcie_ns;
    };
    static constexpr uint64_t kEvery = 2;  ///< the times of one call in so many are published
    void publish(int rank, uint64_t number, Times times);
    /// The slowest rank's times of call `number`. False: a rank has not published them, or has published too many
    /// since.
    bool collect(int ranks, uint64_t number, Times &times) const;

  private:
    static constexpr int kEpochs = 8;
    static constexpr int kShift = 20;
    static constexpr uint64_t kMask = (uint64_t{1} << kShift) - 1;

    std::atomic<uint64_t> state_;                       // calls that some rank has begun, and the epoch
    std::array<std::atomic<uint64_t>, kEpochs> epoch_;  // its first call, and its share
    std::array<std::atomic<uint64_t>, kMaxRanks> begun_;
    struct Told {
        std::atomic<uint64_t> number;  // plus 1; 0: not whole
        std::atomic<uint64_t> nvlink_ns;
        std::atomic<uint64_t> pcie_ns;
    };
    static constexpr uint64_t kTold = 16;  ///< samples of a rank at a time
    std::array<std::array<Told, kTold>, kMaxRanks> told_;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace flx::cuda
