/// \file staging.h
/// A share of a collective that goes through host memory, beside NVLink: each rank writes its share, chunk by chunk,
/// into slots of its own in memory that all ranks have mapped and pinned, and whoever needs it reads it there. One hop,
/// so each byte crosses PCIe once each way; a ring would do so at every rank. What is written is read by all peers,
/// but in an alltoall or a reduce-scatter, where slots are divided among them.
///
/// Copies out and copies in run in lanes (streams) of their own. Two flags go between pairs of ranks: `filled` to a
/// reader, `drained` back to the writer, each counted in steps of the operation. An operation begins with slot 0: a
/// writer waits at its end until all was read. Plain logic, run by kernels (lane.h), by streams
/// (runtime/cuda/near/staged_link.cpp) and by host threads (tests).
#pragma once

#include <algorithm>

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

enum class Lane : uint8_t { out, in };
enum class Signal : uint8_t { filled, drained };

/// The staged share of one operation. Plain data, but for `rank` equal on all ranks.
struct Staging {
    Job job;
    uint64_t from = 0;    ///< of each part: where the share begins
    uint64_t bytes = 0;   ///< of each part; parts that are shorter have less
    uint64_t pinned = 0;  ///< of each rank
    uint64_t chunk = 0;
    uint32_t slots = 0;

    /// Every reader gets something else.
    [[nodiscard]] FLX_HD bool apart() const {
        return job.collective == Collective::alltoall || job.collective == Collective::reduce_scatter_block;
    }
    [[nodiscard]] FLX_HD bool writes(int rank) const { return job.collective != Collective::bcast || rank == job.root; }
    [[nodiscard]] FLX_HD bool reads(int rank) const { return job.collective != Collective::bcast || rank != job.root; }
    [[nodiscard]] FLX_HD uint32_t steps() const { return static_cast<uint32_t>((bytes + chunk - 1) / chunk); }
    /// Steps whose bytes all lie before `end` of each part.
    [[nodiscard]] uint32_t steps_before(uint64_t end) const {
        if (end >= from + bytes)
            return steps();
        return end <= from ? 0 : static_cast<uint32_t>((end - from) / chunk);
    }
    /// The ranks that read what this one writes, and those that write what it reads: a bit each.
    [[nodiscard]] FLX_HD uint32_t readers() const {
        uint32_t mask = 0;
        for (int peer = 0; peer < job.ranks; ++peer)
            mask |= peer != job.rank && writes(job.rank) && reads(peer) ? 1U << peer : 0U;
        return mask;
    }
    [[nodiscard]] FLX_HD uint32_t writers() const {
        uint32_t mask = 0;
        for (int peer = 0; peer < job.ranks; ++peer)
            mask |= peer != job.rank && reads(job.rank) && writes(peer) ? 1U << peer : 0U;
        return mask;
    }
    /// The piece of a step, of the part that `writer` owns.
    [[nodiscard]] FLX_HD Piece piece(int writer, uint32_t step) const {
        const uint64_t length = job.collective == Collective::bcast ? job.bytes : job.part_length(writer);
        const uint64_t begin = from + uint64_t{step} * chunk;
        uint64_t end = begin + chunk < from + bytes ? begin + chunk : from + bytes;
        end = end < length ? end : length;
        return {begin, end > begin ? end - begin : 0};
    }
    /// Where the slot of a step lies in the memory of all ranks. All readers have one slot where they get the same.
    [[nodiscard]] FLX_HD uint64_t slot(int writer, int reader, uint32_t step) const {
        const int shelf = !apart() ? 0 : (reader - writer - 1 + job.ranks) % job.ranks;
        return writer * pinned + (uint64_t{slots} * shelf + step % (slots == 0 ? 1 : slots)) * chunk;
    }
    /// What this rank shows `reader`, and where it puts what `writer` shows: the beginning of the part.
    [[nodiscard]] FLX_HD const char *source(int reader) const {
        switch (job.collective) {
            case Collective::alltoall:
            case Collective::reduce_scatter_block:
                return job.in + job.part_offset(reader);
            case Collective::allreduce:  // what it reduced
                return job.out + job.part_offset(job.rank);
            default:
                return job.in;
        }
    }
    [[nodiscard]] FLX_HD char *target(int writer) const {
        switch (job.collective) {
            case Collective::bcast:
            case Collective::reduce_scatter_block:  // of two ranks: to be added there
                return job.out;
            default:
                return job.out + job.part_offset(writer);
        }
    }
};

/// Large chunks have fewer flags, but the last of them is read when all others are through.
inline Staging stage(const Job &job, uint64_t from, uint64_t bytes, uint64_t pinned) {
    constexpr uint64_t kLine = 4096;
    constexpr uint64_t kLeast = 512 << 10;
    constexpr uint64_t kMost = 2 << 20;
    constexpr uint64_t kChunks = 12;
    constexpr uint64_t kLeastSlots = 2;
    Staging staging{job, from, bytes, pinned};
    const uint64_t room = pinned / (staging.apart() ? job.ranks - 1 : 1);
    const uint64_t wanted = std::clamp((bytes / kChunks + kLine - 1) / kLine * kLine, kLeast, kMost);
    staging.chunk = std::max(std::min(wanted, room / kLeastSlots / kLine * kLine), kLine);
    staging.slots = static_cast<uint32_t>(room / staging.chunk);
    return staging;
}
/// What `stage` needs of each rank.
inline constexpr uint64_t kLeastPinned = uint64_t{2} * kMaxRanks * 4096;

/// Steps [first, last) of the lane that copies out. False: gave up.
///
/// A Machine puts into its lane: `tell(signal, peers, count)`, which signals that so many steps of this operation are
/// done; `hear(signal, peers, count)`, which waits until each of them has signalled so many (false: gave up);
/// `fill(slot, from, bytes)` and `drain(to, slot, bytes)`.
template <class Machine>
FLX_HD bool write_steps(Machine &machine, const Staging &staging, uint32_t first, uint32_t last) {
    const uint32_t readers = staging.readers();
    const int self = staging.job.rank;
    for (uint32_t step = first; step < last && readers != 0; ++step) {
        if (step >= staging.slots && !machine.hear(Signal::drained, readers, step - staging.slots + 1))
            return false;
        if (staging.apart()) {
            for (int k = 1; k < staging.job.ranks; ++k) {
                const int reader = (self + k) % staging.job.ranks;
                const Piece its = staging.piece(reader, step);
                machine.fill(staging.slot(self, reader, step), staging.source(reader) + its.offset, its.bytes);
            }
        } else {
            const Piece piece = staging.piece(self, step);
            machine.fill(staging.slot(self, -1, step), staging.source(-1) + piece.offset, piece.bytes);
        }
        machine.tell(Signal::filled, readers, step + 1);
    }
    return true;
}

/// Returns after the last step when all was read.
template <class Machine>
FLX_HD bool end_writing(Machine &machine, const Staging &staging) {
    return staging.readers() == 0 || machine.hear(Signal::drained, staging.readers(), staging.steps());
}

/// Steps [first, last) of the lane that copies in. False: gave up.
template <class Machine>
FLX_HD bool read_steps(Machine &machine, const Staging &staging, uint32_t first, uint32_t last) {
    const uint32_t writers = staging.writers();
    const int self = staging.job.rank;
    for (uint32_t step = first; step < last && writers != 0; ++step) {
        if (!machine.hear(Signal::filled, writers, step + 1))
            return false;
        for (int k = 1; k < staging.job.ranks; ++k) {
            const int writer = (self + k) % staging.job.ranks;
            const Piece piece = staging.piece(staging.apart() ? self : writer, step);
            if ((writers >> writer & 1) != 0)
                machine.drain(staging.target(writer) + piece.offset, staging.slot(writer, self, step), piece.bytes);
        }
        // Where no slot is used twice nobody waits for flags until the end.
        if (staging.steps() > staging.slots || step + 1 == staging.steps())
            machine.tell(Signal::drained, writers, step + 1);
    }
    return true;
}

}  // namespace flx::cuda
