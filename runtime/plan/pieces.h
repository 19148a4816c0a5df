/// \file pieces.h
/// What of a call's memory a rank reads, and what it writes: for those who let other memory stand in for it. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/plan/operation.h"

namespace flx {

/// Bytes that lie together; at least one.
struct Piece {
    std::byte *at = nullptr;
    size_t bytes = 0;
};

struct Pieces {
    std::vector<Piece> read;  ///< all that the results of any rank depend on
    std::vector<Piece> written;
};

/// Of a collective, on one of `ranks` ranks. What is written is defined by the call: nothing beside it changes.
Pieces pieces_of(const Call &call, int ranks, int rank);

}  // namespace flx
