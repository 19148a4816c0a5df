#include "runtime/shm/ways/stream.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"
#include "runtime/shm/memory/cache_share.h"

namespace flx::shm {

using algorithms::block_extent;
using algorithms::Collective;
using algorithms::Extent;

namespace {

/// Blocks of one rank that are under way at most: enough that a rank which lost its core does not stop the others.
constexpr uint64_t kSlots = 4;
/// Blocks, as long as they can be, that fit into a ring: those under way, and what stays free at the end.
constexpr size_t kRing = kSlots + 1;
/// A rank is at most kSlots blocks, and so kSlots operations, ahead of another.
constexpr size_t kTags = 8;
constexpr size_t kLine = 64;
constexpr size_t kLargestBlock = 256 * 1024;
constexpr size_t kSmallestBlock = 4096;
/// A budget below this hardly has any room for shared memory.
constexpr size_t kLittle = size_t{256} << 10;
constexpr size_t kSmallestOfLittle = 2048;

constexpr uint64_t less(uint64_t number, uint64_t by) {
    return number - std::min(number, by);
}

}  // namespace

struct Stream::Counters {
    alignas(kLine) std::atomic<uint64_t> staged;
    alignas(kLine) std::atomic<uint64_t> reduced;
    alignas(kLine) std::atomic<uint64_t> fetched;
    alignas(kLine) std::atomic<uint64_t> tags[kTags];  ///< by operation number: number and signature
};

struct Stream::Call {
    Collective collective;
    const std::byte *in;
    std::byte *out;
    size_t count;
    size_t element;   ///< bytes
    size_t block;     ///< elements of a block of one region
    uint64_t blocks;  ///< of the longest region
    size_t part;      ///< bytes of a block of one region in the ring,
    size_t step;      ///< and of all that a rank shows of a block
    uint64_t first;   ///< blocks before the ring begins anew
    flx_dtype_t dtype;
    flx_op_t op;
    int root;
    uint64_t tag;
    bool stream;
    bool stages;   ///< inputs of other regions go through shared memory
    bool shows;    ///< results do
    bool fetches;  ///< this rank reads them

    [[nodiscard]] Extent extent(int region, int regions, uint64_t index) const {
        const Extent whole = block_extent(count, regions, region);
        const size_t first = std::min(index * block, whole.count);
        return {whole.offset + first, std::min(block, whole.count - first)};
    }
};

// Memory: counters [rank]; then per rank its ring.
size_t Stream::block_bytes_for(int ranks, size_t budget_per_rank) {
    const size_t block = budget_per_rank / (kRing * ranks) / kLine * kLine;
    return std::clamp(block, budget_per_rank < kLittle ? kSmallestOfLittle : kSmallestBlock, kLargestBlock);
}

size_t Stream::ring_bytes_for(int ranks, size_t budget_per_rank) {
    return std::max(budget_per_rank / kLine * kLine, kRing * ranks * block_bytes_for(ranks, budget_per_rank));
}

size_t Stream::bytes(int ranks, size_t budget_per_rank) {
    return ranks * (sizeof(Counters) + ring_bytes_for(ranks, budget_per_rank));
}

Area Stream::area(int ranks, size_t budget_per_rank) {
    return {ranks * sizeof(Counters), ring_bytes_for(ranks, budget_per_rank)};
}

Stream::Stream(std::byte *memory, int rank, int ranks, size_t budget_per_rank, Bells *bells, size_t cache_share)
    : memory_(memory),
      rank_(rank),
      ranks_(ranks),
      block_bytes_(block_bytes_for(ranks, budget_per_rank)),
      ring_bytes_(ring_bytes_for(ranks, budget_per_rank)),
      long_bytes_(long_ring(cache_share, ring_bytes_)),
      past_bytes_(past_cache_from(cache_share)),
      bells_(bells),
      sources_(ranks) {}

Stream::Counters &Stream::counters(int rank) const {
    return reinterpret_cast<Counters *>(memory_)[rank];
}

/// How far a call goes in the ring before it begins anew. One that goes another way than the last waits, before it
/// writes anything, until what that and those before wrote is read: their blocks may lie anywhere.
void Stream::go_round(Call &call) {
    const size_t round = std::min(ring_bytes_, std::max(long_bytes_, kRing * call.step));
    if (round != round_) {
        round_ = round;
        cursor_ = 0;
        all_read_ = base_;
    }
    call.first = (round_ - cursor_) / call.step;
}

/// The offset of a block in each rank's ring: what does not fit into its end goes to its beginning.
size_t Stream::offset(const Call &call, uint64_t block) const {
    if (block < call.first)
        return cursor_ + block * call.step;
    return (block - call.first) % (round_ / call.step) * call.step;
}

std::byte *Stream::place(const Call &call, int rank, uint64_t block) const {
    return memory_ + ranks_ * sizeof(Counters) + rank * ring_bytes_ + offset(call, block);
}

std::byte *Stream::staged(const Call &call, int rank, uint64_t block, int region) const {
    return place(call, rank, block) + (region - rank - 1 + ranks_) % ranks_ * call.part;
}

std::byte *Stream::result(const Call &call, int rank, uint64_t block) const {
    return place(call, rank, block) + (call.stages ? ranks_ - 1 : 0) * call.part;
}

Status Stream::run(Collective collective, const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                   int root, uint32_t signature, Waiter &waiter) {
    // Pipelining wants several blocks, the hand-over of each wants them not too small.
    constexpr size_t kBlocksWanted = 4;
    constexpr size_t kLeastWorthwhile = 8192;
    const size_t element = size_of(dtype);
    const bool is_bcast = collective == Collective::bcast;
    const bool to_one = collective == Collective::reduce && ranks_ == 2;
    const bool whole = is_bcast || to_one;  // no regions
    const size_t region_bytes = block_extent(count, whole ? 1 : ranks_, 0).count * element;
    const size_t most = whole ? block_bytes_ * ranks_ : block_bytes_;
    const size_t least = std::min(most, kLeastWorthwhile);
    const size_t wanted = std::clamp(std::bit_ceil(region_bytes / kBlocksWanted + 1), least, most);

    Call call{};
    call.collective = collective;
    call.in = static_cast<const std::byte *>(in);
    call.out = static_cast<std::byte *>(out);
    call.count = count;
    call.element = element;
    call.block = wanted / element;
    call.blocks = (region_bytes / element + call.block - 1) / call.block;
    call.dtype = dtype;
    call.op = op;
    call.root = root;
    call.tag = ++number_ << 32 | signature;
    call.stream = count * element >= past_bytes_;
    call.stages = collective != Collective::allgather;
    call.shows = collective != Collective::reduce_scatter_block && collective != Collective::alltoall && !is_bcast;
    call.fetches = call.shows && (collective != Collective::reduce || rank_ == root);
    call.part = (call.block * element + kLine - 1) / kLine * kLine;
    const int parts = whole ? 1 : (call.stages ? ranks_ - 1 : 0) + (call.shows ? 1 : 0);
    call.step = call.part * std::max(1, parts);  // a single rank shows nothing
    go_round(call);

    Counters &mine = counters(rank_);
    mine.tags[number_ % kTags].store(call.tag, std::memory_order_relaxed);  // released with the first count
    // What is not there must not be taken for a result.
    FLX_TRY(is_bcast ? run_bcast(call, waiter) : to_one ? run_reduce(call, waiter) : run_regions(call, waiter));
    // Stages that this operation did not have count as done, so that the counters of all operations go on from here.
    if (call.blocks != 0)
        cursor_ = offset(call, call.blocks - 1) + call.step;
    base_ += call.blocks;
    publish(mine.staged, base_);
    publish(mine.reduced, base_);
    publish(mine.fetched, base_);
    return {};
}

bool Stream::reached(std::atomic<uint64_t> Counters::*counter, uint64_t number) {
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        if ((counters(rank).*counter).load(std::memory_order_acquire) < number) {
            waiting_for_ = rank;
            return false;
        }
    }
    return true;
}

/// Whether nobody needs what was in the place of that block, nor is too far behind.
bool Stream::free_to_write(uint64_t block) {
    const uint64_t done = std::max(less(base_ + block + 1, kSlots), all_read_);
    return reached(&Counters::reduced, done) && reached(&Counters::fetched, done);
}

Status Stream::check_signatures(const Call &call) {
    for (int rank = 0; rank < ranks_; ++rank)
        if (counters(rank).tags[number_ % kTags].load(std::memory_order_relaxed) != call.tag)
            return fail(FLX_ERR_MISMATCH,
                        "rank {} called another collective, or the same with another count, type, reduction or root; "
                        "all ranks must call alike (FLX_CHECK=1 says what differs)",
                        rank);
    return {};
}

Status Stream::run_regions(const Call &call, Waiter &waiter) {
    Counters &mine = counters(rank_);
    uint64_t next_stage = call.stages ? 0 : call.blocks;
    uint64_t next_reduce = 0;
    uint64_t next_fetch = call.fetches ? 0 : call.blocks;
    bool checked = false;
    while (next_reduce < call.blocks || next_fetch < call.blocks) {
        bool moved = false;
        if (next_stage < call.blocks && free_to_write(next_stage)) {
            stage(call, next_stage++);
            publish(mine.staged, base_ + next_stage);
            moved = true;
        }
        if (next_reduce < call.blocks &&
            (call.stages ? next_reduce < next_stage && reached(&Counters::staged, base_ + next_reduce + 1) : true) &&
            (call.stages || free_to_write(next_reduce))) {
            if (!checked && call.stages) {
                FLX_TRY(check_signatures(call));
                checked = true;
            }
            reduce(call, next_reduce++);
            publish(mine.reduced, base_ + next_reduce);
            if (!call.fetches)  // so that nobody waits for this rank to read results
                publish(mine.fetched, base_ + next_reduce);
            moved = true;
        }
        if (next_fetch < call.blocks && next_fetch < next_reduce &&
            reached(&Counters::reduced, base_ + next_fetch + 1)) {
            if (!checked) {
                FLX_TRY(check_signatures(call));
                checked = true;
            }
            fetch(call, next_fetch++);
            publish(mine.fetched, base_ + next_fetch);
            moved = true;
        }
        if (moved)
            waiter.moved();
        else
            FLX_TRY(waiter.pause());
    }
    return {};
}

void Stream::stage(const Call &call, uint64_t block) {
    for (int step = 1; step < ranks_; ++step) {
        const int region = (rank_ + step) % ranks_;
        const Extent extent = call.extent(region, ranks_, block);
        std::memcpy(staged(call, rank_, block, region), call.in + extent.offset * call.element,
                    extent.count * call.element);
    }
}

/// Copies a block of each rank to the output of an alltoall. In place, what this overwrites was staged before.
void Stream::collect(const Call &call, uint64_t block) {
    for (int step = 0; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        const Extent extent = call.extent(rank, ranks_, block);
        std::byte *out = call.out + extent.offset * call.element;
        const std::byte *from =
            rank == rank_ ? call.in + extent.offset * call.element : staged(call, rank, block, rank_);
        if (out != from)
            copy_bytes(out, from, extent.count * call.element, call.stream);
    }
}

void Stream::reduce(const Call &call, uint64_t block) {
    if (call.collective == Collective::alltoall) {
        collect(call, block);
        return;
    }
    const Extent extent = call.extent(rank_, ranks_, block);
    const size_t bytes = extent.count * call.element;
    if (bytes == 0)
        return;
    std::byte *shown = result(call, rank_, block);
    if (call.collective == Collective::allgather) {
        const Extent first = call.extent(rank_, ranks_, 0);
        const size_t offset = (extent.offset - first.offset) * call.element;  // `in` is this rank's region alone
        std::memcpy(shown, call.in + offset, bytes);
        std::byte *out = call.out + extent.offset * call.element;
        if (out != call.in + offset)
            copy_bytes(out, shown, bytes, call.stream);
        return;
    }
    for (int rank = 0; rank < ranks_; ++rank)
        sources_[rank] = rank == rank_ ? call.in + extent.offset * call.element : staged(call, rank, block, rank_);
    const int divisor = call.op == FLX_AVG ? ranks_ : 1;
    if (call.collective == Collective::reduce_scatter_block) {
        // In place, `out` is region 0 of `in`, of which block `block` was staged before.
        std::byte *out = call.out + block * call.block * call.element;
        reduce_many(call.dtype, call.op, out, sources_.data(), ranks_, extent.count, divisor, call.stream);
        return;
    }
    if (call.collective == Collective::reduce && rank_ != call.root) {
        reduce_many(call.dtype, call.op, shown, sources_.data(), ranks_, extent.count, divisor, false);
        return;
    }
    std::byte *out = call.out + extent.offset * call.element;
    // The results of a reduce's root are read by no other rank.
    std::byte *others = call.collective == Collective::reduce ? nullptr : shown;
    reduce_many(call.dtype, call.op, out, sources_.data(), ranks_, extent.count, divisor, call.stream, others);
}

void Stream::fetch(const Call &call, uint64_t block) {
    for (int step = 1; step < ranks_; ++step) {
        const int region = (rank_ + step) % ranks_;
        const Extent extent = call.extent(region, ranks_, block);
        std::byte *out = call.out + extent.offset * call.element;
        copy_bytes(out, result(call, region, block), extent.count * call.element, call.stream);
    }
}

/// The root stages blocks, with all its slots' regions as one; the others read them and count them as reduced.
Status Stream::run_bcast(const Call &call, Waiter &waiter) {
    Counters &mine = counters(rank_);
    for (uint64_t block = 0; block < call.blocks; ++block) {
        const Extent extent = call.extent(0, 1, block);
        const size_t bytes = extent.count * call.element;
        std::byte *data = call.out + extent.offset * call.element;
        if (rank_ == call.root) {
            while (!free_to_write(block))
                FLX_TRY(waiter.pause());
            std::memcpy(place(call, rank_, block), data, bytes);
            publish(mine.staged, base_ + block + 1);
        } else {
            waiting_for_ = call.root;
            Counters &root = counters(call.root);
            while (root.staged.load(std::memory_order_acquire) < base_ + block + 1)
                FLX_TRY(waiter.pause());
            if (block == 0 && root.tags[number_ % kTags].load(std::memory_order_relaxed) != call.tag)
                return fail(
                    FLX_ERR_MISMATCH,
                    "rank {} called another collective, or the same with another count, type or root; all ranks "
                    "must call alike (FLX_CHECK=1 says what differs)",
                    call.root);
            copy_bytes(data, place(call, call.root, block), bytes, call.stream);
            mine.fetched.store(base_ + block + 1, std::memory_order_release);
            publish(mine.reduced, base_ + block + 1);
        }
        waiter.moved();
    }
    return {};
}

/// Carries out a reduce of two ranks: one stages all of its input, the root adds it to its own. Cut into regions, as
/// for more ranks, the root would stage, add and fetch half of it each, and the two would wait for each other.
Status Stream::run_reduce(const Call &call, Waiter &waiter) {
    Counters &mine = counters(rank_);
    const int other = 1 - rank_;
    waiting_for_ = other;
    for (uint64_t block = 0; block < call.blocks; ++block) {
        const Extent extent = call.extent(0, 1, block);
        const size_t bytes = extent.count * call.element;
        const std::byte *own = call.in + extent.offset * call.element;
        if (rank_ != call.root) {
            while (!free_to_write(block))
                FLX_TRY(waiter.pause());
            std::memcpy(place(call, rank_, block), own, bytes);
            publish(mine.staged, base_ + block + 1);
        } else {
            while (counters(other).staged.load(std::memory_order_acquire) < base_ + block + 1)
                FLX_TRY(waiter.pause());
            if (block == 0)
                FLX_TRY(check_signatures(call));
            sources_[rank_] = own;
            sources_[other] = place(call, other, block);
            const int divisor = call.op == FLX_AVG ? ranks_ : 1;
            reduce_many(call.dtype, call.op, call.out + extent.offset * call.element, sources_.data(), ranks_,
                        extent.count, divisor, call.stream);
            mine.fetched.store(base_ + block + 1, std::memory_order_release);
            publish(mine.reduced, base_ + block + 1);
        }
        waiter.moved();
    }
    return {};
}

}  // namespace flx::shm
