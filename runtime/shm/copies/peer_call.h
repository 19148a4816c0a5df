/// \file peer_call.h
/// A collective's call as those see it who reach peers' buffers, by whatever way.
#pragma once

#include <cstddef>
#include <numeric>

#include "algorithms/schedule.h"
#include "runtime/include/flx.h"
#include "runtime/plan/operation.h"

namespace flx::shm {

struct PeerCall {
    algorithms::Collective collective;
    const std::byte *in;
    std::byte *out;
    size_t count;
    size_t element;  ///< bytes
    flx_dtype_t dtype;
    flx_op_t op;
    int root;
    Blocks blocks;

    /// A rank's block: of equal ones, else where it was said to be, else after those before it.
    [[nodiscard]] algorithms::Extent block(int ranks, int rank) const {
        if (blocks.counts == nullptr)
            return algorithms::block_extent(count, ranks, rank);
        const size_t offset = blocks.displacements != nullptr
                                  ? blocks.displacements[rank]
                                  : std::accumulate(blocks.counts, blocks.counts + rank, size_t{0});
        return {offset, blocks.counts[rank]};
    }
};

}  // namespace flx::shm
