#include "runtime/shm/ways/fused.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "algorithms/schedule.h"
#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"
#include "runtime/shm/memory/ring.h"

namespace flx::shm {

using algorithms::block_extent;
using algorithms::Collective;
using algorithms::Extent;

/// What a rank shows: one or two cache lines, and payload elsewhere where it is longer. Boards begin where a pair of
/// lines does: cores fetch the second with the first, and would fetch the next board from its writer.
struct Fused::Board {
    alignas(64) std::atomic<uint64_t> number;
    uint32_t signature;
    uint32_t reserved;
    std::byte data[kInlineBytes];
};

/// The operation up to which a rank has read all that it needed.
struct Fused::Done {
    alignas(64) std::atomic<uint64_t> number;
};

namespace {
/// Operations that a rank may be ahead of its slowest reader: with what fits into boards, with short payloads, and with
/// longer ones, which would take too much of the cache.
constexpr uint64_t kBoards = 64;
constexpr uint64_t kShorts = 32;
constexpr uint64_t kPayloads = 4;
constexpr size_t kShortBytes = 256;
/// Payloads up to a page have places of their own, which are not side by side: a reader's core would take them for a
/// stream.
constexpr size_t kPageBytes = 4096;
constexpr size_t kPagePlace = kPageBytes + 512;
/// Longer ones go round a ring that is longer than a core's cache, where it may be: lines that readers still have in
/// theirs take their writer several times as long.
constexpr size_t kRingBytes = size_t{2} << 20;
constexpr size_t kAllRings = size_t{8} << 20;
constexpr uint64_t ring_of(size_t bytes) {
    return bytes <= Fused::kInlineBytes ? kBoards : bytes <= kShortBytes ? kShorts : kPayloads;
}
/// Readers publish what they have read once for so many operations. A sender that is ahead, as where data flows one
/// way, then waits for that line once for so many.
constexpr uint64_t kToldPart = 4;
/// Bytes of a long payload's place in the ring, which has as many places as fit.
size_t place_bytes(size_t bytes) {
    return std::bit_ceil(bytes);
}
/// Where there is hardly any room.
size_t least_ring(size_t payload_bytes) {
    return kPayloads / 2 * place_bytes(payload_bytes);
}
size_t ring_bytes_for(int ranks, size_t payload_bytes, size_t budget_per_rank) {
    if (payload_bytes <= kPageBytes)
        return 0;
    constexpr size_t kLittle = size_t{256} << 10;
    const size_t least = (budget_per_rank < kLittle ? 1 : 2) * least_ring(payload_bytes);
    return std::max(least, std::bit_floor(std::min({budget_per_rank, kRingBytes, kAllRings / ranks})));
}
/// How many ranks from the first on have their blocks side by side.
size_t run_of(std::span<const int> ranks) {
    size_t length = 1;
    while (length < ranks.size() && ranks[length] == ranks[length - 1] + 1)
        ++length;
    return length;
}
}  // namespace

// Memory: boards [rank][number], done [rank], short payloads [rank][number], payloads up to a page [rank][number],
// rings of longer ones [rank].
size_t Fused::bytes(int ranks, size_t payload_bytes, size_t budget_per_rank) {
    return kPair - kLine +
           ranks * (kBoards * sizeof(Board) + sizeof(Done) + kShorts * kShortBytes + kPayloads * kPagePlace +
                    ring_bytes_for(ranks, payload_bytes, budget_per_rank));
}

std::vector<Area> Fused::areas(int ranks, size_t payload_bytes, size_t budget_per_rank, bool late) {
    const size_t shorts = ranks * (kBoards * sizeof(Board) + sizeof(Done));
    const size_t pages = shorts + ranks * kShorts * kShortBytes;
    return {{0, kBoards * sizeof(Board)},
            {shorts, kShorts * kShortBytes, late},
            {pages, kPayloads * kPagePlace, late},
            {pages + ranks * kPayloads * kPagePlace, ring_bytes_for(ranks, payload_bytes, budget_per_rank), late}};
}

Fused::Fused(std::byte *memory, int local_rank, int ranks, size_t payload_bytes, Bells *bells, size_t budget_per_rank)
    : memory_(to_pair(memory)),
      rank_(local_rank),
      ranks_(ranks),
      shorts_(memory_ + ranks * (kBoards * sizeof(Board) + sizeof(Done))),
      pages_(shorts_ + ranks * kShorts * kShortBytes),
      rings_(pages_ + ranks * kPayloads * kPagePlace),
      payload_bytes_(payload_bytes),
      ring_stride_(ring_bytes_for(ranks, payload_bytes, budget_per_rank)),
      ring_bytes_(ring_stride_),
      bells_(bells),
      shown_in_(kBoards),
      shown_short_(kShorts),
      shown_page_(kPayloads),
      shown_in_ring_(ring_bytes_ / kPageBytes),
      tree_(ranks),
      sources_(ranks),
      taken_(ranks),
      look_at_(ranks) {
    static_assert(sizeof(Board) == kPair && sizeof(Done) == kLine);
}

Fused::Board &Fused::board(int rank, uint64_t number) const {
    return reinterpret_cast<Board *>(memory_)[kBoards * rank + place_in(kBoards, number)];
}

std::byte *Fused::place_of(int rank, uint64_t number, size_t bytes) const {
    if (bytes <= kInlineBytes)
        return board(rank, number).data;
    if (bytes <= kShortBytes)
        return shorts_ + (kShorts * rank + place_in(kShorts, number)) * kShortBytes;
    if (bytes <= kPageBytes)
        return pages_ + (kPayloads * rank + number % kPayloads) * kPagePlace;
    return rings_ + rank * ring_stride_ + in_ring(number, bytes);
}

void Fused::reserve_late(LateMemory *memory) {
    late_ = memory;
    reserved_ = kInlineBytes;
}

Status Fused::reserve_together(std::byte *own, size_t bytes, Status &none, Waiter &waiter) {
    constexpr uint32_t kSignature = 0x4c415445;  // of no call
    none = late_->reserve(own, bytes);
    const std::byte has{static_cast<uint8_t>(none.ok() ? 1 : 0)};
    bool all = none.ok();
    FLX_TRY(exchange(
        sizeof has, [&](std::byte *place) { *place = has; },
        [&](int, const std::byte *theirs) { all = all && *theirs != std::byte{0}; }, kSignature, waiter));
    if (none.ok() && !all) {
        late_->give_back(own, bytes);
        none = fail(Fault::shm_too_small, "another rank of this host found no room for further shared memory");
    }
    return {};
}

Status Fused::reserve_what_fits(std::byte *own, size_t bytes, const std::function<size_t()> &less, Status &none,
                                Waiter &waiter) {
    while (bytes > 0) {
        FLX_TRY(reserve_together(own, bytes, none, waiter));
        bytes = none.ok() ? 0 : less();
    }
    return {};
}

Status Fused::reserve_for(size_t bytes, Waiter &waiter) {
    if (bytes <= reserved_)
        return {};
    if (why_no_more_.ok())
        FLX_TRY(reserve_more(bytes, why_no_more_, waiter));
    lacked_room_ = !why_no_more_.ok();
    return why_no_more_;
}

Status Fused::reserve_more(size_t bytes, Status &none, Waiter &waiter) {
    if (reserved_ < kPageBytes) {
        constexpr size_t kOfShorts = kShorts * kShortBytes;
        constexpr size_t kOfPages = kPayloads * kPagePlace;
        FLX_TRY(reserve_together(shorts_ + rank_ * kOfShorts, kOfShorts, none, waiter));
        if (none.ok())
            FLX_TRY(reserve_together(pages_ + rank_ * kOfPages, kOfPages, none, waiter));
        if (!none.ok())
            return {};
        reserved_ = kPageBytes;
    }
    if (bytes <= reserved_)
        return {};
    const auto half = [&]() -> size_t {
        if (ring_bytes_ / 2 < least_ring(payload_bytes_))
            return 0;
        ring_bytes_ /= 2;
        return ring_bytes_;
    };
    FLX_TRY(reserve_what_fits(rings_ + rank_ * ring_stride_, ring_bytes_, half, none, waiter));
    if (!none.ok())
        return {};
    reserved_ = SIZE_MAX;
    shown_in_ring_.resize(ring_bytes_ / kPageBytes);
    return {};
}

/// The offset in a ring: all places of one size are taken before the first one again. They do not follow each other,
/// since a reader's core would take that for a stream, and fetch the beginning of the next one before it is written.
size_t Fused::in_ring(uint64_t number, size_t bytes) const {
    constexpr uint64_t kStep = 5;  // odd, as the number of places is a power of two
    return kStep * number % (ring_bytes_ / place_bytes(bytes)) * place_bytes(bytes);
}

/// The last operation that this rank showed something of, for each page where its input of the current one lies.
std::span<uint64_t> Fused::shown_in_ring() {
    return std::span(shown_in_ring_)
        .subspan(in_ring(number_, own_bytes_) / kPageBytes, place_bytes(own_bytes_) / kPageBytes);
}

Fused::Done &Fused::done(int rank) const {
    return reinterpret_cast<Done *>(memory_ + ranks_ * kBoards * sizeof(Board))[rank];
}

/// The last operation that used what this one's input will be shown in.
uint64_t Fused::shown_before() {
    uint64_t last = shown_in_[number_ % kBoards];
    if (own_bytes_ > kPageBytes)
        last = std::max(last, std::ranges::max(shown_in_ring()));
    else if (own_bytes_ > kShortBytes)
        last = std::max(last, shown_page_[number_ % kPayloads]);
    else if (own_bytes_ > kInlineBytes)
        last = std::max(last, shown_short_[number_ % kShorts]);
    return last;
}

Status Fused::begin(size_t own_bytes, size_t longest_bytes, Waiter &waiter) {
    if (longest_bytes > reserved_)
        FLX_TRY(reserve_for(longest_bytes, waiter));
    ++number_;
    own_bytes_ = own_bytes;
    ring_ = ring_of(longest_bytes);
    const uint64_t needed = shown_before();
    if (read_through_ >= needed)
        return {};
    // Operations in which data flows one way (bcast, reduce) do not show the sender what its readers have read: look.
    uint64_t least = number_ - 1;
    for (int rank = 0; rank < ranks_; ++rank) {
        if (rank == rank_)
            continue;
        waiting_for_ = rank;
        uint64_t ended = done(rank).number.load(std::memory_order_acquire);
        for (; ended < needed; ended = done(rank).number.load(std::memory_order_acquire))
            FLX_TRY(waiter.pause());
        waiter.moved();
        least = std::min(least, ended);
    }
    read_through_ = least;
    return {};
}

void Fused::show(const void *data, uint32_t signature) {
    if (own_bytes_ != 0)
        std::memcpy(own_place(), data, own_bytes_);
    show_written(signature);
}

/// Shows what has been written to its place already.
void Fused::show_written(uint32_t signature) {
    Board &mine = board(rank_, number_);
    shown_in_[number_ % kBoards] = number_;
    if (own_bytes_ > kPageBytes)
        std::ranges::fill(shown_in_ring(), number_);
    else if (own_bytes_ > kShortBytes)
        shown_page_[number_ % kPayloads] = number_;
    else if (own_bytes_ > kInlineBytes)
        shown_short_[number_ % kShorts] = number_;
    mine.signature = signature;
    mine.number.store(number_, std::memory_order_release);
    if (bells_ != nullptr)
        bells_->ring();
}

/// The next operation is likely to show as much: takes the lines for it from who read them last, while this one waits.
/// Not where data flows one way: they may still be reading.
void Fused::prepare_next(size_t bytes) const {
    constexpr size_t kMost = size_t{16} << 10;
    if (bytes > kMost)
        return;
    prefetch_to_write(reinterpret_cast<std::byte *>(&board(rank_, number_ + 1)));
    std::byte *next = place_of(rank_, number_ + 1, bytes);
    for (size_t at = 0; at < bytes; at += kLine)
        prefetch_to_write(next + at);
}

/// Where data flows one way, only its own lines keep the sender waiting. So it takes those of an operation that is
/// still to come, once all ranks are known to have read them.
void Fused::prepare_later(size_t bytes) {
    if (bytes > kShortBytes)
        return;
    const uint64_t later = number_ + kAhead;
    const bool inside = bytes <= kInlineBytes;
    const uint64_t used =
        inside ? shown_in_[later % kBoards] : std::max(shown_in_[later % kBoards], shown_short_[later % kShorts]);
    if (used > read_through_) {
        if (number_ % std::max<uint64_t>(kAhead, ranks_) != 0)  // to ask many takes longer than it gains
            return;
        uint64_t least = number_ - 1;
        for (int rank = 0; rank < ranks_; ++rank)
            if (rank != rank_)
                least = std::min(least, done(rank).number.load(std::memory_order_acquire));
        read_through_ = std::max(read_through_, least);
        if (used > read_through_)
            return;
    }
    auto *line = reinterpret_cast<std::byte *>(&board(rank_, later));
    prefetch_to_write(line);
    if (inside && bytes > kLine - offsetof(Board, data))
        prefetch_to_write(line + kLine);
    for (size_t at = 0; !inside && at < bytes; at += kLine)
        prefetch_to_write(place_of(rank_, later, bytes) + at);
}

/// Fetches what `rank` has shown already of the next operations, all at once. A board that is not written yet would be
/// taken from its writer, so one look is for them all, and is not repeated soon.
void Fused::fetch_ahead(int rank, size_t bytes) {
    if (number_ < look_at_[rank] || bytes > kShortBytes)
        return;
    const uint64_t later = number_ + kAhead;
    if (board(rank, later).number.load(std::memory_order_relaxed) != later) {
        look_at_[rank] = number_ + kNextLook;
        return;
    }
    look_at_[rank] = later;
    for (uint64_t number = number_ + 1; number <= later; ++number) {
        const auto *line = reinterpret_cast<const std::byte *>(&board(rank, number));
        __builtin_prefetch(line);
        if (bytes > kInlineBytes)
            for (size_t at = 0; at < bytes; at += kLine)
                __builtin_prefetch(place_of(rank, number, bytes) + at);
        else if (bytes > kLine - offsetof(Board, data))
            __builtin_prefetch(line + kLine);
    }
}

void Fused::fetch_ahead_of_all(size_t bytes) {
    for (int rank = 0; rank < ranks_; ++rank)
        if (rank != rank_)
            fetch_ahead(rank, bytes);
}

Status Fused::await(int rank, uint32_t signature, Waiter &waiter) {
    Board &theirs = board(rank, number_);
    waiting_for_ = rank;
    while (theirs.number.load(std::memory_order_acquire) != number_)
        FLX_TRY(waiter.pause());
    waiter.moved();
    ++taken_[rank];
    if (theirs.signature != signature)
        return fail(
            Fault::calls_differ,
            "rank {} called another collective, or the same with another count, type, reduction or root, as its "
            "operation {}; all ranks must call alike (FLX_CHECK=1 says what differs)",
            rank, number_);
    return {};
}

Status Fused::await_all(uint32_t signature, Waiter &waiter) {
    for (int step = 1; step < ranks_; ++step)
        FLX_TRY(await((rank_ + step) % ranks_, signature, waiter));
    return {};
}

void Fused::end(bool everyone_came) {
    // The end of longer payloads is published at once, so that a sender can go on to the next without another call of a
    // reader.
    if (number_ - told_ >= ring_ / kToldPart) {
        told_ = number_;
        done(rank_).number.store(number_, std::memory_order_release);
        if (bells_ != nullptr)
            bells_->ring();
    }
    // Whoever has shown operation n has ended operation n-1.
    if (everyone_came)
        read_through_ = number_ - 1;
}

Status Fused::reduce_shown(void *out, const void *own, size_t offset_bytes, size_t input_bytes, size_t count,
                           flx_dtype_t dtype, flx_op_t op) {
    for (int rank = 0; rank < ranks_; ++rank)
        sources_[rank] = static_cast<const std::byte *>(rank == rank_ ? own : shown(rank, input_bytes)) + offset_bytes;
    reduce_many(dtype, op, out, sources_.data(), ranks_, count, op == FLX_AVG ? ranks_ : 1, false);
    return {};
}

Status Fused::run(const Call &call, Waiter &waiter) {
    const auto [collective, in, out, count, dtype, op, root, sequence, signature, divisor] = call.operation;
    const auto ranks = static_cast<size_t>(ranks_);
    const size_t bytes = count * size_of(dtype);
    switch (collective) {
        case Collective::allreduce:
            return allreduce(in, out, count, dtype, op, signature, waiter);
        case Collective::reduce:
            return reduce(in, out, count, dtype, op, root, signature, waiter);
        case Collective::reduce_scatter_block:
            return reduce_scatter_block(in, out, count / ranks, dtype, op, signature, waiter);
        case Collective::allgather:
            return allgather(in, out, bytes / ranks, signature, waiter);
        case Collective::bcast:
            return bcast(out, bytes, root, signature, waiter);
        case Collective::barrier:
            return barrier(signature, waiter);
        case Collective::alltoall:
            return alltoall(in, out, bytes / ranks, signature, waiter);
        case Collective::gather:
            return gather(in, out, bytes / ranks, root, signature, waiter);
        case Collective::scatter:
            return scatter(in, out, bytes / ranks, root, signature, waiter);
        case Collective::scan:
        case Collective::exscan:
            return scan(collective == Collective::exscan, in, out, count, dtype, op, signature, waiter);
        case Collective::allgatherv:
            return allgatherv(in, out, call.blocks.counts, call.blocks.displacements, size_of(dtype), signature,
                              waiter);
        case Collective::reduce_scatter:
            return reduce_scatter(in, out, call.blocks.counts, dtype, op, signature, waiter);
        default:
            break;
    }
    return fail(Fault::no_such_way, "{} has no form in which ranks read what all show",
                algorithms::name_of(collective));
}

Status Fused::allreduce(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op, uint32_t signature,
                        Waiter &waiter) {
    const size_t bytes = count * size_of(dtype);
    if (bytes >= two_steps_.allreduce && bytes != 0)
        return allreduce_in_two(in, out, count, dtype, op, signature, waiter);
    FLX_TRY(begin(bytes, waiter));
    show(in, signature);
    prepare_next(bytes);
    FLX_TRY(await_all(signature, waiter));
    FLX_TRY(reduce_shown(out, in, 0, bytes, count, dtype, op));
    end(true);
    return {};
}

void Fused::end_last_step(uint64_t before) {
    end(false);
    read_through_ = std::max(read_through_, before);
}

/// One step a hop. Who has it already goes on at once.
Status Fused::hand_on(void *buffer, size_t bytes, int root, uint32_t signature, Waiter &waiter) {
    const Tree::Arrival mine = tree_.arrival(rank_, root);
    for (int hop = 0; hop < tree_.hops(); ++hop) {
        FLX_TRY(begin(bytes, waiter));
        if (hop > mine.hop && tree_.hands_on(hop, rank_, root))
            show(buffer, signature);
        if (hop == mine.hop) {
            FLX_TRY(await(mine.from, signature, waiter));
            if (bytes != 0)
                std::memcpy(buffer, shown(mine.from, bytes), bytes);
        }
        end(false);
    }
    return {};
}

/// Parts of a cache line or more, each by a rank of its own, spread over the host. Inputs go straight to those, each to
/// another package once, as they are added in rank order; the result of a single one comes back along the tree.
Status Fused::allreduce_in_two(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                               uint32_t signature, Waiter &waiter) {
    const size_t element = size_of(dtype);
    const size_t bytes = count * element;
    const int parts = static_cast<int>(std::clamp<size_t>(bytes / kLine, 1, ranks_));
    const auto place = [&](int part) {
        return static_cast<std::byte *>(out) + block_extent(count, parts, part).offset * element;
    };
    const auto length = [&](int part) { return block_extent(count, parts, part).count * element; };

    const uint64_t before = number_;
    FLX_TRY(begin(bytes, waiter));
    show(in, signature);
    int mine = -1;
    for (int part = 0; part < parts && mine < 0; ++part)
        mine = tree_.worker(part, parts) == rank_ ? part : -1;
    if (mine >= 0) {
        const Extent extent = block_extent(count, parts, mine);
        FLX_TRY(await_all(signature, waiter));
        FLX_TRY(reduce_shown(place(mine), in, extent.offset * element, bytes, extent.count, dtype, op));
    }
    end(mine >= 0);

    if (parts == 1 && tree_.shaped()) {
        FLX_TRY(hand_on(out, bytes, tree_.worker(0, 1), signature, waiter));
        read_through_ = std::max(read_through_, before);
        return {};
    }
    FLX_TRY(begin(mine >= 0 ? length(mine) : 0, length(0), waiter));
    if (mine >= 0)
        show(place(mine), signature);
    for (int part = 0; part < parts; ++part) {
        if (part == mine)
            continue;
        const int worker = tree_.worker(part, parts);
        FLX_TRY(await(worker, signature, waiter));
        std::memcpy(place(part), shown(worker, length(part)), length(part));
    }
    end_last_step(before);
    return {};
}

Status Fused::reduce(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                     uint32_t signature, Waiter &waiter) {
    const size_t bytes = count * size_of(dtype);
    FLX_TRY(begin(bytes, waiter));
    if (rank_ != root) {
        show(in, signature);
        prepare_later(bytes);
        end(false);
        return {};
    }
    FLX_TRY(await_all(signature, waiter));
    FLX_TRY(reduce_shown(out, in, 0, bytes, count, dtype, op));
    fetch_ahead_of_all(bytes);
    end(true);
    return {};
}

Status Fused::reduce_scatter_block(const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                                   uint32_t signature, Waiter &waiter) {
    const size_t block = count * size_of(dtype);
    FLX_TRY(begin(block * ranks_, waiter));
    show(in, signature);
    prepare_next(block * ranks_);
    FLX_TRY(await_all(signature, waiter));
    // In place, `out` is block 0 of `in`: the own contribution is block rank_, which for rank 0 is the same memory and
    // for the others does not overlap.
    FLX_TRY(reduce_shown(out, in, block * rank_, block * ranks_, count, dtype, op));
    end(true);
    return {};
}

Status Fused::collect(void *out, const void *own, size_t block_bytes, uint32_t signature, Waiter &waiter) {
    auto *to = static_cast<std::byte *>(out);
    if (to + rank_ * block_bytes != own)
        std::memcpy(to + rank_ * block_bytes, own, block_bytes);
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        FLX_TRY(await(rank, signature, waiter));
        std::memcpy(to + rank * block_bytes, shown(rank, block_bytes), block_bytes);
    }
    return {};
}

Status Fused::allgather(const void *in, void *out, size_t block_bytes, uint32_t signature, Waiter &waiter) {
    constexpr size_t kPartBytes = 256;
    if (block_bytes >= two_steps_.allgather && block_bytes != 0) {
        // What is gathered to learn something needs no memory that is not there.
        const auto ranks_a_part = static_cast<int>(std::min({kPartBytes, payload_bytes_, reserved_}) / block_bytes);
        if (ranks_a_part > 1)
            return allgather_in_two(in, out, block_bytes, ranks_a_part, signature, waiter);
    }
    FLX_TRY(begin(block_bytes, waiter));
    show(in, signature);
    prepare_next(block_bytes);
    FLX_TRY(collect(out, in, block_bytes, signature, waiter));
    end(true);
    return {};
}

/// Blocks of neighbours, put side by side by the first of them.
Status Fused::allgather_in_two(const void *in, void *out, size_t block_bytes, int ranks_a_part, uint32_t signature,
                               Waiter &waiter) {
    auto *to = static_cast<std::byte *>(out);
    const auto place = [&](int rank) { return to + rank * block_bytes; };
    const auto part_of = [&](const std::vector<int> &nest, size_t first) {
        return std::span(nest).subspan(first, std::min<size_t>(ranks_a_part, nest.size() - first));
    };
    // Those whose first this rank is; empty, where it is not.
    const std::vector<int> &nest = tree_.nests()[tree_.nest_of(rank_)];
    const auto at = static_cast<size_t>(std::ranges::find(nest, rank_) - nest.begin());
    const std::span<const int> mine = at % ranks_a_part == 0 ? part_of(nest, at) : std::span<const int>();
    const size_t longest = std::min(ranks_a_part, ranks_) * block_bytes;

    const uint64_t before = number_;
    FLX_TRY(begin(block_bytes, waiter));
    show(in, signature);
    if (place(rank_) != in)
        std::memcpy(place(rank_), in, block_bytes);
    for (const int rank : mine) {
        if (rank == rank_)
            continue;
        FLX_TRY(await(rank, signature, waiter));
        std::memcpy(place(rank), shown(rank, block_bytes), block_bytes);
    }
    end(false);

    FLX_TRY(begin(mine.size() * block_bytes, longest, waiter));
    if (!mine.empty())
        show_blocks(to, mine, block_bytes, signature);
    for (const std::vector<int> &theirs : tree_.nests()) {
        for (size_t first = 0; first < theirs.size(); first += ranks_a_part) {
            const std::span<const int> part = part_of(theirs, first);
            if (part[0] == rank_)
                continue;
            FLX_TRY(await(part[0], signature, waiter));
            take_blocks(to, part, block_bytes);
        }
    }
    end_last_step(before);
    return {};
}

/// Side by side in what this rank shows.
void Fused::show_blocks(const std::byte *from, std::span<const int> ranks, size_t block_bytes, uint32_t signature) {
    std::byte *memory = own_place();
    for (size_t done = 0; done < ranks.size();) {
        const size_t run = run_of(ranks.subspan(done));
        std::memcpy(memory + done * block_bytes, from + ranks[done] * block_bytes, run * block_bytes);
        done += run;
    }
    show_written(signature);
}

void Fused::take_blocks(std::byte *to, std::span<const int> ranks, size_t block_bytes) const {
    const std::byte *memory = shown(ranks[0], ranks.size() * block_bytes);
    for (size_t done = 0; done < ranks.size();) {
        const size_t run = run_of(ranks.subspan(done));
        std::memcpy(to + ranks[done] * block_bytes, memory + done * block_bytes, run * block_bytes);
        done += run;
    }
}

Status Fused::reduce_scatter(const void *in, void *out, const size_t *counts, flx_dtype_t dtype, flx_op_t op,
                             uint32_t signature, Waiter &waiter) {
    size_t before = 0;
    size_t all = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
        before += rank < rank_ ? counts[rank] : 0;
        all += counts[rank];
    }
    const size_t bytes = all * size_of(dtype);
    FLX_TRY(begin(bytes, waiter));
    show(in, signature);
    FLX_TRY(await_all(signature, waiter));
    FLX_TRY(reduce_shown(out, shown(rank_, bytes), before * size_of(dtype), bytes, counts[rank_], dtype, op));
    end(true);
    return {};
}

Status Fused::scan(bool exclusive, const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                   uint32_t signature, Waiter &waiter) {
    const size_t bytes = count * size_of(dtype);
    FLX_TRY(begin(bytes, waiter));
    show(in, signature);
    prepare_later(bytes);
    for (int rank = 0; rank < rank_; ++rank) {
        FLX_TRY(await(rank, signature, waiter));
        fetch_ahead(rank, bytes);
    }
    const int last = exclusive ? rank_ - 1 : rank_;
    // What this rank has just shown may still be on its way into the cache: its own copy is read sooner, where the
    // result does not lie over it before.
    const bool own = in != out || rank_ == 1;
    const auto input = [&](int rank) -> const void * { return rank == rank_ && own ? in : shown(rank, bytes); };
    const void *sum = last >= 0 ? input(0) : nullptr;
    for (int rank = 1; rank <= last; ++rank) {
        reduce_pair(dtype, op, out, sum, input(rank), count);
        sum = out;
    }
    if (last == 0 && (exclusive || in != out) && bytes != 0)
        std::memcpy(out, sum, bytes);
    end(rank_ == ranks_ - 1);
    return {};
}

Status Fused::allgatherv(const void *in, void *out, const size_t *counts, const size_t *displacements, size_t element,
                         uint32_t signature, Waiter &waiter) {
    size_t longest = 0;
    for (int rank = 0; rank < ranks_; ++rank)
        longest = std::max(longest, counts[rank] * element);
    FLX_TRY(begin(counts[rank_] * element, longest, waiter));
    show(in, signature);
    auto *to = static_cast<std::byte *>(out);
    const auto place = [&](int rank) { return to + displacements[rank] * element; };
    if (counts[rank_] != 0 && place(rank_) != in)
        std::memcpy(place(rank_), in, counts[rank_] * element);
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        FLX_TRY(await(rank, signature, waiter));
        if (counts[rank] != 0)
            std::memcpy(place(rank), shown(rank, counts[rank] * element), counts[rank] * element);
    }
    end(true);
    return {};
}

Status Fused::gather(const void *in, void *out, size_t block_bytes, int root, uint32_t signature, Waiter &waiter) {
    FLX_TRY(begin(block_bytes, waiter));
    if (rank_ != root) {
        show(in, signature);
        prepare_later(block_bytes);
        end(false);
        return {};
    }
    FLX_TRY(collect(out, in, block_bytes, signature, waiter));
    fetch_ahead_of_all(block_bytes);
    end(true);
    return {};
}

/// The root shows the others' blocks, side by side, and not its own.
Status Fused::scatter(const void *in, void *out, size_t block_bytes, int root, uint32_t signature, Waiter &waiter) {
    const size_t bytes = block_bytes * (ranks_ - 1);
    const auto *from = static_cast<const std::byte *>(in);
    const size_t before = root * block_bytes;
    FLX_TRY(hand_out(
        bytes, root,
        [&](std::byte *place) {
            if (bytes == 0)
                return;
            std::memcpy(place, from, before);
            std::memcpy(place + before, from + before + block_bytes, bytes - before);
        },
        [&](const std::byte *place) {
            const int block = rank_ < root ? rank_ : rank_ - 1;
            std::memcpy(out, place + block * block_bytes, block_bytes);
        },
        signature, waiter));
    if (rank_ == root && from + before != out)
        std::memcpy(out, from + before, block_bytes);
    return {};
}

Status Fused::gatherv(const void *in, void *out, const size_t *lengths, int root, uint32_t signature, Waiter &waiter) {
    FLX_TRY(begin(lengths[rank_], *std::max_element(lengths, lengths + ranks_), waiter));
    if (rank_ != root) {
        show(in, signature);
        prepare_later(lengths[rank_]);
        end(false);
        return {};
    }
    auto *to = static_cast<std::byte *>(out);
    for (int rank = 0; rank < ranks_; to += lengths[rank], ++rank) {
        if (rank != rank_)
            FLX_TRY(await(rank, signature, waiter));
        const void *from = rank == rank_ ? in : shown(rank, lengths[rank]);
        if (lengths[rank] != 0 && to != from)
            std::memcpy(to, from, lengths[rank]);
        if (rank != rank_)
            fetch_ahead(rank, lengths[rank]);
    }
    end(true);
    return {};
}

Status Fused::scatterv(const void *in, void *out, const size_t *lengths, int root, uint32_t signature, Waiter &waiter) {
    const size_t before = std::accumulate(lengths, lengths + rank_, size_t{0});
    const size_t bytes = std::accumulate(lengths + rank_, lengths + ranks_, before);
    const auto put = [&](const std::byte *all) {
        if (lengths[rank_] != 0 && all + before != out)
            std::memcpy(out, all + before, lengths[rank_]);
    };
    FLX_TRY(hand_out(
        bytes, root,
        [&](std::byte *place) {
            if (bytes != 0)
                std::memcpy(place, in, bytes);
        },
        put, signature, waiter));
    if (rank_ == root)
        put(static_cast<const std::byte *>(in));
    return {};
}

Status Fused::alltoall(const void *in, void *out, size_t block_bytes, uint32_t signature, Waiter &waiter) {
    const size_t bytes = block_bytes * ranks_;
    const auto *from = static_cast<const std::byte *>(in);
    auto *to = static_cast<std::byte *>(out);
    return exchange(
        bytes,
        [&](std::byte *place) {
            if (bytes != 0)
                std::memcpy(place, from, bytes);
            if (from != to)
                std::memcpy(to + rank_ * block_bytes, from + rank_ * block_bytes, block_bytes);
        },
        [&](int rank, const std::byte *theirs) {
            std::memcpy(to + rank * block_bytes, theirs + rank_ * block_bytes, block_bytes);
        },
        signature, waiter);
}

Status Fused::bcast(void *buffer, size_t bytes, int root, uint32_t signature, Waiter &waiter) {
    if (bytes >= two_steps_.bcast && tree_.shaped())
        return hand_on(buffer, bytes, root, signature, waiter);
    FLX_TRY(begin(bytes, waiter));
    if (rank_ == root) {
        show(buffer, signature);
        prepare_later(bytes);
    } else {
        FLX_TRY(await(root, signature, waiter));
        if (bytes != 0)
            std::memcpy(buffer, shown(root, bytes), bytes);
        fetch_ahead(root, bytes);
    }
    end(false);
    return {};
}

Status Fused::barrier(uint32_t signature, Waiter &waiter) {
    if (two_steps_.barrier)
        return barrier_by_tree(signature, waiter);
    FLX_TRY(begin(0, waiter));
    show_written(signature);
    FLX_TRY(await_all(signature, waiter));
    end(true);
    return {};
}

/// Rank 0 learns that all have come, and says so: against the hops of the tree, and along them.
Status Fused::barrier_by_tree(uint32_t signature, Waiter &waiter) {
    const uint64_t before = number_;
    const int arrives = tree_.arrival(rank_, 0).hop;
    for (int hop = tree_.hops() - 1; hop >= 0; --hop) {
        FLX_TRY(begin(0, waiter));
        if (hop == arrives)
            show_written(signature);
        for (int rank = 0; hop > arrives && rank < ranks_; ++rank) {
            const Tree::Arrival theirs = tree_.arrival(rank, 0);
            if (theirs.hop == hop && theirs.from == rank_)
                FLX_TRY(await(rank, signature, waiter));
        }
        end(false);
    }
    FLX_TRY(hand_on(nullptr, 0, 0, signature, waiter));
    read_through_ = std::max(read_through_, before);
    return {};
}

}  // namespace flx::shm
