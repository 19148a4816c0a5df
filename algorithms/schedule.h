/// \file schedule.h
/// What an algorithm makes: the steps of one rank, over an abstract link. Plain data.
///
/// The whole vector of a collective is cut into `blocks` blocks of nearly equal size (the first ones are one element
/// longer where the count is not divisible). A block is cut into *cells* of equal size (agreed by all ranks, the last
/// one shorter); a step works on its block cell by cell, in any order, in runs of any length. A step may process a cell
/// when each step that it depends on has done the cell of the same index. So one dependency list describes the pipeline
/// for any size. No loop over chunks or cells stands in a schedule.
///
/// What executors must keep, since algorithms rely on it:
/// - A link carries the cells of its own part of a send step in ascending order. A gather_reduce needs a cell from
/// every
///   rank; ranks that fill a receiver's room with different cells would otherwise wait for ever. A link that takes
///   cells of another link's part has sent its own, which leaves each rank a link that comes to the lowest cell; and
///   where that link is lost, the receiver sets aside what it holds. It does so, too, where one rank sends it several
///   blocks for sums, and others send those in another order: where nothing has moved for a while, a rank whose only
///   sum holds something from every rank of its group, or any of whose several sums holds anything, copies that and
///   gives the room back.
/// - A receiver takes each cell once, whatever is sent again. Some sources are overwritten by data that can only exist
///   after the receiver took that cell, while the rest of the chunk may still be on its way.
/// - A cell that the block of a dependency does not have counts as done.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/collective.h"

namespace flx::algorithms {

enum class StepKind : uint8_t {
    send,           ///< `from` to `peer`. A cell is done when the source may be overwritten (copied or acknowledged).
    recv,           ///< from `peer` into `to`
    recv_reduce,    ///< `to` = op(received, `from`) or op(`from`, received); `to` may be the same place as `from`
    gather_reduce,  ///< `to` = op over its group of ranks in their order: received from each, `from` for this rank
                    ///< itself
    copy            ///< `from` to `to`; nothing where they are the same memory
};

/// A place of a step's block: in the user's send buffer, receive buffer, or this rank's scratch memory.
enum class Buffer : uint8_t { none, input, output, scratch };

/// Where a step reads or writes its block. `slot` counts blocks of scratch memory (each as long as the longest block).
struct Place {
    Buffer buffer = Buffer::none;
    uint16_t slot = 0;
    friend bool operator==(const Place &, const Place &) = default;
};

inline constexpr int kMaxDependencies = 4;

/// One step. The triple (peer, phase, block) is unique among a rank's sends, and among its receives.
struct Step {
    StepKind kind = StepKind::copy;
    uint8_t phase = 0;           ///< index of the partition vector; 0 ≤ phase < Schedule::phases
    bool received_first = true;  ///< recv_reduce: op(received, from) if true, else op(from, received)
    bool finish = false;         ///< reductions: the result is final, so FLX_AVG divides now
    uint8_t group = 0;           ///< gather_reduce: index in Schedule::groups
    int32_t peer = -1;           ///< send, recv, recv_reduce
    uint32_t block = 0;
    Place from{};
    Place to{};
    uint8_t dependencies = 0;
    uint32_t after[kMaxDependencies] = {};  ///< steps with smaller index, on blocks of any length
    /// Bits of `after`: those that only keep this step from writing what the earlier one reads, in place. They do not
    /// hold where the two places are different memory.
    uint8_t in_place_only = 0;

    /// Adds one; asserts on overflow.
    Step &depends(uint32_t step) {
        assert(dependencies < kMaxDependencies);
        after[dependencies++] = step;
        return *this;
    }
    /// Likewise, one of in_place_only.
    Step &depends_in_place(uint32_t step) {
        in_place_only = static_cast<uint8_t>(in_place_only | 1U << dependencies);
        return depends(step);
    }
    [[nodiscard]] bool holds(uint32_t dependency, bool in_place) const {
        return in_place || (in_place_only >> dependency & 1) == 0;
    }
};

/// The steps of one rank. Executors try them in order of index, so pipelines are listed upstream first.
struct Schedule {
    uint32_t blocks = 1;
    uint8_t phases = 1;
    Layout input = Layout::whole;
    Layout output = Layout::whole;
    uint16_t scratch_slots = 0;
    std::vector<Step> steps;
    /// What gather_reduce steps add over: ranks in order of addition, this rank among them.
    std::vector<std::vector<int32_t>> groups;

    [[nodiscard]] const std::vector<int32_t> &group_of(const Step &step) const { return groups[step.group]; }
};

/// Offset and length of block `block` of `blocks` over `count` elements: the first count % blocks are one longer.
struct Extent {
    size_t offset;
    size_t count;
};
constexpr Extent block_extent(size_t count, uint32_t blocks, uint32_t block) {
    const size_t base = count / blocks;
    const size_t longer = count % blocks;
    return {block * base + (block < longer ? block : longer), base + (block < longer ? 1 : 0)};
}

}  // namespace flx::algorithms
