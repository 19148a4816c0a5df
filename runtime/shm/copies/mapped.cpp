#include "runtime/shm/copies/mapped.h"

#include <algorithm>
#include <cstdint>

#include "runtime/elements/reduce.h"

namespace flx::shm {

using algorithms::block_extent;
using algorithms::Collective;
using algorithms::Extent;

namespace {

constexpr size_t kLine = 64;
/// How much of a sum is written to one output at a time, and stays in the cache for the others.
constexpr size_t kSum = 16 * 1024;

}  // namespace

Mapped::Mapped(int rank, int ranks) : rank_(rank), ranks_(ranks), sum_(kSum + kLine), sources_(ranks), copies_(rank) {}

/// Plans this rank's copies for a collective that adds nothing.
void Mapped::plan_copies(const Call &call, const std::vector<Buffers> &buffers) {
    const size_t bytes = call.operation.bytes();
    const Extent own = call.block(ranks_, rank_);
    const size_t offset = own.offset * call.operation.element();
    const size_t part = own.count * call.operation.element();
    // What a rank copies from all others, it begins with its neighbour: no two ranks read the same one at once.
    const auto from_all = [&](auto &&add_from) {
        for (int step = 1; step <= ranks_; ++step)
            add_from((rank_ + step) % ranks_);
    };
    copies_.clear();
    switch (call.operation.collective) {
        case Collective::allgather:
        case Collective::allgatherv:
            from_all([&](int rank) {
                const Extent block = call.block(ranks_, rank);
                copies_.add({call.out() + block.offset * call.operation.element(), buffers[rank].in,
                             block.count * call.operation.element(), rank_, rank});
            });
            break;
        case Collective::alltoall:
            from_all([&](int rank) {
                const size_t block = bytes / ranks_;
                copies_.add({call.out() + rank * block, buffers[rank].in + rank_ * block, block, rank_, rank});
            });
            break;
        case Collective::gather:
            copies_.add({buffers[call.operation.root].out + offset, call.in(), part, call.operation.root, rank_});
            break;
        case Collective::scatter:
            copies_.add({call.out(), buffers[call.operation.root].in + offset, part, rank_, call.operation.root});
            break;
        case Collective::bcast: {
            const size_t read = (bytes - bytes / ranks_) / kLine * kLine;
            const std::byte *from = buffers[call.operation.root].out;
            if (rank_ != call.operation.root) {
                copies_.add({call.out(), from, read, rank_, call.operation.root});
                break;
            }
            for (int step = 1; step < ranks_; ++step) {
                const int rank = (rank_ + step) % ranks_;
                copies_.add({buffers[rank].out + read, from + read, bytes - read, rank, rank_});
            }
            break;
        }
        default:  // serves() says so
            break;
    }
}

Status Mapped::run(const Call &call, const std::vector<Buffers> &buffers, Reach *reach) {
    const bool stream = call.operation.bytes() >= past_bytes_;
    const Extent own = call.block(ranks_, rank_);
    switch (call.operation.collective) {
        case Collective::allreduce:
            return reduce_to_all(call, buffers);
        case Collective::reduce:
            return reduce_to_root(call, buffers, stream);
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter:
            reduce_to_one(call, buffers, own.offset, own.count, call.out(), stream);
            return {};
        default:
            plan_copies(call, buffers);
            return copies_.run(stream, board_, reach);
    }
}

void Mapped::reduce_to_one(const Call &call, const std::vector<Buffers> &buffers, size_t first, size_t count,
                           std::byte *result, bool stream) {
    for (int rank = 0; rank < ranks_; ++rank)
        sources_[rank] = buffers[rank].in + first * call.operation.element();
    reduce_many(call.operation.dtype, call.operation.op, result, sources_.data(), ranks_, count,
                call.operation.op == FLX_AVG ? ranks_ : 1, stream);
}

Status Mapped::reduce_to_root(const Call &call, const std::vector<Buffers> &buffers, bool stream) {
    const Extent own = call.block(ranks_, rank_);
    const size_t most = std::max<size_t>(1, Board::kUnasked / call.operation.element());
    for (size_t done = 0; done < own.count; done += most) {
        FLX_TRY(Board::look(board_));
        const size_t first = own.offset + done;
        reduce_to_one(call, buffers, first, std::min(most, own.count - done),
                      buffers[call.operation.root].out + first * call.operation.element(), stream);
    }
    return {};
}

/// Piece by piece, each read from all inputs before it is written to any output, which may be one of them.
Status Mapped::reduce_to_all(const Call &call, const std::vector<Buffers> &buffers) {
    const bool stream = call.operation.bytes() >= past_bytes_;
    const Extent region = call.block(ranks_, rank_);
    const size_t most = std::max<size_t>(1, kSum / call.operation.element());
    sum_.resize(std::max(sum_.size(), call.operation.element() + kLine));  // of a type of the program's own
    std::byte *sum = sum_.data() + -reinterpret_cast<uintptr_t>(sum_.data()) % kLine;
    for (size_t done = 0; done < region.count; done += most) {
        FLX_TRY(Board::look(board_));
        const size_t count = std::min(most, region.count - done);
        const size_t first = region.offset + done;
        const size_t offset = first * call.operation.element();
        for (int rank = 0; rank < ranks_; ++rank)
            sources_[rank] = buffers[rank].in + offset;
        reduce_many(call.operation.dtype, call.operation.op, call.out() + offset, sources_.data(), ranks_, count,
                    call.operation.op == FLX_AVG ? ranks_ : 1, stream, sum);
        for (int step = 1; step < ranks_; ++step)
            copy_bytes(buffers[(rank_ + step) % ranks_].out + offset, sum, count * call.operation.element(), stream);
    }
    return {};
}

}  // namespace flx::shm
