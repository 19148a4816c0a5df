/// \file stream.h
/// Large collectives of one host, block by block through shared memory that stays in the cache.
///
/// The vector is cut into one region per rank, each region into blocks. Block i of all regions goes through three
/// stages, which overlap for different i: every rank *stages* its block i of each other rank's region in its own shared
/// memory; the owner of a region *reduces* block i of it, reading what the others staged where it lies, writes the
/// result to its output, past the cache where the vector is larger, and in the same pass to where it shows it; everyone
/// *fetches* the results. So each input is read once and each output written once, and what is moved besides stays in
/// the cache. A schedule of the direct algorithm (docs/algorithms.md) moves more: it copies a result once per receiver.
/// A bcast's root stages all, and so does, of two ranks, the one that is not a reduce's root.
///
/// Each stage of each rank has a counter of blocks, over all operations. What a rank shows of a block, the staged parts
/// and the result, lies side by side in its ring, block after block over all operations: memory is used again once the
/// ring has come round, when all who read what was in it have counted past it. The ring is longer than what is under
/// way: a line that other cores still have in their caches takes its writer several times as long as one that has left
/// them. But all ranks' rings together are to stay in the last cache (runtime/shm/memory/cache_share.h): where ranks
/// are many, short calls go round a part of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "algorithms/collective.h"
#include "runtime/base/wait.h"
#include "runtime/plan/operation.h"
#include "runtime/shm/memory/bells.h"
#include "runtime/shm/memory/segment.h"

namespace flx::shm {

class Stream {
  public:
    static size_t bytes(int ranks, size_t budget_per_rank);
    /// What each rank writes, from the beginning of that memory.
    static Area area(int ranks, size_t budget_per_rank, bool late = false);

    /// `memory`: bytes(ranks, budget_per_rank) of the segment, zeroed, aligned to a cache line; the same on all ranks,
    /// which are all ranks of the communicator. `bells`: of the same ranks, longer-lived; null where no rank sleeps.
    /// `cache_share`: as in runtime/shm/memory/cache_share.h, the same on all ranks.
    Stream(std::byte *memory, int rank, int ranks, size_t budget_per_rank, Bells *bells = nullptr,
           size_t cache_share = 0);

    /// From now on rings are as with that budget, which is less; their places stay. Equal on all ranks, before any
    /// operation.
    void shorten(size_t budget_per_rank);
    [[nodiscard]] bool shortened() const { return ring_bytes_ != ring_stride_; }

    /// Whether run() knows it.
    static bool serves(algorithms::Collective collective) {
        return algorithms::traits_of(collective).in_memory == algorithms::InMemory::all;
    }
    /// Carries `call` out. Reductions add in rank order. In place where the collective's rule allows it. No barrier.
    Status run(const Call &call, Waiter &waiter);

    /// The rank that the current or last wait is for.
    [[nodiscard]] int waiting_for() const { return waiting_for_; }

  private:
    struct Counters;
    /// The running operation, and what it does with a block in each stage.
    struct Course;

    static size_t block_bytes_for(int ranks, size_t budget_per_rank);
    static size_t ring_bytes_for(int ranks, size_t budget_per_rank);
    [[nodiscard]] Counters &counters(int rank) const;
    void go_round(Course &course);
    [[nodiscard]] size_t offset(const Course &course, uint64_t block) const;
    [[nodiscard]] std::byte *place(const Course &course, int rank, uint64_t block) const;
    [[nodiscard]] std::byte *staged(const Course &course, int rank, uint64_t block, int region) const;
    [[nodiscard]] std::byte *result(const Course &course, int rank, uint64_t block) const;
    [[nodiscard]] bool free_to_write(uint64_t block);

    Status run_regions(const Course &course, Waiter &waiter);
    Status run_bcast(const Course &course, Waiter &waiter);
    Status run_reduce(const Course &course, Waiter &waiter);
    void stage(const Course &course, uint64_t block);
    void reduce(const Course &course, uint64_t block);
    void collect(const Course &course, uint64_t block);
    void fetch(const Course &course, uint64_t block);
    /// Whether all other ranks' counter has reached `number`; remembers which has not.
    bool reached(std::atomic<uint64_t> Counters::*counter, uint64_t number);
    Status check_signatures(const Course &course);
    void publish(std::atomic<uint64_t> &counter, uint64_t number) {
        counter.store(number, std::memory_order_release);
        if (bells_ != nullptr)
            bells_->ring();
    }

    std::byte *memory_;
    int rank_;
    int ranks_;
    size_t cache_share_;
    size_t block_bytes_;
    size_t ring_stride_;
    size_t ring_bytes_;  ///< of it
    size_t long_bytes_;  ///< of it, where they do for a call's blocks
    size_t past_bytes_;
    Bells *bells_;
    size_t round_ = 0;       ///< bytes of the ring that the current operation goes round
    uint64_t all_read_ = 0;  ///< blocks before the first operation that went round as many
    size_t cursor_ = 0;      ///< in each rank's ring, of the current operation's first block
    uint64_t base_ = 0;      ///< blocks of all operations before the current one
    uint64_t number_ = 0;    ///< of the current operation
    int waiting_for_ = -1;
    std::vector<const void *> sources_;
};

}  // namespace flx::shm
