/// \file plan.h
/// How a collective on GPUs is carried out: a pure function of arguments that are equal on all ranks and of values that
/// were agreed when the window was made. Every way adds in rank order, so the choice does not show in the bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/cuda/protocol/exchange.h"
#include "runtime/cuda/protocol/mailbox.h"

namespace flx::cuda {

/// Multiprocessors that add what copy engines brought: enough to add a chunk in less time than the next one takes to
/// come.
inline constexpr uint32_t kReducingProcessors = 128;
/// Multiprocessors that additions get where they are spared: enough for them to keep up with a link.
inline constexpr uint32_t kSpareBlocks = 32;

/// Between two ranks, how many times Limits::line_bytes go in lines.
inline constexpr uint64_t kLinesOfTwo = 8;

/// How the data moves. Files named *.cuh are in runtime/cuda/kernels.
enum class Way : uint8_t {
    packets,  ///< one kernel; all send their input to whoever needs it, in packets that are half flags (packets.cuh)
    lines,    ///< the same in lines that carry a flag each (lines.cuh)
    relay,    ///< a bcast in such lines, which others pass on (relay.cuh)
    tiles,    ///< one kernel, teams of blocks and tiles (exchange.h)
    bulk,     ///< a reduction between two: the same by bulk copies, and nothing is sent back (bulk.h)
    chain,    ///< a bcast in tiles from rank to rank (chain.h)
    engines   ///< copy engines move the data, kernels of one warp set and await flags
};
std::string_view name_of(Way way);

/// Agreed by all ranks.
struct Limits {
    uint64_t line_bytes = 0;           ///< most that one rank sends in packets or lines, of more than two
    uint64_t engine_bytes = 0;         ///< least vector that copy engines move; 0: as measured
    uint32_t blocks = 32;              ///< of the largest kernel
    uint64_t chain_bytes = 256 << 20;  ///< least bcast that goes from rank to rank
    bool spare = false;                ///< no kernel where nothing is added, else none of more than `blocks`
    bool bulk = false;                 ///< GPUs have bulk copies, which reductions between two take
    bool lines = true;                 ///< links keep lines of 128 bytes whole, as NVLink does and PCIe may not
};

/// What peers may do with the outputs of all ranks.
struct Outputs {
    bool direct = false;    ///< write into them: of a reduce-scatter, what is reduced there
    bool in_place = false;  ///< on any rank
    bool paged = false;  ///< their allocations are whole pages: others slow copy engines down where both ways are used
};

struct Plan {
    Way way = Way::packets;
    uint32_t blocks = 1;
    uint32_t threads = 0;
    uint64_t part_bytes = 0;
    uint64_t tile_bytes = 0;
    bool flat = false;      ///< Job::flat
    bool in_place = false;  ///< as Outputs
};

/// The greatest window that is of use and fits into `budget` bytes. `spare`: as Limits; rounds of copy engines go
/// through it then that are as long as there is room for.
WindowLayout window_for(uint64_t budget, int ranks, bool spare = false);

/// One that has most of its bytes for short calls, which take as long in it as in a larger one; what needs slots takes
/// several times as long.
WindowLayout small_window(uint64_t budget, int ranks);
/// Window and mailbox of a communicator.
struct Room {
    WindowLayout window;
    MailboxLayout mailbox;

    static constexpr uint64_t kLine = 4096;
    /// The mailbox lies behind the window.
    [[nodiscard]] uint64_t mailbox_offset() const { return (window.bytes() + kLine - 1) / kLine * kLine; }
    [[nodiscard]] uint64_t bytes() const { return mailbox_offset() + mailbox.bytes(); }
};
/// What fits into `budget` bytes, small ones where that is less than kLeastRoom. `blocks`: Limits::blocks.
inline constexpr uint64_t kLeastRoom = uint64_t{8} << 20;
Room room_for(uint64_t budget, uint32_t blocks, int ranks, bool spare);
/// Whether a call that is planned as `small` in a smaller window takes as long as in a full one, where it is `full`.
bool alike(Collective collective, const Plan &full, const Plan &small);

/// Whether bulk copies carry what is too long for lines: reductions between two GPUs that have them, over NVLink. Where
/// multiprocessors are spared, shared memory is left to the program's kernels.
bool bulk_serves(Collective collective, int ranks, const WindowLayout &layout, const Limits &limits);

/// `bytes` of the whole vector, more than 0.
Plan plan_of(Collective collective, uint64_t bytes, int ranks, Outputs outputs, const WindowLayout &layout,
             const Limits &limits);

/// Whether peers write into outputs that they may write into, on any rank: packets, lines and bulk copies leave them
/// alone, so nobody need say where they are.
bool writes_outputs(Collective collective, uint64_t bytes, int ranks, const WindowLayout &layout, const Limits &limits);

/// Whether a share of it can go through host memory (staging.h). Beside the kernels of a chain it made a bcast slower
/// (H200, 4 GPUs).
bool may_stage(const Job &job, Way way);
/// Bytes of a part, and of all that a rank sends to a peer, of which those are a share.
struct Stageable {
    uint64_t part = 0;
    uint64_t sent = 0;
    uint64_t message = 0;  ///< of `sent`, what is left when host memory can take a share
};
Stageable stageable(const Job &job);
/// About `bytes` of each part: those that are reduced first, or of what only moves the last.
Piece staged_piece(const Job &job, uint64_t bytes);

}  // namespace flx::cuda
