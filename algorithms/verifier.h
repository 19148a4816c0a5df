/// \file verifier.h
/// Proves a set of schedules right by executing them symbolically: every element's value is the ordered expression of
/// the contributions that were combined into it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.h"

namespace flx::algorithms {

/// How to run: the verdict must hold for each.
struct Trial {
    size_t count = 7;   ///< elements of the whole vector (of one rank's block where Layout::single is used)
    size_t cell = 2;    ///< elements per cell
    size_t window = 1;  ///< chunks that one sender may have unconsumed at one receiver
    bool in_place = false;
    uint64_t seed = 1;  ///< of the interleaving: which ready rank, step and run goes next
    /// Elements of each block, where a block is a rank's and they differ (allgatherv, reduce_scatter); `count` is not
    /// looked at then. Not in place where the output is one block. Empty: as block_extent says.
    std::vector<size_t> lengths;
};

/// Runs `algorithm` on all ranks of `collective` and checks: every step ends (no deadlock with the trial's window);
/// every output element is the reduction (or the copy) it should be, each contribution exactly once, in the order that
/// BitClass declares, the same expression on all ranks; no step reads what was never written; no source of a send is
/// overwritten before the receiver has consumed it (so that it could have been sent again); (peer, phase, block) is
/// unique; every send has its receive; inputs that are not in place stay unmodified.
/// Returns an empty string, or a sentence that names rank, step and what is wrong.
/// `placement`: as Request's.
std::string verify(const Algorithm &algorithm, Collective collective, int size, int root, const Trial &trial,
                   const Placement *placement = nullptr);

/// The same for schedules given directly, one per rank (for tests that break one on purpose).
std::string verify(const std::vector<Schedule> &schedules, Collective collective, BitClass bits, int root,
                   const Trial &trial);

/// Pairs of a send and a step that writes to its source, by why the write is safe (see resend.h).
struct ResendReasons {
    size_t written_before = 0;  ///< what is sent was written by it
    size_t send_ended = 0;      ///< it waits for the send: acknowledged, or sent again from a copy
    size_t receiver_used = 0;   ///< it can happen only after the receiver used the cell, and drops it if it comes again
    [[nodiscard]] size_t pairs() const { return written_before + send_ended + receiver_used; }
};

/// Proves for all interleavings that a chunk which is sent again before it was acknowledged carries what it carried the
/// first time, in every cell that the receiver has not used. Works on schedules of any size, cell by cell, in place or
/// not. Returns an empty string, or a sentence that names the send and the write. Adds to `reasons`.
std::string verify_resend(const Algorithm &algorithm, Collective collective, int size, int root, bool in_place,
                          ResendReasons &reasons, const Placement *placement = nullptr);
/// `all_lengths`: also in the cells that only some blocks have, for each number of such blocks. Without it those are
/// left out of which the others say as much: the verdict is the same, and reasons are fewer.
std::string verify_resend(const std::vector<Schedule> &schedules, Collective collective, int root, bool in_place,
                          ResendReasons &reasons, bool all_lengths = true);

}  // namespace flx::algorithms
