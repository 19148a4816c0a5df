/// \file board.h
/// A line in the communicator's segment on which the first rank to fail says why, for the other ranks of the host, and
/// where ranks say that they left in good order, or that they wait outside of FLX (runtime/process/outside_waits.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/base/status.h"

namespace flx {

/// Lies in shared memory that was zero at first.
class Board {
  public:
    /// At most so much is written to another rank's memory between two looks at the board. A rank that gave up has
    /// returned, and the memory may be its program's again. A write in the middle of which a rank is stopped cannot be
    /// undone.
    static constexpr size_t kUnasked = size_t{1} << 20;
    /// Ranks of a host at most.
    static constexpr size_t kRanks = 4096;

    /// The first call of any rank counts; later ones do nothing.
    void write(const Status &why) {
        int empty = kEmpty;
        if (!state_.compare_exchange_strong(empty, kWriting))
            return;
        const std::string words = why.words();
        const size_t length = std::min(words.size(), sizeof text_ - 1);
        std::memcpy(text_, words.data(), length);
        fault_ = why.number();
        text_[length] = '\0';
        state_.store(kWritten, std::memory_order_release);
    }
    /// True, and what stands there, if something does.
    bool read(Status &why) const {
        if (state_.load(std::memory_order_acquire) != kWritten)
            return false;
        why = Status(fault_of(fault_), text_);
        return true;
    }

    /// What stands on `board`, if that is not null and something does; else success.
    static Status look(const Board *board) {
        Status why;
        if (board != nullptr)
            board->read(why);
        return why;
    }

    /// This rank (its index on the host) has given its peers all that they need of it, and goes. Not a death, then,
    /// for those that are not as far yet.
    void leave(size_t local_rank) {
        if (local_rank < kRanks)
            left_[local_rank / 64].fetch_or(uint64_t{1} << local_rank % 64, std::memory_order_release);
    }
    [[nodiscard]] bool has_left(size_t local_rank) const {
        return local_rank < kRanks &&
               (left_[local_rank / 64].load(std::memory_order_acquire) >> local_rank % 64 & 1) != 0;
    }

    /// Counts a turn, for OutsideWaits. If two ranks do so at once, one turn may be lost; others follow.
    void add_outside_turn() {
        outside_turns_.store(outside_turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    [[nodiscard]] uint64_t outside_turns() const { return outside_turns_.load(std::memory_order_relaxed); }

  private:
    static constexpr size_t kWords = kRanks / 64;
    enum : int { kEmpty, kWriting, kWritten };
    std::atomic<int> state_{kEmpty};
    uint32_t fault_ = 0;
    char text_[504] = {};
    std::atomic<uint64_t> left_[kWords] = {};
    std::atomic<uint64_t> outside_turns_{0};
    std::byte lines_[120] = {};  ///< what is written often has a pair of lines to itself
};
// A multiple of 128 bytes: what follows in the segment lies in pairs of lines that cores fetch together.
static_assert(sizeof(Board) == 1152);

}  // namespace flx
