// Copy engines where multiprocessors are spared (FLX_CUDA_BLOCKS=0): streams wait for each other by themselves, and
// what peers may not write into an output goes through windows.
#include <algorithm>

#include "runtime/cuda/near/device_group.h"

namespace flx::cuda {
namespace {

using Channel = StreamFlags::Channel;

uint32_t mask_of(int rank) {
    return 1U << rank;
}

constexpr uint64_t kBoundary = 4096;

/// What a window has room for besides its flags.
Piece room_in(const WindowLayout &layout) {
    const uint64_t base = (layout.slots() + kBoundary - 1) / kBoundary * kBoundary;
    return {base, layout.bytes() > base ? layout.bytes() - base : 0};
}

}  // namespace

Status DeviceGroup::run_alone(const Operation &call, const Plan &plan, const Job &job, const Cut &cut,
                              CUstream_st *stream) {
    FLX_TRY(flags_.begin(stream));
    FLX_TRY(fork(stream, side_));
    if (reduces(job.collective))
        FLX_TRY(reduce_steps(call, plan, job, cut, stream));
    else if (job.collective == Collective::bcast && cut.bytes == 0)
        FLX_TRY(pass_on(job, stream));
    else if (job.direct)
        FLX_TRY(copy_steps(job, cut, stream));
    else
        FLX_TRY(copy_through_windows(job, stream));
    FLX_TRY(fork(side_, stream));
    return flags_.end(stream);
}

/// Within this GPU. CUDA takes multiprocessors for that; buffers in place need none of it.
Status DeviceGroup::copy(char *to, const char *from, uint64_t bytes, CUstream_st *stream) const {
    if (bytes != 0 && to != from)
        FLX_TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    return {};
}

/// An allgather or alltoall, in rounds of what windows hold. Of an alltoall in place, what a round overwrites has gone
/// to its owner in that round.
Status DeviceGroup::copy_through_windows(const Job &job, CUstream_st *stream) {
    const bool apart = job.collective == Collective::alltoall;
    const Piece room = room_in(job.layout);
    const uint64_t each = room.bytes / job.ranks / kBoundary * kBoundary;
    const auto input = [&](int peer) { return job.in + (apart ? job.part_offset(peer) : 0); };
    const auto place = [&](int of, int from) { return job.windows[of] + room.offset + from * each; };
    FLX_TRY(copy(job.out + job.part_offset(job.rank), input(job.rank), job.part_bytes, side_));
    for (uint64_t at = 0; at < job.part_bytes; at += each) {
        const uint64_t bytes = std::min(each, job.part_bytes - at);
        for (int k = 1; k < job.ranks; ++k) {
            const int peer = (job.rank + k) % job.ranks;
            FLX_TRY(copy(place(peer, job.rank), input(peer) + at, bytes, stream));
        }
        FLX_TRY(flags_.tell(Channel::arrived, peers_of(job), 1, stream));
        FLX_TRY(flags_.hear(Channel::arrived, peers_of(job), 1, stream));
        for (int k = 1; k < job.ranks; ++k) {
            const int peer = (job.rank + k) % job.ranks;
            FLX_TRY(copy(job.out + job.part_offset(peer) + at, place(job.rank, peer), bytes, stream));
        }
        if (at + each < job.part_bytes) {
            FLX_TRY(flags_.tell(Channel::consumed, peers_of(job), 1, stream));
            FLX_TRY(flags_.hear(Channel::consumed, peers_of(job), 1, stream));
        }
    }
    return {};
}

/// A bcast from rank to rank, in so many chunks that the last rank waits for few of them: into outputs, or in rounds
/// through windows.
Status DeviceGroup::pass_on(const Job &job, CUstream_st *stream) {
    constexpr uint64_t kLeast = 4 << 20;
    constexpr uint64_t kChunks = 32;
    const Piece room = job.direct ? Piece{0, job.bytes} : room_in(job.layout);
    const auto memory = [&](int rank, uint64_t at) {
        return job.direct ? job.outputs[rank] + at : job.windows[rank] + room.offset + at % room.bytes;
    };
    const int last = (job.rank + job.ranks - 1) % job.ranks;
    const int next = (job.rank + 1) % job.ranks;
    const bool first = job.rank == job.root;
    const uint32_t to = next == job.root ? 0 : mask_of(next);
    const uint64_t chunk = std::max(job.bytes / kChunks / kBoundary * kBoundary, kLeast);
    for (uint64_t from = 0; from < job.bytes; from += room.bytes) {
        const uint64_t end = std::min(from + room.bytes, job.bytes);
        for (uint64_t at = from; at < end; at += chunk) {
            const uint64_t bytes = std::min(chunk, end - at);
            if (!first)
                FLX_TRY(flags_.hear(Channel::arrived, mask_of(last), 1, stream));
            char *here = job.direct ? job.out + at : memory(job.rank, at);
            if (to != 0) {
                FLX_TRY(copy(memory(next, at), first ? job.in + at : here, bytes, stream));
                FLX_TRY(flags_.tell(Channel::arrived, to, 1, stream));
            }
            if (!first)
                FLX_TRY(copy(job.out + at, here, bytes, stream));
        }
        if (end < job.bytes) {
            FLX_TRY(flags_.tell(Channel::consumed, peers_of(job), 1, stream));
            FLX_TRY(flags_.hear(Channel::consumed, peers_of(job), 1, stream));
        }
    }
    return {};
}

}  // namespace flx::cuda
