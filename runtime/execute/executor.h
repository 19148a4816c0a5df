/// \file executor.h
/// The host loop: carries out one rank's schedule over the links, starting each cell of each step when what it depends
/// on is done. Alone knows both schedules and links.
///
/// An executor carries one operation at a time. Several of one communicator share its links: each takes what comes for
/// any of them and hands it to the one whose it is (inbox.h).
///
/// The vector is where each link starts. Cells that were not sent move to a link that would deliver them sooner, and
/// from a link that is lost to those that work (executor_send.cpp).
///
/// Memory safety: an arrival is placed by its identity, after its identity, length and signature were checked against
/// the operation; a chunk that names cells that were done before is a late duplicate and is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/kept_memory.h"
#include "runtime/execute/cells.h"
#include "runtime/execute/exchange.h"
#include "runtime/execute/inbox.h"
#include "runtime/link/link.h"
#include "runtime/link/trace.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/progress.h"
#include "runtime/shares/partition.h"
#include "runtime/shares/router.h"

namespace flx {

/// A peer that a running operation still needs, for error sentences.
struct Awaited {
    int peer = -1;
    bool receiving = true;  ///< waits for its chunks (else: for its acknowledgements)
    uint64_t bytes = 0;     ///< missing
};

class Executor {
  public:
    /// Links live as long as the executor; null where this rank has none of an index. One thread. `inbox`: shared with
    /// other executors of the communicator, and outlives it.
    Executor(int rank, int size, uint32_t comm, std::vector<Link *> links, Router &router, Inbox &inbox);
    ~Executor();
    Executor(const Executor &) = delete;
    Executor &operator=(const Executor &) = delete;

    /// Begins `operation` by `plan`; all of them stay until it is done. On error, here and in step(), the communicator
    /// is broken: chunks may be on their way.
    Status start(const Operation &operation, const Plan &plan, const Blocks &blocks = {});
    /// The same for messages between pairs of ranks; `exchange` was started.
    Status start(const Operation &operation, const Exchange &exchange);
    /// Does what can be done now, without waiting.
    Status step(bool &any_moved);
    [[nodiscard]] bool done() const { return open_steps_ == 0; }
    /// After done(): ready for the next.
    void finish();
    /// Whether what is left takes milliseconds, at the rate of this operation so far, and that rate is so low that
    /// nothing runs dry while this process sleeps for a moment. `woken`: what comes ends that moment.
    [[nodiscard]] bool takes_long(bool woken = false) const;

    // For the inbox.
    [[nodiscard]] bool holds() const { return held_count_ != 0; }
    /// Whether it still receives from `peer`.
    [[nodiscard]] bool awaits(int peer) const;
    /// Copies arrivals that cannot be used yet: `all`, or those of a sum that waits for cells while something came from
    /// every rank. True if there were any.
    bool set_aside(bool all);

    /// Adds whom the running operation waits for, at most one entry per peer and direction. For Watch::check.
    void awaited(std::vector<Awaited> &result) const;

    /// How far the running operation has come. Walks over its steps.
    [[nodiscard]] Progress progress() const;
    /// From now on it is noted when phases of a schedule end, which costs a look at the clock each.
    void time_phases() { times_phases_ = true; }
    /// Of the last operation, those that were noted, in the order in which they began. Before finish().
    void phases_done(std::vector<PhaseDone> &result) const;

    /// Whether the last operation was so short that all it sent was copied: of how fast links are it says nothing.
    [[nodiscard]] bool brief() const { return brief_; }
    /// Whether the operation that has begun will show how fast links are, if no link takes anything otherwise than it
    /// was asked to.
    [[nodiscard]] bool shows_rates() const { return !brief_ || !short_; }

    /// Records from now on, for tests; null: no more.
    void record(Trace *trace) {
        trace_ = trace;
        inbox_.record(trace);
    }

  private:
    /// Of an operation that should take less than this a link's acknowledgements, which come when processes have a
    /// core, say less than what many operations before have shown. It goes as the vectors say until it has taken
    /// kPlannedNs: a link that has nothing more to do for a moment, since a shaper let its burst pass, would take what
    /// it can only deliver later.
    static constexpr int64_t kBriefNs = 10'000'000;
    static constexpr int64_t kPlannedNs = 16'000'000;

    struct Cursor {  // what is left to send of one slice
        int link;
        uint32_t next;
        uint32_t end;
        uint32_t chunk_cells;
    };
    struct Lane {             // a link towards a peer
        uint64_t left = 0;    // bytes of its slices that were not sent
        uint64_t under = 0;   // bytes of this operation under way, as of this turn
        uint64_t before = 0;  // of earlier ones, which the peer may hold until it asks for them
        double believed = 0;  // rate before this operation, bytes/ns; 0: not known
        double rate = 0;      // now
        double latency_ns = 0;
    };
    struct Side {              // a peer that is sent to; links as bit masks
        uint32_t may = 0;      // may carry to it
        uint32_t sharing = 0;  // have a slice in this operation, and may give and take cells
        uint32_t engaged = 0;  // sent something in this turn, or had no room
        uint32_t lost = 0;
        uint32_t taken = 0;   // in this turn, by a step before whose cells are ready
        size_t bytes = 0;     // in slices of those that share
        double believed = 0;  // their rates before this operation, bytes/ns
        double end_ns = 0;    // when all will be there, from this turn on, if no link waits for another; 0: not known
    };
    struct State {
        Cells cells;
        size_t count = 0;  // elements of the block
        size_t cell_elements = 1;
        uint64_t sequence = 0;  // of the chunks that are sent
        uint32_t signature = 0;
        const std::byte *from = nullptr;
        std::byte *to = nullptr;
        uint32_t first_cursor = 0;
        uint32_t cursors = 0;
        bool whole = false;    // all of it begins on one link
        bool exposed = false;  // a message that the peer fetches where memory is shared
    };
    struct Held {  // an arrival that could not be used up yet
        Arrival arrival;
        int link;
        uint32_t step;
        uint32_t remaining;  // cells
        std::byte *aside;    // memory of our own that it was copied to; null: the link's
    };

    Status prepare(const Operation &operation, const Plan &plan, const Blocks &blocks);
    void prepare(const Operation &operation, const Exchange &exchange);
    Status fetch(const Arrival &arrival, int link, uint32_t step);
    void begin(const std::vector<algorithms::Step> &steps, const std::vector<int> &peers);
    void open_step(uint32_t index, size_t cell_bytes, uint64_t *words, size_t vector_bytes);
    Status opened();
    [[nodiscard]] bool is_stuck();
    /// Whether a chunk is for the operation that this one carries.
    [[nodiscard]] bool is_mine(int peer, const ChunkHeader &header) const;
    [[nodiscard]] uint32_t receiving_step(int peer, const ChunkHeader &header) const;
    [[nodiscard]] uint32_t sending_step(int peer, const ChunkHeader &header) const;
    [[nodiscard]] Status mismatch(int peer, const ChunkHeader &header, uint32_t step) const;
    [[nodiscard]] Status unasked(int peer, const ChunkHeader &header) const;
    [[nodiscard]] std::byte *place(const algorithms::Place &place, size_t offset) const;
    Status take_arrivals(bool &moved);
    Status take_from(int index, bool looked, bool &came);
    [[nodiscard]] bool needs_nothing();
    [[nodiscard]] uint32_t links_to_poll();
    Status accept(const Arrival &arrival, int link);
    Status take(const Arrival &arrival, int link, std::byte *aside);
    bool take_completion(const Completion &completion, int link);
    void take_completions(bool &moved);
    bool retry_held();
    void give_back(const Held &held);
    Status advance(bool &moved);
    Status advance_send(uint32_t index, bool &moved);
    Status move_cells(bool &moved);
    Status move_cells_of(uint32_t index, bool &moved);
    [[nodiscard]] Cursor *slowest_cursor(uint32_t index, int taker, double &end_ns);
    Status send_run(uint32_t index, Cursor &cursor, int link, uint32_t first, uint32_t cells, bool &moved);
    Status link_failed(int link, int peer);
    [[nodiscard]] bool all_brief() const;
    void look_at_paces();
    [[nodiscard]] static bool busy_until_end(const Side &side, const Lane &lane, size_t more);
    [[nodiscard]] static double end_ns(const Lane &lane, size_t more);
    [[nodiscard]] Lane &lane(int peer, int link) { return lanes_[peer * links_.size() + link]; }
    [[nodiscard]] const Lane &lane(int peer, int link) const { return lanes_[peer * links_.size() + link]; }
    bool advance_gather(uint32_t index);
    bool advance_copy(uint32_t index);
    bool consume(Held &held);
    void apply(uint32_t index, uint32_t first, uint32_t cells, const std::byte *data);
    [[nodiscard]] bool overwrites(const std::vector<algorithms::Step> &steps) const;
    [[nodiscard]] uint32_t ready(const algorithms::Step &step, uint32_t first, uint32_t limit) const;
    void mark(uint32_t index, uint32_t first, uint32_t cells);
    [[nodiscard]] size_t elements(const State &state, uint32_t first, uint32_t cells) const;
    [[nodiscard]] int divisor() const { return operation_->divisor != 0 ? operation_->divisor : size_; }
    void note(TraceKind kind, int link, int peer, const ChunkHeader &header) {
        if (trace_ != nullptr && noted_ && (header.sequence & kPairwise) == 0) [[unlikely]]
            trace_->note(kind, link, peer, header);
    }
    void note(TraceKind kind) { note(kind, -1, -1, {operation_->sequence, comm_, 0, 0, 0, 0, 0, 0, 0}); }
    void note_cells(TraceKind kind, const Held &held, uint32_t first, uint32_t cells) {
        ChunkHeader header = held.arrival.header;
        header.first_cell = first;
        header.cells = cells;
        note(kind, held.link, held.arrival.peer, header);
    }
    [[nodiscard]] const Held *held_cell(int peer, uint32_t step, uint32_t cell) const;

    const int rank_;
    const int size_;
    const uint32_t comm_;
    const std::vector<Link *> links_;
    Router &router_;
    uint32_t memory_links_ = 0;

    // Of the running operation.
    const Operation *operation_ = nullptr;
    const Plan *plan_ = nullptr;          // or
    const Exchange *exchange_ = nullptr;  // one of both
    const std::vector<algorithms::Step> *steps_ = nullptr;
    const std::vector<int> *peers_ = nullptr;
    size_t element_bytes_ = 1;
    bool movable_ = false;     // cells may move between links
    bool as_planned_ = false;  // but do not yet
    bool in_order_ = false;    // what goes to a peer for sums goes there in the same order on all ranks
    bool stream_ = false;      // results are too large to stay in the cache
    bool short_ = false;       // little is sent, and how fast that goes is known
    uint32_t unseen_ = 0;      // such operations
    uint32_t unflushed_ = 0;   // links that may have kept chunks back
    uint32_t link_mask_ = 0;   // links that may carry something of this operation
    bool brief_ = false;       // short, and nothing of it waits for an acknowledgement
    uint32_t came_ = 0;        // links over which chunks of it came
    bool at_hand_ = false;     // chunks may lie in links' inboxes since an earlier look
    uint32_t open_steps_ = 0;
    bool times_phases_ = false;
    std::vector<int64_t> phase_ends_;  ///< by phase, ns; empty: not noted
    uint64_t open_bytes_ = 0;          // of all steps, not done
    uint64_t all_bytes_ = 0;
    int64_t began_ns_ = 0;
    std::vector<State> states_;
    std::vector<Cursor> cursors_;
    std::vector<uint32_t> active_;  // sends not posted, gathers and copies not done
    std::vector<uint64_t> bits_;
    std::vector<std::vector<Held>> held_;  // by peer
    uint32_t held_count_ = 0;
    bool used_ = false;                    // since the last turn's end a cell was sent, received or summed
    int64_t stuck_since_ns_ = 0;           // nothing moved; 0: something did
    bool stuck_ = false;                   // for long: what is ready is sent whatever the paces say
    std::vector<Side> sides_;              // by peer
    std::vector<PieceCutter::Owed> owed_;  // likewise, from one block to the next
    std::vector<Lane> lanes_;              // by peer and link
    std::vector<const void *> sources_;
    KeptMemory scratch_memory_;
    std::byte *scratch_ = nullptr;
    size_t scratch_block_bytes_ = 0;

    uint32_t lively_ = 0;  // links over which the last operation's chunks came
    uint32_t turns_ = 0;
    uint32_t unlooked_ = 0;        // turns after which nothing was awaited any more
    uint64_t unlooked_bytes_ = 0;  // of their operations, since the last look that followed one

    Trace *trace_ = nullptr;
    bool noted_ = false;  // the running operation is
    bool in_place_ = true;
    Inbox &inbox_;
};

}  // namespace flx
