/// \file staging.h
/// A share of a collective that goes through host memory, beside NVLink: each rank writes its share, chunk by chunk,
/// into slots of its own in memory that all ranks have mapped and pinned, and whoever needs it reads it there. One hop,
/// so each byte crosses PCIe once each way; a ring would do so at every rank. What is written is read by all peers,
/// but in an alltoall or a reduce-scatter, where slots are divided among them.
///
/// Copies out and copies in run in lanes (streams) of their own. Two flags go between pairs of ranks: `filled` to a
/// reader, `drained` back to the writer, each counted by pair since the window was made, so that graphs can be replayed
/// between eager calls. An operation begins with slot 0: a writer waits at its end until all was read. Plain logic, run
/// by streams (staged_link.h) and by host threads (tests).
#pragma once

#include <algorithm>

#include "lane_step.h"
#include "status.h"

namespace flx::cuda {

enum class Lane : uint8_t { out, in };

/// The staged share of one operation. Plain data, but for `rank` equal on all ranks.
struct Staging {
    Job job;
    uint64_t from = 0;    ///< of each part: where the share begins
    uint64_t bytes = 0;   ///< of each part; parts that are shorter have less
    uint64_t pinned = 0;  ///< of each rank
    uint64_t chunk = 0;
    uint32_t slots = 0;

    /// Every reader gets something else.
    [[nodiscard]] bool apart() const { return job.kind == Kind::alltoall || job.kind == Kind::reduce_scatter_block; }
    [[nodiscard]] bool writes(int rank) const { return job.kind != Kind::bcast || rank == job.root; }
    [[nodiscard]] bool reads(int rank) const { return job.kind != Kind::bcast || rank != job.root; }
    [[nodiscard]] uint32_t steps() const { return static_cast<uint32_t>((bytes + chunk - 1) / chunk); }
    /// Steps whose bytes all lie before `end` of each part.
    [[nodiscard]] uint32_t steps_before(uint64_t end) const {
        if (end >= from + bytes)
            return steps();
        return end <= from ? 0 : static_cast<uint32_t>((end - from) / chunk);
    }
    [[nodiscard]] uint32_t peers_if(bool (Staging::*does)(int) const) const {
        uint32_t mask = 0;
        for (int peer = 0; peer < job.ranks; ++peer)
            if (peer != job.rank && (this->*does)(peer))
                mask |= 1U << peer;
        return mask;
    }
    [[nodiscard]] uint32_t readers() const { return writes(job.rank) ? peers_if(&Staging::reads) : 0; }
    [[nodiscard]] uint32_t writers() const { return reads(job.rank) ? peers_if(&Staging::writes) : 0; }
    /// Of the part that `writer` owns.
    [[nodiscard]] Piece piece(int writer, uint32_t step) const {
        const uint64_t length = job.kind == Kind::bcast ? job.bytes : job.part_length(writer);
        const uint64_t begin = from + uint64_t{step} * chunk;
        const uint64_t end = std::min({begin + chunk, from + bytes, length});
        return {begin, end > begin ? end - begin : 0};
    }
    /// In the memory of all ranks. All readers have one slot where they get the same.
    [[nodiscard]] uint64_t slot(int writer, int reader, uint32_t step) const {
        const int shelf = !apart() ? 0 : (reader - writer - 1 + job.ranks) % job.ranks;
        return writer * pinned + (uint64_t{slots} * shelf + step % std::max(slots, 1U)) * chunk;
    }
    /// What this rank shows `reader`, and where it puts what `writer` shows: the beginning of the part.
    [[nodiscard]] const char *source(int reader) const {
        switch (job.kind) {
            case Kind::alltoall:
            case Kind::reduce_scatter_block:
                return job.in + job.part_offset(reader);
            case Kind::allreduce:  // what it reduced
                return job.out + job.part_offset(job.rank);
            default:
                return job.in;
        }
    }
    [[nodiscard]] char *target(int writer) const {
        switch (job.kind) {
            case Kind::bcast:
            case Kind::reduce_scatter_block:  // of two ranks: to be added there
                return job.out;
            default:
                return job.out + job.part_offset(writer);
        }
    }
};

/// Large chunks are faster, but the last of them is read when all others are through.
inline Staging stage(const Job &job, uint64_t from, uint64_t bytes, uint64_t pinned) {
    constexpr uint64_t kLine = 4096;
    constexpr uint64_t kLeast = 2 << 20;
    constexpr uint64_t kMost = 8 << 20;
    constexpr uint64_t kChunks = 6;
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

/// Steps [first, last) of the lane that copies out.
///
/// A Machine puts into a lane: `tell(lane, signal, peers, times)`; `hear(lane, signal, peers, times)`, which waits
/// until each of them told so much more; `fill(slot, from, bytes)` and `drain(to, slot, bytes)`.
template <class Machine>
Status write_steps(Machine &machine, const Staging &staging, uint32_t first, uint32_t last) {
    const uint32_t readers = staging.readers();
    const int self = staging.job.rank;
    for (uint32_t step = first; step < last && readers != 0; ++step) {
        if (step >= staging.slots)
            FLX_TRY(machine.hear(Lane::out, Signal::drained, readers, 1));
        const Piece piece = staging.piece(self, step);
        if (staging.apart()) {
            for (int k = 1; k < staging.job.ranks; ++k) {
                const int reader = (self + k) % staging.job.ranks;
                const Piece its = staging.piece(reader, step);
                FLX_TRY(machine.fill(staging.slot(self, reader, step), staging.source(reader) + its.offset, its.bytes));
            }
        } else {
            FLX_TRY(machine.fill(staging.slot(self, -1, step), staging.source(-1) + piece.offset, piece.bytes));
        }
        FLX_TRY(machine.tell(Lane::out, Signal::filled, readers, 1));
    }
    return {};
}

/// After the last step: all was read.
template <class Machine>
Status end_writing(Machine &machine, const Staging &staging) {
    const uint32_t left = std::min(staging.steps(), staging.slots);
    return staging.readers() == 0 || left == 0 ? Status()
                                               : machine.hear(Lane::out, Signal::drained, staging.readers(), left);
}

/// Steps [first, last) of the lane that copies in.
template <class Machine>
Status read_steps(Machine &machine, const Staging &staging, uint32_t first, uint32_t last) {
    const uint32_t writers = staging.writers();
    const int self = staging.job.rank;
    for (uint32_t step = first; step < last && writers != 0; ++step) {
        FLX_TRY(machine.hear(Lane::in, Signal::filled, writers, 1));
        for (int k = 1; k < staging.job.ranks; ++k) {
            const int writer = (self + k) % staging.job.ranks;
            const Piece piece = staging.piece(staging.apart() ? self : writer, step);
            if ((writers >> writer & 1) != 0)
                FLX_TRY(machine.drain(staging.target(writer) + piece.offset, staging.slot(writer, self, step),
                                      piece.bytes));
        }
        if (staging.steps() > staging.slots)
            FLX_TRY(machine.tell(Lane::in, Signal::drained, writers, 1));
    }
    return {};
}

/// After the last step. Where no slot was used twice nobody waited for flags until now.
template <class Machine>
Status end_reading(Machine &machine, const Staging &staging) {
    const bool told = staging.steps() > staging.slots || staging.writers() == 0;
    return told ? Status() : machine.tell(Lane::in, Signal::drained, staging.writers(), staging.steps());
}

}  // namespace flx::cuda
