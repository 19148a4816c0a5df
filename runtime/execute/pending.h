/// \file pending.h
/// An operation that was issued and has not completed. The communicator's; used again for later ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/kept_memory.h"
#include "runtime/execute/exchange.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/planner.h"

namespace flx {

struct Pending {
    Pending(int rank, int size, MessageCounts &counts) : exchange(rank, size, counts) {}

    Operation operation;
    Choice choice;
    Blocks blocks;
    const Plan *plan = nullptr;  ///< null: `exchange`
    Exchange exchange;
    Executor *executor = nullptr;  ///< while it runs
    size_t bytes = 0;              ///< of the whole vector
    uint64_t first_sequence = 0;   ///< of a group: operation.sequence is its last one's
    uint64_t call = 0;             ///< number in the call log, of a group its first; 0: messages alone
    uint64_t last_call = 0;        ///< of a group
    uint64_t recorded = 0;         ///< as Recorder::enter gave it; 0: it is part of a call that is, or is not
    bool alone = true;             ///< no other operation ran meanwhile, and this rank was there all the time
    bool lends = false;            ///< ranks of a host lend each other their rails
    bool done = false;
    Status status;
    int64_t began_ns = 0;
    std::vector<PhaseDone> phases;  ///< once it is done, where a trace wants them

    // Memory of its own, kept for the next operation.
    std::vector<size_t> displacements;
    std::vector<KeptMemory> asides;
    size_t asides_used = 0;
    // What is copied when all is done: results that could not be put in place before.
    void *copy_to = nullptr;
    const void *copy_from = nullptr;
    size_t copy_bytes = 0;

    /// `bytes` of memory that lasts until the operation is done. std::bad_alloc.
    std::byte *aside(size_t bytes);
    /// As new.
    void clear();
};

}  // namespace flx
