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

struct Stream::Course {
    const Operation &operation;
    const std::byte *in;
    std::byte *out;
    size_t element;       ///< bytes
    size_t block = 0;     ///< elements of a block of one region
    uint64_t blocks = 0;  ///< of the longest region
    size_t part = 0;      ///< bytes of a block of one region in the ring,
    size_t step = 0;      ///< and of all that a rank shows of a block
    uint64_t first = 0;   ///< blocks before the ring begins anew
    uint64_t tag = 0;
    bool stream = false;
    bool stages = false;   ///< inputs of other regions go through shared memory
    bool shows = false;    ///< results do
    bool fetches = false;  ///< this rank reads them

    [[nodiscard]] Extent extent(int region, int regions, uint64_t index) const {
        const Extent whole = block_extent(operation.count, regions, region);
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

Area Stream::area(int ranks, size_t budget_per_rank, bool late) {
    return {ranks * sizeof(Counters), ring_bytes_for(ranks, budget_per_rank), late};
}

Stream::Stream(std::byte *memory, int rank, int ranks, size_t budget_per_rank, Bells *bells, size_t cache_share)
    : memory_(memory),
      rank_(rank),
      ranks_(ranks),
      cache_share_(cache_share),
      block_bytes_(block_bytes_for(ranks, budget_per_rank)),
      ring_stride_(ring_bytes_for(ranks, budget_per_rank)),
      ring_bytes_(ring_stride_),
      long_bytes_(long_ring(cache_share, ring_bytes_)),
      past_bytes_(past_cache_from(cache_share)),
      bells_(bells),
      sources_(ranks) {}

void Stream::shorten(size_t budget_per_rank) {
    block_bytes_ = block_bytes_for(ranks_, budget_per_rank);
    ring_bytes_ = ring_bytes_for(ranks_, budget_per_rank);
    long_bytes_ = long_ring(cache_share_, ring_bytes_);
}

Stream::Counters &Stream::counters(int rank) const {
    return reinterpret_cast<Counters *>(memory_)[rank];
}

/// How far a call goes in the ring before it begins anew. One that goes another way than the last waits, before it
/// writes anything, until what that and those before wrote is read: their blocks may lie anywhere.
void Stream::go_round(Course &course) {
    const size_t round = std::min(ring_bytes_, std::max(long_bytes_, kRing * course.step));
    if (round != round_) {
        round_ = round;
        cursor_ = 0;
        all_read_ = base_;
    }
    course.first = (round_ - cursor_) / course.step;
}

/// The offset of a block in each rank's ring: what does not fit into its end goes to its beginning.
size_t Stream::offset(const Course &course, uint64_t block) const {
    if (block < course.first)
        return cursor_ + block * course.step;
    return (block - course.first) % (round_ / course.step) * course.step;
}

std::byte *Stream::place(const Course &course, int rank, uint64_t block) const {
    return memory_ + ranks_ * sizeof(Counters) + rank * ring_stride_ + offset(course, block);
}

std::byte *Stream::staged(const Course &course, int rank, uint64_t block, int region) const {
    return place(course, rank, block) + (region - rank - 1 + ranks_) % ranks_ * course.part;
}

std::byte *Stream::result(const Course &course, int rank, uint64_t block) const {
    return place(course, rank, block) + (course.stages ? ranks_ - 1 : 0) * course.part;
}

Status Stream::run(const Call &call, Waiter &waiter) {
    // Pipelining wants several blocks, the hand-over of each wants them not too small.
    constexpr size_t kBlocksWanted = 4;
    constexpr size_t kLeastWorthwhile = 8192;
    const Operation &operation = call.operation;
    const Collective collective = operation.collective;
    const size_t element = operation.element();
    const bool is_bcast = collective == Collective::bcast;
    const bool to_one = collective == Collective::reduce && ranks_ == 2;
    const bool whole = is_bcast || to_one;  // no regions
    const size_t region_bytes = block_extent(operation.count, whole ? 1 : ranks_, 0).count * element;
    const size_t most = whole ? block_bytes_ * ranks_ : block_bytes_;
    const size_t least = std::min(most, kLeastWorthwhile);
    const size_t wanted = std::clamp(std::bit_ceil(region_bytes / kBlocksWanted + 1), least, most);

    Course course{operation, call.in(), call.out(), element};
    course.block = wanted / element;
    course.blocks = (region_bytes / element + course.block - 1) / course.block;
    course.tag = ++number_ << 32 | operation.signature;
    course.stream = operation.bytes() >= past_bytes_;
    course.stages = collective != Collective::allgather;
    course.shows = collective != Collective::reduce_scatter_block && collective != Collective::alltoall && !is_bcast;
    course.fetches = course.shows && (collective != Collective::reduce || rank_ == operation.root);
    course.part = (course.block * element + kLine - 1) / kLine * kLine;
    const int parts = whole ? 1 : (course.stages ? ranks_ - 1 : 0) + (course.shows ? 1 : 0);
    course.step = course.part * std::max(1, parts);  // a single rank shows nothing
    go_round(course);

    Counters &mine = counters(rank_);
    mine.tags[number_ % kTags].store(course.tag, std::memory_order_relaxed);  // released with the first count
    // What is not there must not be taken for a result.
    FLX_TRY(is_bcast ? run_bcast(course, waiter) : to_one ? run_reduce(course, waiter) : run_regions(course, waiter));
    // Stages that this operation did not have count as done, so that the counters of all operations go on from here.
    if (course.blocks != 0)
        cursor_ = offset(course, course.blocks - 1) + course.step;
    base_ += course.blocks;
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

Status Stream::check_signatures(const Course &course) {
    for (int rank = 0; rank < ranks_; ++rank)
        if (counters(rank).tags[number_ % kTags].load(std::memory_order_relaxed) != course.tag)
            return fail(Fault::calls_differ,
                        "rank {} called another collective, or the same with another count, type, reduction or root; "
                        "all ranks must call alike (FLX_CHECK=1 says what differs)",
                        rank);
    return {};
}

Status Stream::run_regions(const Course &course, Waiter &waiter) {
    Counters &mine = counters(rank_);
    uint64_t next_stage = course.stages ? 0 : course.blocks;
    uint64_t next_reduce = 0;
    uint64_t next_fetch = course.fetches ? 0 : course.blocks;
    bool checked = false;
    while (next_reduce < course.blocks || next_fetch < course.blocks) {
        bool moved = false;
        if (next_stage < course.blocks && free_to_write(next_stage)) {
            stage(course, next_stage++);
            publish(mine.staged, base_ + next_stage);
            moved = true;
        }
        if (next_reduce < course.blocks &&
            (course.stages ? next_reduce < next_stage && reached(&Counters::staged, base_ + next_reduce + 1) : true) &&
            (course.stages || free_to_write(next_reduce))) {
            if (!checked && course.stages) {
                FLX_TRY(check_signatures(course));
                checked = true;
            }
            reduce(course, next_reduce++);
            publish(mine.reduced, base_ + next_reduce);
            if (!course.fetches)  // so that nobody waits for this rank to read results
                publish(mine.fetched, base_ + next_reduce);
            moved = true;
        }
        if (next_fetch < course.blocks && next_fetch < next_reduce &&
            reached(&Counters::reduced, base_ + next_fetch + 1)) {
            if (!checked) {
                FLX_TRY(check_signatures(course));
                checked = true;
            }
            fetch(course, next_fetch++);
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

void Stream::stage(const Course &course, uint64_t block) {
    for (int step = 1; step < ranks_; ++step) {
        const int region = (rank_ + step) % ranks_;
        const Extent extent = course.extent(region, ranks_, block);
        std::memcpy(staged(course, rank_, block, region), course.in + extent.offset * course.element,
                    extent.count * course.element);
    }
}

/// Copies a block of each rank to the output of an alltoall. In place, what this overwrites was staged before.
void Stream::collect(const Course &course, uint64_t block) {
    for (int step = 0; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        const Extent extent = course.extent(rank, ranks_, block);
        std::byte *out = course.out + extent.offset * course.element;
        const std::byte *from =
            rank == rank_ ? course.in + extent.offset * course.element : staged(course, rank, block, rank_);
        if (out != from)
            copy_bytes(out, from, extent.count * course.element, course.stream);
    }
}

void Stream::reduce(const Course &course, uint64_t block) {
    if (course.operation.collective == Collective::alltoall) {
        collect(course, block);
        return;
    }
    const Extent extent = course.extent(rank_, ranks_, block);
    const size_t bytes = extent.count * course.element;
    if (bytes == 0)
        return;
    std::byte *shown = result(course, rank_, block);
    if (course.operation.collective == Collective::allgather) {
        const Extent first = course.extent(rank_, ranks_, 0);
        const size_t offset = (extent.offset - first.offset) * course.element;  // `in` is this rank's region alone
        std::memcpy(shown, course.in + offset, bytes);
        std::byte *out = course.out + extent.offset * course.element;
        if (out != course.in + offset)
            copy_bytes(out, shown, bytes, course.stream);
        return;
    }
    for (int rank = 0; rank < ranks_; ++rank)
        sources_[rank] =
            rank == rank_ ? course.in + extent.offset * course.element : staged(course, rank, block, rank_);
    const int divisor = course.operation.op == FLX_AVG ? ranks_ : 1;
    if (course.operation.collective == Collective::reduce_scatter_block) {
        // In place, `out` is region 0 of `in`, of which block `block` was staged before.
        std::byte *out = course.out + block * course.block * course.element;
        reduce_many(course.operation.dtype, course.operation.op, out, sources_.data(), ranks_, extent.count, divisor,
                    course.stream);
        return;
    }
    if (course.operation.collective == Collective::reduce && rank_ != course.operation.root) {
        reduce_many(course.operation.dtype, course.operation.op, shown, sources_.data(), ranks_, extent.count, divisor,
                    false);
        return;
    }
    std::byte *out = course.out + extent.offset * course.element;
    // The results of a reduce's root are read by no other rank.
    std::byte *others = course.operation.collective == Collective::reduce ? nullptr : shown;
    reduce_many(course.operation.dtype, course.operation.op, out, sources_.data(), ranks_, extent.count, divisor,
                course.stream, others);
}

void Stream::fetch(const Course &course, uint64_t block) {
    for (int step = 1; step < ranks_; ++step) {
        const int region = (rank_ + step) % ranks_;
        const Extent extent = course.extent(region, ranks_, block);
        std::byte *out = course.out + extent.offset * course.element;
        copy_bytes(out, result(course, region, block), extent.count * course.element, course.stream);
    }
}

/// The root stages blocks, with all its slots' regions as one; the others read them and count them as reduced.
Status Stream::run_bcast(const Course &course, Waiter &waiter) {
    Counters &mine = counters(rank_);
    for (uint64_t block = 0; block < course.blocks; ++block) {
        const Extent extent = course.extent(0, 1, block);
        const size_t bytes = extent.count * course.element;
        std::byte *data = course.out + extent.offset * course.element;
        if (rank_ == course.operation.root) {
            while (!free_to_write(block))
                FLX_TRY(waiter.pause());
            std::memcpy(place(course, rank_, block), data, bytes);
            publish(mine.staged, base_ + block + 1);
        } else {
            waiting_for_ = course.operation.root;
            Counters &root = counters(course.operation.root);
            while (root.staged.load(std::memory_order_acquire) < base_ + block + 1)
                FLX_TRY(waiter.pause());
            if (block == 0 && root.tags[number_ % kTags].load(std::memory_order_relaxed) != course.tag)
                return fail(
                    Fault::calls_differ,
                    "rank {} called another collective, or the same with another count, type or root; all ranks "
                    "must call alike (FLX_CHECK=1 says what differs)",
                    course.operation.root);
            copy_bytes(data, place(course, course.operation.root, block), bytes, course.stream);
            mine.fetched.store(base_ + block + 1, std::memory_order_release);
            publish(mine.reduced, base_ + block + 1);
        }
        waiter.moved();
    }
    return {};
}

/// Carries out a reduce of two ranks: one stages all of its input, the root adds it to its own. Cut into regions, as
/// for more ranks, the root would stage, add and fetch half of it each, and the two would wait for each other.
Status Stream::run_reduce(const Course &course, Waiter &waiter) {
    Counters &mine = counters(rank_);
    const int other = 1 - rank_;
    waiting_for_ = other;
    for (uint64_t block = 0; block < course.blocks; ++block) {
        const Extent extent = course.extent(0, 1, block);
        const size_t bytes = extent.count * course.element;
        const std::byte *own = course.in + extent.offset * course.element;
        if (rank_ != course.operation.root) {
            while (!free_to_write(block))
                FLX_TRY(waiter.pause());
            std::memcpy(place(course, rank_, block), own, bytes);
            publish(mine.staged, base_ + block + 1);
        } else {
            while (counters(other).staged.load(std::memory_order_acquire) < base_ + block + 1)
                FLX_TRY(waiter.pause());
            if (block == 0)
                FLX_TRY(check_signatures(course));
            sources_[rank_] = own;
            sources_[other] = place(course, other, block);
            const int divisor = course.operation.op == FLX_AVG ? ranks_ : 1;
            reduce_many(course.operation.dtype, course.operation.op, course.out + extent.offset * course.element,
                        sources_.data(), ranks_, extent.count, divisor, course.stream);
            mine.fetched.store(base_ + block + 1, std::memory_order_release);
            publish(mine.reduced, base_ + block + 1);
        }
        waiter.moved();
    }
    return {};
}

}  // namespace flx::shm
