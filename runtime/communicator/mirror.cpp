#include "runtime/communicator/mirror.h"

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/cuda/memory/gpu.h"

namespace flx {

const Mirror::Gpu &Mirror::cuda_gpu() {
    static constexpr Gpu kCuda{cuda::on_device, cuda::copy_down, cuda::copy_up};
    return kCuda;
}

MirrorMemory::Block MirrorMemory::take(size_t bytes) {
    constexpr size_t kPage = 4096;
    auto best = kept_.end();
    for (auto each = kept_.begin(); each != kept_.end(); ++each)
        if (each->bytes >= bytes && (best == kept_.end() || each->bytes < best->bytes))
            best = each;
    if (best == kept_.end()) {
        const size_t whole = (bytes + kPage - 1) / kPage * kPage;
        return {std::make_unique_for_overwrite<std::byte[]>(whole), whole};
    }
    Block block = std::move(*best);
    kept_.erase(best);
    bytes_ -= block.bytes;
    return block;
}

void MirrorMemory::give(Block block) noexcept {
    constexpr size_t kMostBytes = 256U << 20;
    constexpr size_t kMostBlocks = 16;
    if (block.at == nullptr || block.bytes > kMostBytes - bytes_ || kept_.size() >= kMostBlocks)
        return;
    try {
        kept_.reserve(kMostBlocks);
    } catch (const std::bad_alloc &) {
        return;
    }
    bytes_ += block.bytes;
    kept_.push_back(std::move(block));
}

Mirror::~Mirror() {
    for (MirrorMemory::Block &block : blocks_)
        memory_.give(std::move(block));
}

Mirror::Mirror(Call &call, int ranks, int rank, MirrorMemory &memory, const Gpu &gpu) : gpu_(gpu), memory_(memory) {
    const Pieces pieces = pieces_of(call, ranks, rank);
    Range read = range_of(pieces.read);
    Range written = range_of(pieces.written);
    if (!read.none() && !written.none() && read.begin < written.end && written.begin < read.end) {  // in place
        read.begin = written.begin = std::min(read.begin, written.begin);
        read.end = written.end = std::max(read.end, written.end);
        make_room(read);
        written.host = read.host;
    } else {
        make_room(read);
        make_room(written);
    }
    add(pieces.read, read, down_);
    add(pieces.written, written, up_);

    Operation &operation = call.operation;
    const void *const in = operation.in;
    // An end that is neither read nor written here may be the other one's: a bcast names one buffer.
    if (!read.none() && in != FLX_IN_PLACE)
        operation.in = read.stands_for(in);
    else if (!written.none() && in == operation.out)
        operation.in = written.stands_for(in);
    if (!written.none())
        operation.out = written.stands_for(operation.out);
    else if (!read.none() && operation.out == in)
        operation.out = read.stands_for(operation.out);
}

/// What all pieces lie in; none where they are in host memory.
Mirror::Range Mirror::range_of(const std::vector<Piece> &pieces) const {
    Range range;
    if (pieces.empty() || !gpu_.owns(pieces.front().at))
        return range;
    range.begin = pieces.front().at;
    range.end = range.begin;
    for (const Piece &piece : pieces) {
        range.begin = std::min(range.begin, piece.at);
        range.end = std::max(range.end, piece.at + piece.bytes);
    }
    return range;
}

void Mirror::make_room(Range &range) {
    if (range.none())
        return;
    MirrorMemory::Block &block = blocks_[blocks_[0].at == nullptr ? 0 : 1];
    block = memory_.take(static_cast<size_t>(range.end - range.begin));
    range.host = block.at.get();
}

void Mirror::add(const std::vector<Piece> &pieces, const Range &range, std::vector<cuda::Transfer> &to) {
    if (range.none())
        return;
    to.reserve(pieces.size());
    for (const Piece &piece : pieces)
        to.push_back({piece.at, range.stands_for(piece.at), piece.bytes});
}

}  // namespace flx
