/// \file fused.h
/// Small collectives of one host in one step: every rank shows its input in shared memory, and every rank that needs it
/// reads it there. No schedule, no link, no system call.
///
/// Each rank has a ring of boards, used in turn by operation number. A board carries the number of the operation whose
/// input it shows; inputs of up to kInlineBytes lie in the same pair of cache lines as that number, longer ones in
/// shorter rings of payloads. So a rank that only sends, such as a bcast's root, may be many operations ahead of its
/// readers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/wait.h"
#include "runtime/include/flx.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/ways.h"
#include "runtime/shm/memory/bells.h"
#include "runtime/shm/memory/late_memory.h"
#include "runtime/shm/memory/segment.h"
#include "runtime/shm/memory/tree.h"

namespace flx::shm {

class Fused {
  public:
    static constexpr size_t kInlineBytes = 112;

    /// `budget_per_rank`: what rings of payloads may take, beyond the least that they need.
    static size_t bytes(int ranks, size_t payload_bytes, size_t budget_per_rank = 0);
    /// What each rank writes, from the beginning of that memory. `late`: only boards are reserved at once.
    static std::vector<Area> areas(int ranks, size_t payload_bytes, size_t budget_per_rank = 0, bool late = false);

    /// `memory`: bytes(ranks, payload_bytes, budget_per_rank) of the segment, zeroed, aligned to a cache line.
    /// `rank_of[l]`: the communicator's rank of the host's l-th rank; in order of rank, all ranks of the communicator
    /// among them. `bells`: of the same ranks, longer-lived; null where nobody sleeps.
    Fused(std::byte *memory, int local_rank, int ranks, size_t payload_bytes, Bells *bells = nullptr,
          size_t budget_per_rank = 0);

    /// Of the memory only boards are reserved: the rest is when it is first needed, by all ranks in one operation.
    /// Rings are shorter then where there is little room. `memory`: longer-lived. Equal on all ranks, before any
    /// operation.
    void reserve_late(LateMemory *memory);
    /// All ranks reserve late memory, each its own, in an operation of its own. `none`: why not all could, and none
    /// has.
    Status reserve_together(std::byte *own, size_t bytes, Status &none, Waiter &waiter);
    /// The same, of as much as all have room for: of what `less` returns next where `bytes` are too many, until it
    /// returns 0. Equal on all ranks.
    Status reserve_what_fits(std::byte *own, size_t bytes, const std::function<size_t()> &less, Status &none,
                             Waiter &waiter);

    /// Sets how ranks lie to each other, for operations that go in steps. Equal on all ranks, and between two
    /// operations.
    void set_tree(Tree tree) { tree_ = std::move(tree); }
    [[nodiscard]] const Tree &tree() const { return tree_; }
    /// Sets which operations go in two steps. Equal on all ranks, and between two operations.
    void set_two_steps(const TwoSteps &two_steps) { two_steps_ = two_steps; }

    /// Largest input of one rank.
    [[nodiscard]] size_t payload_bytes() const { return payload_bytes_; }
    /// Reserves now what inputs of so many bytes need, which is equal on all ranks. FLX_ERR_SYSTEM on all ranks where
    /// one has no room, as of any operation that needs it: nothing was done then, and shorter ones go on.
    Status reserve_for(size_t bytes, Waiter &waiter);
    /// Whether the last operation ended so. Asking forgets it.
    [[nodiscard]] bool lacked_room() { return std::exchange(lacked_room_, false); }
    /// Whether all memory is reserved, and whether less of it than was planned.
    [[nodiscard]] bool all_reserved() const { return reserved_ == SIZE_MAX; }
    [[nodiscard]] bool shortened() const { return ring_bytes_ != ring_stride_; }

    /// Carries `call` out. FLX_ERR_UNSUPPORTED for collectives that are messages (algorithms::InMemory).
    Status run(const Call &call, Waiter &waiter);
    // One operation each. `signature` must be equal on all ranks. Reductions add in rank order; sources are read in
    // place. In place where the collective's in-place rule allows it. `waiting_for` is the rank that is waited for, for
    // error sentences.
    Status allreduce(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op, uint32_t signature,
                     Waiter &waiter);
    Status reduce(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op, int root, uint32_t signature,
                  Waiter &waiter);
    Status reduce_scatter_block(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                                uint32_t signature, Waiter &waiter);
    /// Blocks of given lengths. In place, what the result overwrites are other blocks, which stay shown.
    Status reduce_scatter(const void *in, void *out, const size_t *counts, flx_dtype_t dtype, flx_op_t op,
                          uint32_t signature, Waiter &waiter);
    /// Combined two by two, as a chain of ranks does: 16-bit floats are rounded each time.
    Status scan(bool exclusive, const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                uint32_t signature, Waiter &waiter);
    Status allgather(const void *in, void *out, size_t block_bytes, uint32_t signature, Waiter &waiter);
    /// Lengths and places in bytes are `element` times the arrays' numbers.
    Status allgatherv(const void *in, void *out, const size_t *counts, const size_t *displacements, size_t element,
                      uint32_t signature, Waiter &waiter);
    Status gather(const void *in, void *out, size_t block_bytes, int root, uint32_t signature, Waiter &waiter);
    Status scatter(const void *in, void *out, size_t block_bytes, int root, uint32_t signature, Waiter &waiter);
    /// Blocks of `lengths` bytes, by rank, which lie side by side at the root.
    Status gatherv(const void *in, void *out, const size_t *lengths, int root, uint32_t signature, Waiter &waiter);
    Status scatterv(const void *in, void *out, const size_t *lengths, int root, uint32_t signature, Waiter &waiter);
    Status alltoall(const void *in, void *out, size_t block_bytes, uint32_t signature, Waiter &waiter);
    Status bcast(void *buffer, size_t bytes, int root, uint32_t signature, Waiter &waiter);
    Status barrier(uint32_t signature, Waiter &waiter);
    /// Every rank shows up to `bytes`, which is equal on all of them: `write(place)` puts it there. Each then takes
    /// what it needs: `take(rank, what that one shows)` for all others.
    template <typename Write, typename Take>
    Status exchange(size_t bytes, const Write &write, const Take &take, uint32_t signature, Waiter &waiter);
    /// The same where all others show something to `root`, and do not wait for it.
    template <typename Write, typename Take>
    Status hand_in(size_t bytes, int root, const Write &write, const Take &take, uint32_t signature, Waiter &waiter);
    /// The same where only `root` shows something: `take(what it shows)` for all others.
    template <typename Write, typename Take>
    Status hand_out(size_t bytes, int root, const Write &write, const Take &take, uint32_t signature, Waiter &waiter);

    /// The rank that the current or last wait is for.
    [[nodiscard]] int waiting_for() const { return waiting_for_; }
    /// How often this rank took what `rank` showed.
    [[nodiscard]] uint64_t taken_from(int rank) const { return taken_[rank]; }

  private:
    struct Board;
    struct Done;

    [[nodiscard]] Board &board(int rank, uint64_t number) const;
    /// Where `rank` shows inputs of `bytes` in operation `number`.
    [[nodiscard]] std::byte *place_of(int rank, uint64_t number, size_t bytes) const;
    /// Where `rank` shows inputs of `bytes` in the current operation.
    [[nodiscard]] std::byte *shown(int rank, size_t bytes) const { return place_of(rank, number_, bytes); }
    [[nodiscard]] Done &done(int rank) const;
    /// Begins operation ++number_, in which this rank may show `own_bytes`: waits until all have read what was in their
    /// place. What it shows is just that long, as it would lie in a place that was not waited for otherwise.
    /// `longest_bytes`, of any rank's input, is equal on all ranks: the shortest ring that one uses tells how soon its
    /// readers say that they have read.
    Status begin(size_t own_bytes, size_t longest_bytes, Waiter &waiter);
    Status begin(size_t bytes, Waiter &waiter) { return begin(bytes, bytes, waiter); }
    Status reserve_more(size_t bytes, Status &none, Waiter &waiter);
    [[nodiscard]] std::byte *own_place() const { return shown(rank_, own_bytes_); }
    [[nodiscard]] size_t in_ring(uint64_t number, size_t bytes) const;
    [[nodiscard]] std::span<uint64_t> shown_in_ring();
    [[nodiscard]] uint64_t shown_before();
    void show(const void *data, uint32_t signature);
    void show_written(uint32_t signature);
    void prepare_next(size_t bytes) const;
    void prepare_later(size_t bytes);
    void fetch_ahead(int rank, size_t bytes);
    void fetch_ahead_of_all(size_t bytes);
    void show_blocks(const std::byte *from, std::span<const int> ranks, size_t block_bytes, uint32_t signature);
    void take_blocks(std::byte *to, std::span<const int> ranks, size_t block_bytes) const;
    Status await(int rank, uint32_t signature, Waiter &waiter);
    Status await_all(uint32_t signature, Waiter &waiter);
    /// All ranks' blocks in rank order, `own` for this rank's; they are shown, or will be.
    Status collect(void *out, const void *own, size_t block_bytes, uint32_t signature, Waiter &waiter);
    /// This rank needs nothing of operation number_ any more. `everyone_came`: all ranks have shown it.
    void end(bool everyone_came);
    /// The last of several steps, in which it was shown that all had come to the first, after operation `before`.
    void end_last_step(uint64_t before);
    /// Passes what `root` has to all, along the tree.
    Status hand_on(void *buffer, size_t bytes, int root, uint32_t signature, Waiter &waiter);
    Status allreduce_in_two(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op, uint32_t signature,
                            Waiter &waiter);
    Status allgather_in_two(const void *in, void *out, size_t block_bytes, int ranks_a_part, uint32_t signature,
                            Waiter &waiter);
    Status barrier_by_tree(uint32_t signature, Waiter &waiter);
    Status reduce_shown(void *out, const void *own, size_t offset_bytes, size_t input_bytes, size_t count,
                        flx_dtype_t dtype, flx_op_t op);

    std::byte *memory_;
    int rank_;
    int ranks_;
    std::byte *shorts_;  ///< short payloads; those up to a page; rings
    std::byte *pages_;
    std::byte *rings_;
    size_t payload_bytes_;
    size_t ring_stride_;
    size_t ring_bytes_;  ///< of it: less where there is little room
    Bells *bells_;
    LateMemory *late_ = nullptr;
    size_t reserved_ = SIZE_MAX;  ///< the longest input that there is memory for
    Status why_no_more_;          ///< there will be none for longer ones
    bool lacked_room_ = false;
    uint64_t number_ = 0;        ///< of the current operation
    size_t own_bytes_ = 0;       ///< what this rank may show in it
    uint64_t read_through_ = 0;  ///< all ranks are known to have ended operations up to this one
    uint64_t ring_ = 0;          ///< how many operations the current one's kind of memory holds
    uint64_t told_ = 0;          ///< this rank has published that it ended operations up to this one
    // The last operation that this rank showed something of, by place in each ring.
    std::vector<uint64_t> shown_in_;
    std::vector<uint64_t> shown_short_;
    std::vector<uint64_t> shown_page_;
    std::vector<uint64_t> shown_in_ring_;  ///< by page
    int waiting_for_ = -1;
    TwoSteps two_steps_;
    Tree tree_;
    std::vector<const void *> sources_;
    std::vector<uint64_t> taken_;
    std::vector<uint64_t> look_at_;  ///< by rank: the operation from which on fetch_ahead looks again
};

template <typename Write, typename Take>
Status Fused::exchange(size_t bytes, const Write &write, const Take &take, uint32_t signature, Waiter &waiter) {
    FLX_TRY(begin(bytes, waiter));
    write(own_place());
    show_written(signature);
    prepare_next(bytes);
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        FLX_TRY(await(rank, signature, waiter));
        take(rank, static_cast<const std::byte *>(shown(rank, bytes)));
    }
    end(true);
    return {};
}

template <typename Write, typename Take>
Status Fused::hand_in(size_t bytes, int root, const Write &write, const Take &take, uint32_t signature,
                      Waiter &waiter) {
    FLX_TRY(begin(bytes, waiter));
    if (rank_ != root) {
        write(own_place());
        show_written(signature);
        prepare_later(bytes);
        end(false);
        return {};
    }
    for (int rank = 0; rank < ranks_; ++rank) {
        if (rank == rank_)
            continue;
        FLX_TRY(await(rank, signature, waiter));
        take(rank, static_cast<const std::byte *>(shown(rank, bytes)));
        fetch_ahead(rank, bytes);
    }
    end(true);
    return {};
}

template <typename Write, typename Take>
Status Fused::hand_out(size_t bytes, int root, const Write &write, const Take &take, uint32_t signature,
                       Waiter &waiter) {
    FLX_TRY(begin(bytes, waiter));
    if (rank_ == root) {
        write(own_place());
        show_written(signature);
        prepare_later(bytes);
    } else {
        FLX_TRY(await(root, signature, waiter));
        take(static_cast<const std::byte *>(shown(root, bytes)));
        fetch_ahead(root, bytes);
    }
    end(false);
    return {};
}

}  // namespace flx::shm
