/// \file exchange.h
/// How ranks on GPUs that write into each other's memory carry out a collective, tile by tile: who writes what where,
/// and which flags are set and awaited. The code is the same for the blocks of a kernel and for host threads (tests):
/// a `Machine` says how to copy, reduce, set flags and wait.
///
/// Every rank's *window* holds slots that its peers write into and flags that it polls itself. The vector is cut into
/// *parts*, each with an owner; parts are cut into tiles, and tile t of all parts belongs to block t mod blocks. Blocks
/// of equal index on all ranks form a team that needs no other block. A team does for each of its tiles
///   1. scatter: each rank writes its piece of each part into a slot of the owner, and sets `scattered`;
///   2. gather: an owner waits for `scattered`, reduces in rank order (or copies), writes the result to whoever gets
///      it: straight into the output where that memory is open to its peers, else into a slot; and sets `gathered`;
///   3. collect, where something comes: wait for `gathered`; copy from slots to the output.
/// Step 1 of tile s+1 comes before step 2 of tile s, so that links are busy while flags are under way.
///
/// Both flags go between all pairs, with or without data, and count the tiles of the team since the window was made.
/// So two slots of each kind are enough without further acknowledgement:
/// - a scatter slot is written again at s+2, by a rank that waits for `gathered` of s, which its reader sets after
///   reading;
/// - a gather slot is written again at s+2, by a rank that has seen `scattered` of s+2, which its reader sets after
///   collecting s;
/// - `scattered` also says that a rank is in this operation: its output may be written.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "algorithms/collective.h"

#if defined(__CUDACC__)
#define FLX_HD __host__ __device__
#else
#define FLX_HD
#endif

namespace flx::cuda {

inline constexpr int kMaxRanks = 8;
/// Teams that have slots, packets and lines of their own.
inline constexpr uint32_t kMaxBlocks = 128;
/// Teams that need flags alone: two share a multiprocessor, and one copies while the other's flag is under way.
inline constexpr uint32_t kMaxTeams = 2 * kMaxBlocks;
/// Flags of more than the teams: what copy-engine pipelines use.
inline constexpr uint32_t kChannels = kMaxTeams + 3;
/// What parts and tiles are multiples of: the widest load, and so every element.
inline constexpr uint64_t kGrain = 16;

using algorithms::Collective;
/// Those that have a form for GPUs.
inline constexpr std::array kServed = {Collective::allreduce, Collective::reduce_scatter_block,
                                       Collective::allgather, Collective::bcast,
                                       Collective::reduce,    Collective::alltoall};
constexpr bool serves(Collective collective) {
    return std::ranges::find(kServed, collective) != kServed.end();
}
enum class Stage : uint8_t { scattered, gathered };
inline constexpr int kStages = 2;

/// As algorithms::reduces of these, whose table GPUs cannot read.
FLX_HD constexpr bool adds(Collective collective) {
    return collective == Collective::allreduce || collective == Collective::reduce_scatter_block ||
           collective == Collective::reduce;
}
static_assert(std::ranges::all_of(kServed, [](Collective each) { return adds(each) == algorithms::reduces(each); }));
/// The vector is `ranks` blocks of the call's count; otherwise it is cut into nearly equal parts.
FLX_HD constexpr bool has_blocks(Collective collective) {
    return collective == Collective::reduce_scatter_block || collective == Collective::allgather ||
           collective == Collective::alltoall;
}

/// Where things lie in a window. Plain data; equal on all ranks.
struct WindowLayout {
    uint32_t ranks = 0;
    uint64_t slot_bytes = 0;
    uint64_t packet_bytes = 0;    ///< packets of one block from one rank (runtime/cuda/kernels/packets.cuh)
    uint64_t line_bytes = 0;      ///< lines of one block from one rank (runtime/cuda/kernels/lines.cuh)
    uint32_t teams = kMaxBlocks;  ///< that have slots; all blocks have packets and lines

    static constexpr uint64_t kFlagBytes = uint64_t{kStages} * kChannels * kMaxRanks * sizeof(uint32_t);
    static constexpr uint64_t kCountBytes = 3 * kChannels * sizeof(uint32_t);
    static constexpr uint64_t kDead = kFlagBytes + kCountBytes;  ///< as Job::dead
    /// How many blocks of kernels of packets, lines and relays have ended, whether they did their work or gave up.
    static constexpr uint64_t kEnded = kDead + sizeof(uint32_t);
    static constexpr uint64_t kHead = 20480;  ///< flags, counts and those, rounded up
    static_assert(kEnded + sizeof(uint32_t) <= kHead);

    FLX_HD static uint64_t flag(Stage stage, uint32_t block, int source) {
        return ((static_cast<uint64_t>(stage) * kChannels + block) * kMaxRanks + source) * sizeof(uint32_t);
    }
    FLX_HD static uint64_t count(uint32_t block) { return kFlagBytes + block * sizeof(uint32_t); }
    FLX_HD static uint64_t packet_count(uint32_t block) { return count(kChannels + block); }
    FLX_HD static uint64_t line_count(uint32_t block) { return count(2 * kChannels + block); }
    /// Two places for each block and source, used in turn.
    FLX_HD uint64_t place(uint32_t count, uint32_t block, int source) const {
        return (uint64_t{count % 2} * kMaxBlocks + block) * ranks + source;
    }
    FLX_HD uint64_t places() const { return uint64_t{2} * kMaxBlocks * ranks; }
    FLX_HD uint64_t packets(uint32_t count, uint32_t block, int source) const {
        return kHead + place(count, block, source) * packet_bytes;
    }
    /// Of all sources' lines; those of a source lie beside() of them further. No rank sends lines to itself.
    FLX_HD uint64_t lines(uint32_t count, uint32_t block) const {
        return kHead + places() * packet_bytes + (uint64_t{count % 2} * kMaxBlocks + block) * (ranks - 1) * line_bytes;
    }
    FLX_HD uint64_t beside(int source, int owner) const {
        return static_cast<uint64_t>(source > owner ? source - 1 : source) * line_bytes;
    }
    FLX_HD uint64_t line_places() const { return uint64_t{2} * kMaxBlocks * (ranks - 1); }
    /// Where slots begin, and what must be zero at first ends.
    FLX_HD uint64_t slots() const { return kHead + places() * packet_bytes + line_places() * line_bytes; }
    FLX_HD uint64_t slot(Stage stage, uint32_t count, uint32_t block, int source) const {
        return slots() +
               (((static_cast<uint64_t>(stage) * 2 + count % 2) * teams + block) * ranks + source) * slot_bytes;
    }
    FLX_HD uint64_t bytes() const { return slots() + uint64_t{kStages} * 2 * teams * ranks * slot_bytes; }
};

/// The count that a kernel of packets, lines or a relay leaves in its window where it gave up. Those behind it read the
/// count anyhow, and so leave at once without a look at anything else.
inline constexpr uint32_t kGaveUp = ~uint32_t{0};
/// The flag of the operation after `count` of them: odd after even, and never kGaveUp.
FLX_HD constexpr uint32_t next_flag(uint32_t count) {
    return count + 1 == kGaveUp ? 1 : count + 1;
}

/// A run of bytes within a part.
struct Piece {
    uint64_t offset;
    uint64_t bytes;
};

/// One operation as one rank's kernel gets it. Pointers to peers' memory are as mapped here.
struct Job {
    Collective collective = Collective::allreduce;
    bool direct = false;   ///< results go straight into `outputs`
    bool flat = false;     ///< a bcast or reduce of which the root gathers all: nobody passes anything on
    bool counted = false;  ///< its blocks are, at WindowLayout::kEnded
    int op = 0;            ///< flx_op_t
    int rank = 0;
    int ranks = 1;
    int root = 0;
    int divisor = 1;  ///< of averages
    const char *in = nullptr;
    char *out = nullptr;
    uint64_t bytes = 0;       ///< of the whole vector
    uint64_t part_bytes = 0;  ///< of a part; the last one may be shorter, or empty
    uint64_t tile_bytes = 0;  ///< a multiple of kGrain, at most a slot
    uint32_t blocks = 1;      ///< teams
    WindowLayout layout;
    char *windows[kMaxRanks] = {};
    char *outputs[kMaxRanks] = {};       ///< direct: peers' `out`
    volatile uint32_t *abort = nullptr;  ///< not 0: give up (host memory)
    uint32_t *stuck = nullptr;           ///< gets 1 + the rank that is waited for, after a while (host memory)
    /// Not 0: a kernel of this rank gave up. The kernels behind it on the stream then do nothing: they would signal to
    /// peers, who have not heard of the failure yet, that its work was done. The word is in this rank's GPU, as most
    /// operations look at it.
    volatile uint32_t *dead = nullptr;

    /// Whether all that this rank moves begins on lines of kGrain bytes. Ranks may differ.
    bool on_lines() const {
        uint64_t all = reinterpret_cast<uint64_t>(in) | reinterpret_cast<uint64_t>(out) | part_bytes;
        for (int peer = 0; direct && peer < ranks; ++peer)
            all |= reinterpret_cast<uint64_t>(outputs[peer]);
        return all % kGrain == 0;
    }
    FLX_HD int owners() const {
        return flat ? 1 : collective == Collective::bcast || collective == Collective::reduce ? ranks - 1 : ranks;
    }
    /// A root that sends everything, or gets everything, owns nothing unless it is flat: its link is full anyway.
    FLX_HD int owner(int part) const {
        return flat                                                                  ? root
               : collective == Collective::bcast || collective == Collective::reduce ? (root + 1 + part) % ranks
                                                                                     : part;
    }
    /// -1: owns none.
    FLX_HD int part_of(int who) const {
        if (flat)
            return who == root ? 0 : -1;
        if (collective != Collective::bcast && collective != Collective::reduce)
            return who;
        return who == root ? -1 : (who - root - 1 + ranks) % ranks;
    }
    FLX_HD uint64_t part_offset(int part) const { return static_cast<uint64_t>(part) * part_bytes; }
    FLX_HD uint64_t part_length(int part) const {
        const uint64_t from = part_offset(part);
        return from >= bytes ? 0 : bytes - from < part_bytes ? bytes - from : part_bytes;
    }
    FLX_HD uint32_t tiles() const {
        const uint64_t longest = part_length(0);
        return static_cast<uint32_t>((longest + tile_bytes - 1) / tile_bytes);
    }
    /// Tiles of a team.
    FLX_HD uint32_t steps(uint32_t block) const { return (tiles() + blocks - 1 - block) / blocks; }
    FLX_HD Piece piece(int part, uint32_t block, uint32_t step) const {
        const uint64_t from = (block + uint64_t{step} * blocks) * tile_bytes;
        const uint64_t length = part < 0 ? 0 : part_length(part);
        return {from, from >= length ? 0 : length - from < tile_bytes ? length - from : tile_bytes};
    }
    /// Whether this rank waits for what others gather.
    FLX_HD bool collects() const {
        return collective != Collective::reduce_scatter_block &&
               (collective != Collective::reduce || (rank == root && !flat));
    }
    /// Whether `to` gets what `from` gathered.
    FLX_HD bool gathers(int from, int to) const {
        switch (collective) {
            case Collective::allreduce:
            case Collective::allgather:
            case Collective::alltoall:
                return true;
            case Collective::bcast:
                return (from == root) == flat && to != root;
            case Collective::reduce:
                return !flat && from != root && to == root;
            default:  // reduce_scatter_block
                return false;
        }
    }
};

/// What is reduced, in rank order: this rank's own piece, and slots for the others.
struct Sources {
    const char *own;
    const char *slots;  ///< of rank 0; the next rank's is `stride` further
    uint64_t stride;
    int rank;
    int ranks;
};

/// Where a piece goes: `local` unless null, and to each peer of the mask at the same offset from its base.
struct Targets {
    char *local;
    char *const *bases;
    uint64_t offset;
    uint32_t peers;
};

/// What an exchange does: each has kernels of its own, so that one needs no registers for what the other does.
enum class Kind : uint8_t { adds, moves };

template <Kind kKind, class Machine>
FLX_HD bool scatter(Machine &machine, const Job &job, uint32_t block, uint32_t step, uint32_t count) {
    if (!machine.wait(Stage::gathered, block, count - 2))
        return false;
    const uint64_t slot = job.layout.slot(Stage::scattered, count, block, job.rank);
    const bool scatters =
        kKind == Kind::adds || (job.collective == Collective::bcast && !job.flat && job.rank == job.root);
    for (int k = 1; scatters && k < job.ranks; ++k) {
        // All start with another peer, so that no link is every rank's at once.
        const int peer = (job.rank + k) % job.ranks;
        const int part = job.part_of(peer);
        const Piece piece = job.piece(part, block, step);
        if (piece.bytes != 0)
            machine.copy(job.in + job.part_offset(part) + piece.offset, Targets{nullptr, job.windows, slot, 1U << peer},
                         piece.bytes);
    }
    machine.signal(Stage::scattered, block, count);
    return true;
}

/// Straight from the input into peers' outputs: all that one peer gets, then all for the next. Ranks begin with
/// different peers, so that no two write to the same one for long, which would cost a tenth of the bandwidth.
template <class Machine>
FLX_HD void push(Machine &machine, const Job &job, const Piece &piece, uint32_t peers) {
    constexpr uint64_t kChunk = 64 * 1024;
    const bool apart = job.collective == Collective::alltoall;
    const uint64_t home = (job.collective == Collective::bcast ? 0 : job.part_offset(job.rank)) + piece.offset;
    const char *own = job.in + (apart ? job.part_offset(job.rank) : 0) + piece.offset;
    for (int k = 1; k < job.ranks; ++k) {
        const int peer = (job.rank + k) % job.ranks;
        if ((peers >> peer & 1) == 0)
            continue;
        const char *from = apart ? job.in + job.part_offset(peer) + piece.offset : own;
        // What stays here is copied between the first peer's chunks, while their stores are under way.
        char *local = k == 1 && own != job.out + home ? job.out + home : nullptr;
        for (uint64_t at = 0; at < piece.bytes; at += kChunk) {
            const uint64_t bytes = piece.bytes - at < kChunk ? piece.bytes - at : kChunk;
            const bool both = local != nullptr && !apart;
            machine.copy(from + at, Targets{both ? local + at : nullptr, job.outputs, home + at, 1U << peer}, bytes);
            if (local != nullptr && apart)
                machine.copy(own + at, Targets{local + at, nullptr, 0, 0}, bytes);
        }
    }
}

/// Where what this rank gathers of a part goes: into peers' outputs, or into their slots.
FLX_HD inline Targets gathered_to(const Job &job, uint64_t at, uint64_t slot, char *local, uint32_t peers) {
    return {local, job.direct ? job.outputs : job.windows, job.direct ? at : slot, peers};
}

template <class Machine>
FLX_HD void gather_sums(Machine &machine, const Job &job, int part, const Piece &piece, uint64_t slot, uint32_t peers,
                        uint64_t slots) {
    if (piece.bytes == 0)
        return;
    const uint64_t at = job.part_offset(part) + piece.offset;
    const uint64_t home = job.collective == Collective::reduce_scatter_block ? piece.offset : at;
    char *local = job.collective == Collective::reduce && !job.flat ? nullptr : job.out + home;
    machine.reduce(Sources{job.in + at, job.windows[job.rank] + slots, job.layout.slot_bytes, job.rank, job.ranks},
                   gathered_to(job, at, slot, local, peers), piece.bytes, job.divisor);
}

template <class Machine>
FLX_HD void gather_copies(Machine &machine, const Job &job, int part, const Piece &piece, uint64_t slot, uint32_t peers,
                          uint64_t slots) {
    if (job.direct && (job.collective == Collective::alltoall || job.collective == Collective::allgather || job.flat)) {
        push(machine, job, piece, peers);
    } else if (job.collective == Collective::alltoall) {
        for (int k = 1; k <= job.ranks; ++k) {
            const int peer = (job.rank + k) % job.ranks;
            const char *from = job.in + job.part_offset(peer) + piece.offset;
            const uint64_t at = job.part_offset(job.rank) + piece.offset;
            if (peer != job.rank)
                machine.copy(from, Targets{nullptr, job.windows, slot, 1U << peer}, piece.bytes);
            else if (from != job.out + at)
                machine.copy(from, Targets{job.out + at, nullptr, 0, 0}, piece.bytes);
        }
    } else if (piece.bytes != 0) {
        const uint64_t at = job.part_offset(part) + piece.offset;
        // Of an allgather the input is one block. What the root of a bcast scattered is passed on, unless it is flat.
        const bool passes_on = job.collective == Collective::bcast && !job.flat;
        const char *from =
            passes_on ? job.windows[job.rank] + slots + job.root * job.layout.slot_bytes : job.in + piece.offset;
        char *local = job.out + at;
        machine.copy(from, gathered_to(job, at, slot, from == local ? nullptr : local, peers), piece.bytes);
    }
}

template <Kind kKind, class Machine>
FLX_HD void gather(Machine &machine, const Job &job, uint32_t block, uint32_t step, uint32_t count) {
    const int part = job.part_of(job.rank);
    const Piece piece = job.piece(part, block, step);
    uint32_t peers = 0;
    for (int peer = 0; peer < job.ranks; ++peer)
        if (peer != job.rank && job.gathers(job.rank, peer))
            peers |= 1U << peer;
    const uint64_t slot = job.layout.slot(Stage::gathered, count, block, job.rank);
    const uint64_t slots = job.layout.slot(Stage::scattered, count, block, 0);
    if constexpr (kKind == Kind::adds)
        gather_sums(machine, job, part, piece, slot, peers, slots);
    else
        gather_copies(machine, job, part, piece, slot, peers, slots);
    machine.signal(Stage::gathered, block, count);
}

template <class Machine>
FLX_HD void collect(Machine &machine, const Job &job, uint32_t block, uint32_t step, uint32_t count) {
    for (int k = 1; !job.direct && k < job.ranks; ++k) {
        const int peer = (job.rank + k) % job.ranks;
        const int part = job.part_of(peer);
        const Piece piece = job.piece(part, block, step);
        if (piece.bytes != 0 && job.gathers(peer, job.rank))
            machine.copy(job.windows[job.rank] + job.layout.slot(Stage::gathered, count, block, peer),
                         Targets{job.out + job.part_offset(part) + piece.offset, nullptr, 0, 0}, piece.bytes);
    }
}

/// A team's part of an operation of that kind, on one rank. Ends early where a wait says so: the window is then of no
/// more use.
template <Kind kKind, class Machine>
FLX_HD void run_exchange(Machine &machine, const Job &job, uint32_t block) {
    if (!machine.alive())
        return;
    const uint32_t before = machine.count(block);
    const uint32_t steps = job.steps(block);
    if (!scatter<kKind>(machine, job, block, 0, before + 1))
        return;
    for (uint32_t step = 0; step < steps; ++step) {
        const uint32_t count = before + step + 1;
        if (step + 1 < steps && !scatter<kKind>(machine, job, block, step + 1, count + 1))
            return;
        if (!machine.wait(Stage::scattered, block, count))
            return;
        gather<kKind>(machine, job, block, step, count);
        if (!job.collects())
            continue;
        if (!machine.wait(Stage::gathered, block, count))
            return;
        collect(machine, job, block, step, count);
    }
    machine.set_count(block, before + steps);
}

}  // namespace flx::cuda
