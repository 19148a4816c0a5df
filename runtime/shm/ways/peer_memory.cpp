#include "runtime/shm/ways/peer_memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/pages.h"
#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"

namespace flx::shm {

using algorithms::block_extent;
using algorithms::Collective;
using algorithms::Extent;

namespace {

constexpr size_t kLine = 64;
/// All ranks' blocks together stay in a core's cache, beside the vectors; one block is worth a system call.
constexpr size_t kAllBlocks = 512 * 1024;
constexpr size_t kLargestBlock = 256 * 1024;
constexpr size_t kSmallestBlock = 16 * 1024;
/// A reduce's root does not send its result on, which takes the others a part of their time: the
/// smaller, the more. Its region in quarters of another's.
size_t root_share(size_t bytes) {
    constexpr size_t kSmall = 128 * 1024;
    constexpr size_t kInCache = 2048 * 1024;
    return bytes <= kSmall ? 8 : bytes <= kInCache ? 6 : 5;
}
constexpr size_t kOtherShare = 4;

/// Elements of a reduce's region: the root's is longer.
Extent uneven_extent(size_t count, size_t bytes, int ranks, int root, int region) {
    const size_t each = count / (kOtherShare * (ranks - 1) + root_share(bytes)) * kOtherShare;
    const size_t of_root = count - each * (ranks - 1);
    if (region <= root)
        return {region * each, region == root ? of_root : each};
    return {(region - 1) * each + of_root, each};
}

}  // namespace

PeerMemory::PeerMemory(int rank, std::vector<int> pids)
    : rank_(rank),
      ranks_(static_cast<int>(pids.size())),
      pids_(std::move(pids)),
      mapped_(rank, ranks_),
      cards_(ranks_),
      buffers_(ranks_),
      freed_(ranks_),
      window_end_(ranks_),
      block_bytes_(std::clamp(kAllBlocks / ranks_ / kLine * kLine, kSmallestBlock, kLargestBlock)),
      sources_(ranks_) {}

Status PeerMemory::make(Bootstrap &bootstrap, std::vector<int> pids, std::unique_ptr<PeerMemory> &result, Why &why) {
    auto memory = std::unique_ptr<PeerMemory>(new PeerMemory(bootstrap.rank(), std::move(pids)));
    FLX_TRY(memory->try_kernel(bootstrap, why.not_by_kernel));
    memory->by_kernel_ = why.not_by_kernel.empty();
    FLX_TRY(Windows::make(bootstrap, memory->pids_, memory->windows_, why.not_mapped));
    memory->why_not_mapped_ = why.not_mapped;
    if (memory->by_kernel() || memory->maps())
        result = std::move(memory);
    return {};
}

Status PeerMemory::try_kernel(Bootstrap &bootstrap, std::string &why) const {
    // The word at that address must be the peer's: a pid may mean another process where ranks are in containers.
    struct Word {
        uint64_t address;
        uint64_t value;
    };
    // The rank is in it, since addresses and pids may be the same in all of them.
    const uint64_t word =
        reinterpret_cast<uint64_t>(this) * 0x9e3779b97f4a7c15U ^ static_cast<uint64_t>(rank_ + 1) * 0xd1b54a32d192ed03U;
    const Word mine{reinterpret_cast<uint64_t>(&word), word};
    std::vector<Word> words(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, words.data()));
    Status status;
    for (int rank = 0; rank < bootstrap.size() && status.ok(); ++rank) {
        uint64_t value = 0;
        status = read(rank, &value, words[rank].address, sizeof value);
        if (status.ok() && value != words[rank].value)
            status = fail(Fault::peer_memory_closed, "process {} is not rank {} here", pids_[rank], rank);
        else if (status.ok())
            status = write(rank, words[rank].address, &value, sizeof value);
    }
    std::vector<std::string> failures;
    FLX_TRY(bootstrap.allgather_text(status.words(), failures));
    const auto failed = std::ranges::find_if(failures, [](const std::string &text) { return !text.empty(); });
    if (failed != failures.end())
        why = *failed;
    return {};
}

Status PeerMemory::read(int rank, void *to, uint64_t address, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const iovec local{static_cast<std::byte *>(to) + done, bytes - done};
        const iovec remote{reinterpret_cast<void *>(address + done), bytes - done};
        const ssize_t got = process_vm_readv(pids_[rank], &local, 1, &remote, 1, 0);
        if (got <= 0)  // A process that is gone is a lost link until it is known why.
            return fail(got < 0 && errno == ESRCH ? Fault::peer_memory_gone : Fault::peer_memory_closed,
                        "reading memory of rank {} (pid {}) failed: {}", rank, pids_[rank],
                        got == 0 ? "nothing was read" : std::strerror(errno));
        done += static_cast<size_t>(got);
    }
    return {};
}

Status PeerMemory::write(int rank, uint64_t address, const void *from, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        FLX_TRY(Board::look(board_));
        const size_t piece = std::min(bytes - done, Board::kUnasked);
        const iovec local{const_cast<std::byte *>(static_cast<const std::byte *>(from)) + done, piece};
        const iovec remote{reinterpret_cast<void *>(address + done), piece};
        const ssize_t put = process_vm_writev(pids_[rank], &local, 1, &remote, 1, 0);
        if (put <= 0)
            return fail(put < 0 && errno == ESRCH ? Fault::peer_memory_gone : Fault::peer_memory_closed,
                        "writing memory of rank {} (pid {}) failed: {}", rank, pids_[rank],
                        put == 0 ? "nothing was written" : std::strerror(errno));
        done += static_cast<size_t>(put);
    }
    return {};
}

bool PeerMemory::reachable(const void *memory, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const Range range{begin, begin + bytes};
    if (bytes == 0 || std::ranges::any_of(known_, [&](const Range &known) {
            return known.begin <= range.begin && range.end <= known.end;
        }))
        return true;
    for (const uintptr_t at : {range.begin, range.end - 1}) {
        std::byte value;
        const iovec local{&value, 1};
        const iovec remote{reinterpret_cast<void *>(at), 1};
        if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
            return false;
    }
    known_[next_known_++ % known_.size()] = range;
    return true;
}

PeerMemory::Touched PeerMemory::touched(const Call &call) const {
    const size_t bytes = call.operation.bytes();
    const size_t part = call.block(ranks_, rank_).count * call.operation.element();
    switch (call.operation.collective) {
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter:
        case Collective::alltoall:
            return {bytes, 0, call.in() == call.out()};
        case Collective::allgather:
        case Collective::allgatherv:
            return {part, 0};
        case Collective::gather:
            return {0, rank_ == call.operation.root ? bytes : 0};
        case Collective::scatter:
            return {rank_ == call.operation.root ? bytes : 0, 0};
        case Collective::bcast:
            return {0, bytes};
        default:
            return {bytes, call.out() == nullptr ? 0 : bytes};
    }
}

/// Whether others reach what they need of this rank's buffers, and it is not written before they have it.
bool PeerMemory::reachable(const Call &call, const Touched &touched) {
    return by_kernel_ && !touched.unsafe && reachable(call.in(), touched.in) && reachable(call.out(), touched.out);
}

namespace {

/// The kernel takes memory near to whoever touches it first, which shall be its owner: what it has not yet touched
/// others may soon write.
void touch(uintptr_t begin, size_t bytes) {
#ifndef MADV_POPULATE_WRITE  // Linux 5.14; older ones do not know it, and take it as it comes
    constexpr int MADV_POPULATE_WRITE = 23;
#endif
    const uintptr_t from = begin / page_bytes() * page_bytes();
    madvise(reinterpret_cast<void *>(from), begin + bytes - from, MADV_POPULATE_WRITE);
}

}  // namespace

uint64_t PeerMemory::heap_offset(const void *memory, size_t bytes) {
    if (SharedHeap::of_process().version() == 0)
        return SharedHeap::kNowhere;
    bool looked_up = false;
    const size_t known = places_.find(memory, looked_up);
    Range &touched = touched_[known];
    if (looked_up)
        touched = {};
    const uint64_t offset = places_[known].offset_of(memory, bytes);
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    if (offset != SharedHeap::kNowhere && (begin < touched.begin || begin + bytes > touched.end)) {
        touch(begin, bytes);
        const bool first = touched.end == 0;
        touched.begin = first ? begin : std::min(begin, touched.begin);
        touched.end = std::max(begin + bytes, touched.end);
    }
    return offset;
}

Status PeerMemory::run(const Call &call, Fused &fused, Waiter &waiter, bool &served, bool by_kernel) {
    const uint32_t signature = call.operation.signature;
    const Card mine = show(call, by_kernel);
    FLX_TRY(fused.allgather(&mine, cards_.data(), sizeof mine, signature, waiter));
    int64_t slowest_us = 0;
    bool with_engine = false;
    for (const Card &card : cards_) {
        slowest_us = std::max<int64_t>(slowest_us, card.copied_us);
        with_engine = with_engine || card.with_engine != 0;
    }
    engine_use_.took(slowest_us * 1000, with_engine);
    constexpr uint32_t kSkipped = 15;
    skips_ = std::ranges::any_of(cards_, [](const Card &card) { return card.has_heap != 0; }) ? 0 : kSkipped;
    served = std::ranges::all_of(cards_, [](const Card &card) { return card.mapped != 0; });
    if (served)
        FLX_TRY(map_all(call, fused, waiter, served));
    if (served) {
        FLX_TRY(run_mapped(call));
        ++mapped_calls_;
        return fused.barrier(signature, waiter);
    }
    served = std::ranges::all_of(cards_, [](const Card &card) { return card.reachable != 0; });
    if (!served)
        return {};
    FLX_TRY(carry_out(call));
    return fused.barrier(signature, waiter);
}

/// What this rank shows of a call. Where all is mapped the kernel is not asked.
PeerMemory::Card PeerMemory::show(const Call &call, bool by_kernel) {
    const Touched shown = touched(call);
    Card mine{.in = reinterpret_cast<uint64_t>(call.in()),
              .out = reinterpret_cast<uint64_t>(call.out()),
              .in_offset = SharedHeap::kNowhere,
              .out_offset = SharedHeap::kNowhere,
              .heap_end = 0,
              .freed = SharedHeap::of_process().freed(),
              .copied_us = copied_us_,
              .with_engine = with_engine_ ? 1U : 0U,
              .reachable = 0,
              .mapped = 0,
              .has_heap = SharedHeap::of_process().version() != 0 ? 1U : 0U};
    if (windows_ != nullptr && !shown.unsafe && Mapped::serves(call.operation.collective)) {
        mine.in_offset = shown.in == 0 ? SharedHeap::kNowhere : heap_offset(call.in(), shown.in);
        mine.out_offset = shown.out == 0 ? SharedHeap::kNowhere : heap_offset(call.out(), shown.out);
        const bool mapped = (shown.in == 0 || mine.in_offset != SharedHeap::kNowhere) &&
                            (shown.out == 0 || mine.out_offset != SharedHeap::kNowhere);
        mine.mapped = mapped ? 1 : 0;
        mine.heap_end = SharedHeap::of_process().end();
    }
    const bool is_reachable = by_kernel && (mine.mapped != 0 ? by_kernel_ : reachable(call, shown));
    mine.reachable = is_reachable ? 1 : 0;
    if (mine.reachable != 0 && mine.mapped == 0) {  // where all is mapped, pages do not matter
        huge_pages_.used(call.in(), shown.in);
        huge_pages_.used(call.out(), shown.out);
    }
    return mine;
}

/// All ranks know from the cards which windows have to be opened; whether that went well they let each other know.
Status PeerMemory::map_all(const Call &call, Fused &fused, Waiter &waiter, bool &mapped) {
    const uint32_t signature = call.operation.signature;
    constexpr uint64_t kNowhere = SharedHeap::kNowhere;
    bool grown = false;
    Status status;
    for (int rank = 0; rank < ranks_; ++rank) {
        const Card &card = cards_[rank];
        if ((card.in_offset == kNowhere && card.out_offset == kNowhere) || card.heap_end <= window_end_[rank])
            continue;
        grown = true;
        window_end_[rank] = card.heap_end;
        if (rank != rank_ && status.ok())
            status = windows_->reach(rank, card.heap_end);
    }
    mapped = true;
    if (grown) {
        const uint8_t mine = status.ok() ? 1 : 0;
        std::vector<uint8_t> all(ranks_);
        FLX_TRY(fused.allgather(&mine, all.data(), sizeof mine, signature, waiter));
        mapped = std::ranges::all_of(all, [](uint8_t done) { return done != 0; });
    }
    if (!mapped) {
        why_not_mapped_ = status.ok() ? "another rank could not map a peer's memory" : status.words();
        log().warn("memory of flx_malloc goes the way of any other from now on: {}", why_not_mapped_);
        windows_.reset();
        return {};
    }
    for (int rank = 0; rank < ranks_; ++rank) {
        const Card &card = cards_[rank];
        if (card.freed != freed_[rank])
            windows_->given_back(rank, card.freed);
        freed_[rank] = card.freed;
        const auto place = [&](uint64_t offset) { return offset == kNowhere ? nullptr : windows_->at(rank) + offset; };
        buffers_[rank] = rank == rank_ ? Mapped::Buffers{call.in(), call.out()}
                                       : Mapped::Buffers{place(card.in_offset), place(card.out_offset)};
    }
    return {};
}

Status PeerMemory::run_mapped(const Call &call) {
    const size_t bytes = call.operation.bytes();
    if (!Mapped::only_copies(call.operation.collective) || bytes < EngineUse::kLeast)
        return mapped_.run(call, buffers_);
    Reach *reach = nullptr;
    if (engine_use_.next(call.operation.collective, bytes) && reach_) {
        reach_->prepare(*windows_, freed_);
        reach = &*reach_;
    }
    const int64_t began = now_ns();
    FLX_TRY(mapped_.run(call, buffers_, reach));
    copied_us_ = static_cast<uint32_t>(std::min((now_ns() - began) / 1000, Card::kLongest));
    with_engine_ = mapped_.copies().with_engine();
    return {};
}

Status PeerMemory::carry_out(const Call &call) {
    switch (call.operation.collective) {
        case Collective::bcast:
            return bcast(call);
        case Collective::allgather:
        case Collective::allgatherv:
            return allgather(call);
        case Collective::alltoall:
            return alltoall(call);
        case Collective::gather:
            return gather(call);
        case Collective::scatter:
            return scatter(call);
        case Collective::scan:
        case Collective::exscan:
            return scan(call);
        default:
            return reduce_region(call);
    }
}

std::byte *PeerMemory::blocks() {
    if (blocks_ == nullptr)
        blocks_ = std::make_unique_for_overwrite<std::byte[]>(ranks_ * block_bytes_ + kLine);
    return blocks_.get() + -reinterpret_cast<uintptr_t>(blocks_.get()) % kLine;
}

Status PeerMemory::reduce_region(const Call &call) {
    const bool to_root = call.operation.collective == Collective::reduce;
    const bool to_all = call.operation.collective == Collective::allreduce;
    const Extent region =
        to_root ? uneven_extent(call.operation.count, call.operation.bytes(), ranks_, call.operation.root, rank_)
                : call.block(ranks_, rank_);
    const size_t most = block_bytes_ / call.operation.element();
    std::byte *blocks = this->blocks();
    for (size_t done = 0; done < region.count; done += most) {
        const size_t count = std::min(most, region.count - done);
        const size_t bytes = count * call.operation.element();
        const size_t offset = (region.offset + done) * call.operation.element();
        sources_[rank_] = call.in() + offset;
        for (int step = 1; step < ranks_; ++step) {
            const int rank = (rank_ + step) % ranks_;
            std::byte *block = blocks + rank * block_bytes_;
            FLX_TRY(read(rank, block, cards_[rank].in + offset, bytes));
            sources_[rank] = block;
        }
        std::byte *result = call.out() + offset;
        if (to_root && rank_ != call.operation.root)
            result = blocks + rank_ * block_bytes_;
        else if (!to_root && !to_all)
            result = call.out() + done * call.operation.element();
        reduce_many(call.operation.dtype, call.operation.op, result, sources_.data(), ranks_, count,
                    call.operation.op == FLX_AVG ? ranks_ : 1, false);
        if (to_root && rank_ != call.operation.root)
            FLX_TRY(write(call.operation.root, cards_[call.operation.root].out + offset, result, bytes));
        for (int step = 1; to_all && step < ranks_; ++step) {
            const int rank = (rank_ + step) % ranks_;
            FLX_TRY(write(rank, cards_[rank].out + offset, result, bytes));
        }
    }
    return {};
}

/// Combined two by two, as a chain of ranks does. An exclusive one ends before the last rank's part.
Status PeerMemory::scan(const Call &call) {
    const bool exclusive = call.operation.collective == Collective::exscan;
    const Extent region = block_extent(call.operation.count, ranks_, rank_);
    const size_t most = block_bytes_ / call.operation.element();
    std::byte *blocks = this->blocks();
    for (size_t done = 0; done < region.count; done += most) {
        const size_t count = std::min(most, region.count - done);
        const size_t bytes = count * call.operation.element();
        const size_t offset = (region.offset + done) * call.operation.element();
        const std::byte *sum = nullptr;
        for (int rank = 0; rank < ranks_; ++rank) {
            std::byte *block = blocks + rank * block_bytes_;
            std::byte *result = rank == rank_ && !exclusive ? call.out() + offset : block;
            const std::byte *next = sum;  // what the rank gets, of an exclusive scan
            if (!exclusive || rank + 1 < ranks_) {
                const std::byte *part = call.in() + offset;
                if (rank != rank_) {
                    // With two ranks the second one gets the first one's part as it is.
                    std::byte *to = exclusive && ranks_ == 2 ? call.out() + offset : block;
                    FLX_TRY(read(rank, to, cards_[rank].in + offset, bytes));
                    part = to;
                }
                if (sum != nullptr)
                    reduce_pair(call.operation.dtype, call.operation.op, result, sum, part, count);
                sum = sum != nullptr ? result : part;
            }
            next = exclusive ? next : sum;
            if (rank != rank_ && next != nullptr && (exclusive || rank != 0 || cards_[0].in != cards_[0].out))
                FLX_TRY(write(rank, cards_[rank].out + offset, next, bytes));
            else if (rank == rank_ && next != nullptr && next != call.out() + offset)
                std::memcpy(call.out() + offset, next, bytes);
        }
    }
    return {};
}

Status PeerMemory::allgather(const Call &call) {
    const auto place = [&](const Extent &block) { return call.out() + block.offset * call.operation.element(); };
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        const Extent theirs = call.block(ranks_, rank);
        FLX_TRY(read(rank, place(theirs), cards_[rank].in, theirs.count * call.operation.element()));
    }
    const Extent own = call.block(ranks_, rank_);
    if (place(own) != call.in())
        copy_own(place(own), call.in(), own.count * call.operation.element());
    return {};
}

/// All ranks copy at once: each writes its block to the root.
Status PeerMemory::gather(const Call &call) {
    const Extent own = call.block(ranks_, rank_);
    const size_t offset = own.offset * call.operation.element();
    if (rank_ != call.operation.root)
        return write(call.operation.root, cards_[call.operation.root].out + offset, call.in(),
                     own.count * call.operation.element());
    if (call.out() + offset != call.in())
        copy_own(call.out() + offset, call.in(), own.count * call.operation.element());
    return {};
}

Status PeerMemory::scatter(const Call &call) {
    const Extent own = call.block(ranks_, rank_);
    const size_t offset = own.offset * call.operation.element();
    if (rank_ != call.operation.root)
        return read(call.operation.root, call.out(), cards_[call.operation.root].in + offset,
                    own.count * call.operation.element());
    if (call.in() + offset != call.out())
        copy_own(call.out(), call.in() + offset, own.count * call.operation.element());
    return {};
}

Status PeerMemory::alltoall(const Call &call) {
    const size_t block = call.operation.count / ranks_ * call.operation.element();
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        FLX_TRY(read(rank, call.out() + rank * block, cards_[rank].in + rank_ * block, block));
    }
    copy_own(call.out() + rank_ * block, call.in() + rank_ * block, block);
    return {};
}

/// The others read all but the last part, which the root writes to each of them.
Status PeerMemory::bcast(const Call &call) {
    const size_t bytes = call.operation.bytes();
    const size_t read_bytes = (bytes - bytes / ranks_) / kLine * kLine;
    if (rank_ != call.operation.root)
        return read(call.operation.root, call.out(), cards_[call.operation.root].out, read_bytes);
    for (int step = 1; step < ranks_; ++step) {
        const int rank = (rank_ + step) % ranks_;
        FLX_TRY(write(rank, cards_[rank].out + read_bytes, call.out() + read_bytes, bytes - read_bytes));
    }
    return {};
}

}  // namespace flx::shm
