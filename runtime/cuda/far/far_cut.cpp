#include "runtime/cuda/far/far_cut.h"

#include <algorithm>

#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

/// The first piece is copied before anything goes over rails, and the last one after all has come: pieces are to be
/// small against the whole, but not so small that rails are kept waiting between them.
constexpr uint64_t kPieces = 8;
constexpr uint64_t kLeastPiece = 1U << 20;
/// Pieces begin where rows of this size do, as far as the vector does.
constexpr uint64_t kRow = 64;

uint64_t aligned(uint64_t bytes) {
    return (bytes + kRow - 1) / kRow * kRow;
}

/// Room for the vector, and where its result cannot lie in the same place for that too.
uint64_t vectors(Collective collective) {
    return collective == Collective::alltoall ? 2 : 1;
}

}  // namespace

uint64_t least_far_slot(int ranks) {
    constexpr uint64_t kWidest = 16;
    return 2 * aligned(kWidest * static_cast<uint64_t>(ranks));
}

FarCut cut_far(const Operation &call, int ranks, uint64_t slot_bytes, uint64_t apart) {
    FarCut cut;
    cut.element = size_of(call.dtype);
    cut.blocks = has_blocks(call.collective) ? static_cast<uint32_t>(ranks) : 1;
    cut.part = call.count / cut.blocks;
    cut.apart = apart == 0 ? cut.part : apart;
    const uint64_t room = slot_bytes / vectors(call.collective) / kRow * kRow;
    const uint64_t wanted = std::max(call.count * cut.element / kPieces, kLeastPiece);
    const uint64_t row = cut.element * cut.blocks;
    cut.step = std::max<uint64_t>(std::min(wanted, room) / row, 1);
    const uint64_t grain = std::max<uint64_t>(kRow / cut.element, 1);
    if (cut.step > grain)
        cut.step -= cut.step % grain;
    return cut;
}

bool far_receives(const Operation &call, int rank) {
    switch (call.collective) {
        case Collective::reduce:
            return rank == call.root;
        case Collective::bcast:
            return rank != call.root || call.in != call.out;
        default:
            return true;
    }
}

void far_copies(const Operation &call, const FarCut &cut, int rank, int ranks, uint32_t piece,
                std::vector<FarCopy> &out, std::vector<FarCopy> &in) {
    out.clear();
    in.clear();
    const uint64_t length = cut.length(piece) * cut.element;
    const uint64_t begin = piece * cut.step * cut.element;
    auto *from = static_cast<char *>(const_cast<void *>(call.in)) + begin;
    char *to = static_cast<char *>(call.out) + begin;
    const uint64_t apart = cut.apart * cut.element;
    const auto rows = [&](char *device, std::vector<FarCopy> &copies, uint64_t at) {
        for (int block = 0; block < ranks; ++block)
            copies.push_back({device + block * apart, at + block * length, length});
    };
    switch (call.collective) {
        case Collective::allreduce:
            out.push_back({from, 0, length});
            in.push_back({to, 0, length});
            break;
        case Collective::reduce:
            out.push_back({from, 0, length});
            if (rank == call.root)
                in.push_back({to, 0, length});
            break;
        case Collective::bcast:
            if (rank == call.root)
                out.push_back({from, 0, length});
            if (far_receives(call, rank))
                in.push_back({to, 0, length});
            break;
        case Collective::allgather:
            out.push_back({from, rank * length, length});
            rows(to, in, 0);
            if (call.in == static_cast<char *>(call.out) + rank * apart)
                in.erase(in.begin() + rank);
            break;
        case Collective::reduce_scatter_block:
            rows(from, out, 0);
            in.push_back({to, 0, length});
            break;
        case Collective::alltoall:
            rows(from, out, 0);
            rows(to, in, aligned(ranks * length));
            break;
        default:  // is not served
            break;
    }
}

Operation far_call(const Operation &call, const FarCut &cut, int rank, int ranks, uint32_t piece, char *slot) {
    Operation result = call;
    const uint64_t length = cut.length(piece);
    result.count = length * cut.blocks;
    result.in = slot;
    result.out = slot;
    if (call.collective == Collective::allgather)
        result.in = slot + rank * length * cut.element;
    else if (call.collective == Collective::alltoall)
        result.out = slot + aligned(ranks * length * cut.element);
    return result;
}

}  // namespace flx::cuda
