/// \file executor.h
/// The host loop: carries out one rank's schedule over the links, starting each cell of each step when what it depends
/// on is done. Alone knows both schedules and links.
///
/// Memory safety: an arrival is placed by its identity, after its identity, length and signature were checked against
/// the operation; a chunk that names cells that were done before is a late duplicate and is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cells.h"
#include "link.h"
#include "operation.h"
#include "partition.h"
#include "plan.h"
#include "trace.h"
#include "wait.h"

namespace flx {

/// Chooses vectors and learns from what happened: the communicator's controllers, by peer.
class Router {
  public:
    Router() = default;
    Router(const Router &) = delete;
    Router &operator=(const Router &) = delete;
    virtual ~Router() = default;
    /// The vector for a block of `bytes` to `peer`. Links of weight 0 only where it does not reach.
    virtual const PartitionVector &vector(int peer, size_t bytes, int phase) = 0;
    /// Links over which `peer` may send to this rank, as a bit mask.
    [[nodiscard]] virtual uint32_t incoming_links(int peer) const = 0;
};

/// A peer that a running operation still needs, for error sentences.
struct Awaited {
    int peer = -1;
    bool receiving = true;  ///< waits for its chunks (else: for its acknowledgements)
    uint64_t bytes = 0;     ///< missing
};

class Executor {
  public:
    /// Links live as long as the executor. One thread.
    Executor(int rank, int size, uint32_t comm, std::vector<Link *> links, Router &router);

    /// Runs `operation` by `plan`. On error the communicator is broken: chunks may be on their way.
    Status run(const Operation &operation, const Plan &plan, Waiter &waiter);

    /// Of the running operation: whom it waits for, at most one entry per peer. For Watch::check.
    void awaited(std::vector<Awaited> &result) const;

    /// Records from now on, for tests; null: no more.
    void record(Trace *trace) { trace_ = trace; }

  private:
    struct Cursor {  // what is left to send of one slice
        int link;
        uint32_t next;
        uint32_t end;
        uint32_t chunk_cells;
    };
    struct State {
        Cells cells;
        size_t count = 0;  // elements of the block
        const std::byte *from = nullptr;
        std::byte *to = nullptr;
        uint32_t first_cursor = 0;
        uint32_t cursors = 0;
    };
    struct Held {  // an arrival that could not be used up yet
        Arrival arrival;
        int link;
        uint32_t step;
        uint32_t remaining;  // cells
    };
    struct Early {
        Arrival arrival;
        int link;
    };

    Status prepare(const Operation &operation, const Plan &plan);
    [[nodiscard]] std::byte *place(const algorithms::Place &place, size_t offset) const;
    Status take_arrivals(bool &moved);
    Status accept(const Arrival &arrival, int link);
    void take_completions(bool &moved);
    bool retry_held();
    Status advance(bool &moved);
    Status advance_send(uint32_t index, bool &moved);
    bool advance_gather(uint32_t index);
    bool advance_copy(uint32_t index);
    bool consume(Held &held);
    void apply(uint32_t index, uint32_t first, uint32_t cells, const std::byte *data);
    [[nodiscard]] uint32_t ready(const algorithms::Step &step, uint32_t first, uint32_t limit) const;
    void mark(uint32_t index, uint32_t first, uint32_t cells);
    [[nodiscard]] size_t elements(const State &state, uint32_t first, uint32_t cells) const;
    void note(TraceKind kind, int link, int peer, const ChunkHeader &header) {
        if (trace_ != nullptr) [[unlikely]]
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

    // Of the running operation.
    const Operation *operation_ = nullptr;
    const Plan *plan_ = nullptr;
    size_t element_bytes_ = 1;
    size_t cell_elements_ = 1;
    bool stream_ = false;     // results are too large to stay in the cache
    uint32_t link_mask_ = 0;  // links that may carry something of this operation
    uint32_t open_steps_ = 0;
    std::vector<State> states_;
    std::vector<Cursor> cursors_;
    std::vector<uint32_t> active_;  // sends not posted, gathers and copies not done
    std::vector<uint64_t> bits_;
    std::vector<std::vector<Held>> held_;  // by peer
    uint32_t held_count_ = 0;
    std::vector<const void *> sources_;
    std::unique_ptr<std::byte, void (*)(void *)> scratch_;
    size_t scratch_bytes_ = 0;
    size_t scratch_block_bytes_ = 0;

    Trace *trace_ = nullptr;
    std::vector<Early> early_;  // chunks of operations that this rank has not begun
};

}  // namespace flx
