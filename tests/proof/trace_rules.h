/// \file trace_rules.h
/// The rules of failover.pml, for traces of real executors: replays what all ranks recorded (runtime/link/trace.h) as
/// one run of the protocol, and refuses what the model does not allow. Of the model's parts:
///
/// | failover.pml                                  | here                                                       |
/// |-----------------------------------------------|------------------------------------------------------------|
/// | send, take_copy; sent once unless lose()      | sends, copies; resends after loses, until acknowledged     |
/// | DATA: one transmission arrives at most once   | no more arrivals of a chunk than transmissions             |
/// | in_turn, used: nothing is added twice         | uses, inside the operation, each cell once                 |
/// | use: a duplicate is only acknowledged         | drops: of cells that were used                             |
/// | ACK comes from use (not EARLY_ACK)            | acknowledges: every cell of the chunk was used             |
/// | set_aside, then apply                         | keeps: an acknowledgement; the End sees that it was used   |
/// | believe: used                                 | acknowledged: the receiver has acknowledged that chunk     |
/// | Executor::run returns when open_steps is 0    | returns: everything sent from its place was acknowledged   |
/// | End                                           | every rank returned, every cell that was sent was used     |
///
/// Ranks need no common clock: an event waits until what it needs has been replayed. No event takes away what another
/// needs, so the order in which ranks take turns does not matter.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/link/trace.h"

namespace flx::testing {

using Traces = std::vector<std::vector<TraceEvent>>;  // by rank

class TraceRules {
  public:
    /// Empty, or a sentence that names the rank, the event and the rule.
    static std::string check(const Traces &traces) { return TraceRules(traces).replay(); }

  private:
    struct Step {  // of a sender and a receiver: operation, sender, receiver, phase, block
        std::vector<bool> sent, used;
    };
    struct Chunk {
        int transmissions = 0;
        int arrivals = 0;
        int releases = 0;
        int believed = 0;
        bool copied = false;
        int link = -1;      // that it was last sent over,
        int lost_seen = 0;  // and how often that had been lost then
    };
    struct Rank {
        size_t next = 0;
        uint64_t sequence = 0;  // of the last operation entered
        bool inside = false;
        size_t unacknowledged = 0;                  // of those sent from their place
        std::map<std::pair<int, int>, int> losses;  // by link and peer
    };
    using StepKey = std::tuple<uint64_t, int, int, uint32_t, uint32_t>;
    using ChunkKey = std::tuple<StepKey, uint32_t, uint32_t>;
    enum class Verdict : uint8_t { taken, waits, wrong };

    explicit TraceRules(const Traces &traces) : traces_(traces), ranks_(traces.size()) {}

    std::string replay() {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t rank = 0; rank < ranks_.size(); ++rank) {
                Rank &state = ranks_[rank];
                while (state.next < traces_[rank].size()) {
                    const TraceEvent &event = traces_[rank][state.next];
                    const Verdict verdict = take(static_cast<int>(rank), event);
                    if (verdict == Verdict::wrong)
                        return describe(rank);
                    if (verdict == Verdict::waits)
                        break;
                    ++state.next;
                    moved = true;
                }
            }
        }
        for (size_t rank = 0; rank < ranks_.size(); ++rank) {
            if (ranks_[rank].next < traces_[rank].size()) {
                take(static_cast<int>(rank), traces_[rank][ranks_[rank].next]);
                return describe(rank);
            }
            if (ranks_[rank].inside)
                return fmt::format("rank {} did not return from operation {}", rank, ranks_[rank].sequence);
        }
        for (const auto &[key, step] : steps_) {
            if (step.sent != step.used)
                return fmt::format("rank {} did not use all that rank {} sent of block {} in phase {} of operation {}",
                                   std::get<2>(key), std::get<1>(key), std::get<4>(key), std::get<3>(key),
                                   std::get<0>(key));
        }
        return {};
    }

    std::string describe(size_t rank) const {
        static constexpr const char *kNames[] = {"begins",       "sends", "copies",  "arrives",
                                                 "uses",         "drops", "keeps",   "acknowledges",
                                                 "acknowledged", "loses", "resends", "returns"};
        const TraceEvent &event = traces_[rank][ranks_[rank].next];
        return fmt::format(
            "rank {}, event {} ({}, operation {}, phase {}, block {}, cells {}+{}, peer {}, link {}): {}", rank,
            ranks_[rank].next, kNames[static_cast<size_t>(event.kind)], event.header.sequence, event.header.phase,
            event.header.block, event.header.first_cell, event.header.cells, event.peer, event.link, why_);
    }
    Verdict wrong(const char *why) {
        why_ = why;
        return Verdict::wrong;
    }
    Verdict waits(const char *why) {
        why_ = why;
        return Verdict::waits;
    }

    static StepKey step_key(int sender, int receiver, const ChunkHeader &header) {
        return {header.sequence, sender, receiver, header.phase, header.block};
    }
    static bool all(const std::vector<bool> &flags, const ChunkHeader &header, bool value) {
        for (uint32_t cell = header.first_cell; cell < header.first_cell + header.cells; ++cell)
            if ((cell < flags.size() && flags[cell]) != value)
                return false;
        return true;
    }
    static void set(std::vector<bool> &flags, const ChunkHeader &header) {
        if (flags.size() < header.first_cell + header.cells)
            flags.resize(header.first_cell + header.cells);
        std::fill_n(flags.begin() + header.first_cell, header.cells, true);
    }

    Verdict take(int rank, const TraceEvent &event) {
        Rank &self = ranks_[static_cast<size_t>(rank)];
        const ChunkHeader &header = event.header;
        const bool running = self.inside && header.sequence == self.sequence;
        const bool sending = event.kind == TraceKind::sends || event.kind == TraceKind::copies ||
                             event.kind == TraceKind::resends || event.kind == TraceKind::acknowledged;
        if (event.kind == TraceKind::begins) {
            if (self.inside || header.sequence <= self.sequence)
                return wrong("operations begin one after the other");
            self.inside = true;
            self.sequence = header.sequence;
            return Verdict::taken;
        }
        if (event.kind == TraceKind::returns) {
            if (!running)
                return wrong("this operation does not run");
            if (self.unacknowledged != 0)
                return wrong("what was sent from the user's memory is not acknowledged");
            self.inside = false;
            return Verdict::taken;
        }
        if (event.kind == TraceKind::loses) {
            ++self.losses[{event.link, event.peer}];
            return Verdict::taken;
        }
        const int sender = sending ? rank : event.peer;
        const StepKey key = step_key(sender, sending ? event.peer : rank, header);
        Step &step = steps_[key];
        Chunk &chunk = chunks_[{key, header.first_cell, header.cells}];
        switch (event.kind) {
            case TraceKind::sends:
            case TraceKind::copies:
                if (!running)
                    return wrong("sent outside its operation");
                if (!all(step.sent, header, false))
                    return wrong("sent twice by the executor");
                set(step.sent, header);
                chunk.copied = event.kind == TraceKind::copies;
                self.unacknowledged += chunk.copied ? 0 : 1;
                chunk.transmissions = 1;
                chunk.link = event.link;
                chunk.lost_seen = self.losses[{event.link, event.peer}];
                return Verdict::taken;
            case TraceKind::resends:
                if (chunk.transmissions == 0)
                    return wrong("sent again, but never sent");
                if (chunk.believed != 0)
                    return wrong("sent again after it was acknowledged");
                if (!chunk.copied && !running)
                    return wrong("sent again from memory that is the user's");
                if (self.losses[{chunk.link, event.peer}] == chunk.lost_seen)
                    return wrong("sent again, but its link was not lost");
                ++chunk.transmissions;
                chunk.link = event.link;
                chunk.lost_seen = self.losses[{event.link, event.peer}];
                return Verdict::taken;
            case TraceKind::arrives:
                if (!running)
                    return wrong("arrived outside its operation");
                if (chunk.arrivals == chunk.transmissions)
                    return waits("it arrives more often than it was sent");
                ++chunk.arrivals;
                return Verdict::taken;
            case TraceKind::uses:
                if (!running)
                    return wrong("used outside its operation");
                if (!all(step.used, header, false))
                    return wrong("a cell counts twice");
                if (!all(step.sent, header, true))
                    return waits("used before it was sent");
                set(step.used, header);
                return Verdict::taken;
            case TraceKind::drops:
                return all(step.used, header, true) ? Verdict::taken : wrong("dropped, but never used");
            case TraceKind::keeps:
                if (chunk.releases == chunk.transmissions)
                    return waits("kept more often than it was sent");
                ++chunk.releases;
                return Verdict::taken;
            case TraceKind::acknowledges:
                if (!all(step.used, header, true))
                    return wrong("acknowledged before it was used");
                if (chunk.releases == chunk.transmissions)
                    return waits("acknowledged more often than it was sent");
                ++chunk.releases;
                return Verdict::taken;
            case TraceKind::acknowledged:
                if (chunk.transmissions == 0 || chunk.copied || chunk.believed != 0)
                    return wrong("not a chunk that waits for an acknowledgement");
                if (chunk.releases == 0)
                    return waits("the receiver did not acknowledge it");
                chunk.believed = 1;
                --self.unacknowledged;
                return Verdict::taken;
            default:
                return wrong("no such event");
        }
    }

    const Traces &traces_;
    std::vector<Rank> ranks_;
    std::map<StepKey, Step> steps_;
    std::map<ChunkKey, Chunk> chunks_;
    std::string why_;
};

}  // namespace flx::testing
