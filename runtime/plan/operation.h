/// \file operation.h
/// One call of a collective, after its arguments were checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "algorithms/schedule.h"
#include "runtime/elements/dtype.h"
#include "runtime/include/flx.h"

namespace flx {

struct Operation {
    algorithms::Collective collective = algorithms::Collective::barrier;
    const void *in = nullptr;  ///< in place: the same memory as the part of `out` that the collective's rule says
    void *out = nullptr;
    size_t count = 0;  ///< elements of the whole vector: size·recvcount for reduce_scatter_block and allgather
    flx_dtype_t dtype = FLX_INT8;
    flx_op_t op = FLX_SUM;
    int root = 0;
    uint64_t sequence = 0;   ///< within the communicator
    uint32_t signature = 0;  ///< hash of all that must be equal on all ranks
    int divisor = 0;         ///< of averages; 0: as many as ranks

    [[nodiscard]] size_t element() const { return size_of(dtype); }
    [[nodiscard]] size_t bytes() const { return count * element(); }  ///< of the whole vector
};

/// Where blocks lie that are not of equal length: elements of each rank's block, and its offset.
struct Blocks {
    const size_t *counts = nullptr;  ///< null: equal, as algorithms::block_extent says
    const size_t *displacements = nullptr;

    [[nodiscard]] algorithms::Extent extent(size_t count, uint32_t blocks, uint32_t block) const {
        if (counts == nullptr)
            return algorithms::block_extent(count, blocks, block);
        return {displacements[block], counts[block]};
    }
    [[nodiscard]] size_t longest(size_t count, uint32_t blocks) const {
        return counts == nullptr ? algorithms::block_extent(count, blocks, 0).count
                                 : *std::max_element(counts, counts + blocks);
    }
};

/// All that a call said. Arrays are the caller's, or the request's that keeps the call.
struct Call {
    Operation operation;
    /// allgatherv, reduce_scatter: everyone's; gatherv and scatterv: at the root; alltoallv: what is received.
    Blocks blocks;
    Blocks sends;           ///< alltoallv, not in place
    size_t own = 0;         ///< elements of this rank's part: gatherv, scatterv
    bool in_place = false;  ///< alltoallv, gatherv and scatterv (the latter two: at the root)

    [[nodiscard]] const std::byte *in() const { return static_cast<const std::byte *>(operation.in); }
    [[nodiscard]] std::byte *out() const { return static_cast<std::byte *>(operation.out); }
    /// A rank's block: of equal ones, else where it was said to be, else after those before it.
    [[nodiscard]] algorithms::Extent block(int ranks, int rank) const {
        if (blocks.counts == nullptr)
            return algorithms::block_extent(operation.count, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank));
        const size_t offset = blocks.displacements != nullptr
                                  ? blocks.displacements[rank]
                                  : std::accumulate(blocks.counts, blocks.counts + rank, size_t{0});
        return {offset, blocks.counts[rank]};
    }
};

}  // namespace flx
