/// \file bulk.h
/// Reductions between two ranks in which nothing is sent back: each rank sends the other what that one adds, and adds
/// what comes to its own, in rank order. Of an allreduce that is the whole vector either way, so both compute the same,
/// and no more bytes cross the link than if each added half and sent the result. runtime/cuda/kernels/bulk.cuh carries
/// it out with bulk copies; what goes where, and which flag says so, stands here, as it is the same for host threads
/// (tests).
///
/// The vector is cut into tiles, tile t for the team t mod blocks, as in exchange.h. A team's tiles go through a ring
/// of slots, which lie where the `scattered` slots of the same team do; they are numbered on from the team's count. So
/// that waits for the peer's word are off the path, several are under way at a time, and each rank says
///   - by `scattered`, up to which number tiles have come to the peer's slots,
///   - by `gathered`, up to which number it has taken tiles out of its own slots, which may then be written again: a
///     tile is not sent before that of `slots` numbers less was taken, the first ones not before all of earlier
///     operations was.
/// Both counts go one further than the last tile, to end(), which is the count afterwards: instead of the last tile's
/// number end() is told, so that the last but one is never end() - 1. Hence a wait for the number before the count, as
/// those of exchange.h that come next have it, ends when all was sent and taken, and what follows may write to any slot
/// of the team's. A rank that sends nothing, or takes nothing, tells end() at once.
#pragma once

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

inline constexpr uint64_t kBulkSlot = 16 << 10;
/// The head of a slot, before the data, which begin less than kGrain behind it. Inputs lie anywhere, slots and bulk
/// copies on multiples of 16 bytes.
inline constexpr uint64_t kBulkHead = 128;
inline constexpr uint64_t kBulkTile = kBulkSlot - 2 * kBulkHead;
inline constexpr uint32_t kMostBulkSlots = 16;
inline constexpr uint32_t kLeastBulkSlots = 4;
/// Few are enough to fill a link, and each of them takes all shared memory of a multiprocessor: kernels of two
/// communicators at a time must find room on every GPU, or the ranks' kernels wait for each other for ever.
inline constexpr uint32_t kMostBulkBlocks = 64;

/// The number of a team's slots: a power of two, so that numbers may wrap around. 0: there is no room.
FLX_HD constexpr uint32_t bulk_slots(const WindowLayout &layout) {
    // A rank's own place lies beside the peer's, and nobody writes to it.
    const uint64_t fit = 2 * (layout.ranks * layout.slot_bytes / kBulkSlot);
    uint32_t slots = kMostBulkSlots;
    while (slots > fit)
        slots /= 2;
    return slots < kLeastBulkSlots ? 0 : slots;
}

/// One team's part on one rank.
class BulkTeam {
  public:
    FLX_HD BulkTeam(const Job &job, uint32_t block, uint32_t before)
        : job_(job), block_(block), before_(before), steps_(job.steps(block)), slots_(bulk_slots(job.layout)) {}

    /// Tiles; 0 where this rank has none to send, or to add.
    FLX_HD uint32_t sends() const {
        return job_.collective == Collective::reduce && job_.rank == job_.root ? 0 : steps_;
    }
    FLX_HD uint32_t takes() const {
        return job_.collective == Collective::reduce && job_.rank != job_.root ? 0 : steps_;
    }
    FLX_HD int peer() const { return 1 - job_.rank; }

    FLX_HD Piece piece(uint32_t step) const { return job_.piece(0, block_, step); }
    /// What pieces of both ranks' vectors begin at: what is sent, what is added here, and to where.
    FLX_HD const char *sent() const { return job_.in + (apart() ? job_.part_offset(peer()) : 0); }
    FLX_HD const char *own() const { return job_.in + (apart() ? job_.part_offset(job_.rank) : 0); }
    FLX_HD char *out() const { return job_.out; }

    FLX_HD uint32_t number(uint32_t step) const { return before_ + 1 + step; }
    FLX_HD uint32_t end() const { return before_ + steps_ + 1; }
    /// The number to signal when a step and all before it were sent, or taken.
    FLX_HD uint32_t done(uint32_t step) const { return step + 1 == steps_ ? end() : number(step); }
    /// What the peer must have taken before a step is sent.
    FLX_HD uint32_t credit(uint32_t step) const { return step < slots_ ? before_ : number(step) - slots_; }
    /// The slot of a step, in the window of the rank that takes it.
    FLX_HD uint64_t slot(uint32_t step) const {
        const uint32_t turn = number(step) & (slots_ - 1);
        return job_.layout.slot(Stage::scattered, turn % 2, block_, 0) + turn / 2 * kBulkSlot;
    }

  private:
    FLX_HD bool apart() const { return job_.collective == Collective::reduce_scatter_block; }

    const Job &job_;
    uint32_t block_;
    uint32_t before_;
    uint32_t steps_;
    uint32_t slots_;
};

}  // namespace flx::cuda
