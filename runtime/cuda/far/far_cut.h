/// \file far_cut.h
/// Collectives and messages on GPU memory between hosts, cut into pieces: each lies in a slot of pinned host memory
/// while ranks carry it out there. Plain functions of what is equal on all ranks, so that all cut alike; shares of
/// links are no part of it, so bits do not depend on them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/cuda/near/group.h"

namespace flx::cuda {

/// A piece is `step` elements of each of `blocks`, of `part` elements each.
struct FarCut {
    uint64_t element = 1;  ///< bytes
    uint64_t part = 0;
    uint64_t apart = 0;  ///< elements from block to block in the GPU's memory
    uint64_t step = 1;
    uint32_t blocks = 1;  ///< one, or one a rank

    [[nodiscard]] uint32_t pieces() const { return static_cast<uint32_t>((part + step - 1) / step); }
    /// Elements of a block in `piece`.
    [[nodiscard]] uint64_t length(uint32_t piece) const {
        const uint64_t begin = piece * step;
        return part - begin < step ? part - begin : step;
    }
};

/// The least size of a slot, with which a piece of every collective has at least one element of any type.
uint64_t least_far_slot(int ranks);
/// `slot_bytes`: of a slot, at least least_far_slot(). `apart`: as FarCut; 0: blocks lie side by side.
FarCut cut_far(const Operation &call, int ranks, uint64_t slot_bytes, uint64_t apart = 0);

/// Bytes that go from a GPU's memory to a slot, or back.
struct FarCopy {
    char *device = nullptr;
    uint64_t at = 0;  ///< in the slot
    uint64_t bytes = 0;
};
/// What of `piece` this rank puts into its slot, and takes from it in the end; either may be nothing.
void far_copies(const Operation &call, const FarCut &cut, int rank, int ranks, uint32_t piece,
                std::vector<FarCopy> &out, std::vector<FarCopy> &in);
/// Whether pieces bring this rank something.
bool far_receives(const Operation &call, int rank);
/// The piece as a collective on host memory whose slot begins at `slot`.
Operation far_call(const Operation &call, const FarCut &cut, int rank, int ranks, uint32_t piece, char *slot);

/// A message's pieces, of `step` bytes. The first of several ends with the message's length, so that a receiver that
/// expects another one finds out, however both are cut.
struct FarMessageCut {
    static constexpr uint64_t kTrailer = sizeof(uint64_t);

    uint64_t bytes = 0;
    uint64_t step = 1;

    [[nodiscard]] uint32_t pieces() const { return static_cast<uint32_t>((bytes + step - 1) / step); }
    [[nodiscard]] uint64_t length(uint32_t piece) const {
        const uint64_t begin = piece * step;
        return bytes - begin < step ? bytes - begin : step;
    }
    [[nodiscard]] bool has_trailer(uint32_t piece) const { return piece == 0 && bytes > step; }
    /// Bytes of the piece between hosts, where one may have a trailer.
    [[nodiscard]] uint64_t carried(uint32_t piece) const { return length(piece) + (has_trailer(piece) ? kTrailer : 0); }
};

}  // namespace flx::cuda
