// The largest operations: copy engines move the data, kernels of one warp set and await flags between them.
#include <algorithm>

#include "device_group.h"
#include "dtype.h"

namespace flx::cuda {
namespace {

enum Channel : uint32_t { kMeet = kMaxTeams, kArrived, kConsumed };
static_assert(kConsumed < kChannels);

constexpr uint32_t kBlockThreads = 512;
/// Enough to add a chunk in less time than the next one takes to come.
constexpr uint32_t kReducingBlocks = 128;

uint32_t peers_of(const Job &job) {
    return ((1U << job.ranks) - 1) & ~(1U << job.rank);
}

}  // namespace

Status DeviceGroup::step_flags(const Job &job, uint32_t channel, uint32_t tell, uint32_t hear,
                               CUstream_st *stream) const {
    constexpr uint32_t kWarp = 32;
    const FlagStep step{job, channel, tell, hear};
    return launch(flag_step_kernel(), 1, kWarp, &step, stream);
}

Status DeviceGroup::fork(CUstream_st *from, CUstream_st *to) {
    FLX_TRY_CUDA(cudaEventRecord(event_, from));
    FLX_TRY_CUDA(cudaStreamWaitEvent(to, event_, 0));
    return {};
}

Status DeviceGroup::run_engines(const Call &call, const Job &job, const Cut &cut, CUstream_st *stream) {
    // All ranks are here: their outputs and slots may be written.
    FLX_TRY(step_flags(job, kMeet, peers_of(job), peers_of(job), stream));
    FLX_TRY(fork(stream, side_));
    FLX_TRY(reduces(job.kind) ? reduce_steps(call, job, cut, stream) : copy_steps(job, cut, stream));
    FLX_TRY(end_staged(cut, stream));
    FLX_TRY(fork(side_, stream));
    return step_flags(job, kMeet, peers_of(job), peers_of(job), stream);
}

/// Each step has one writer a target: two of them at once would halve what copy engines reach. Ranks stay in step
/// without being told to: an operation has few steps.
Status DeviceGroup::copy_steps(const Job &job, const Cut &cut, CUstream_st *stream) {
    const bool bcast = job.kind == Kind::bcast;
    const uint64_t bytes = bcast ? job.bytes : job.part_bytes;
    const uint64_t home = bcast ? 0 : job.part_offset(job.rank);
    const auto input = [&](int peer) { return job.in + (job.kind == Kind::alltoall ? job.part_offset(peer) : 0); };
    // By a kernel: a copy within the GPU takes an engine away from those to peers.
    if (input(job.rank) != job.out + home && !bcast) {
        constexpr uint32_t kBlocks = 32;
        const LocalReduce work{job, {input(job.rank), nullptr, 0, job.rank, job.ranks}, job.out + home, bytes};
        FLX_TRY(launch(move_kernels().local, kBlocks, kBlockThreads, &work, side_));
    }
    FLX_TRY(begin_staged(job, cut, stream));
    const uint64_t direct = bytes - cut.bytes;  // what comes last goes through host memory
    for (int k = 1; k < job.ranks && direct != 0 && (!bcast || job.rank == job.root); ++k) {
        const int peer = (job.rank + k) % job.ranks;
        FLX_TRY_CUDA(cudaMemcpyAsync(job.outputs[peer] + home, input(peer), direct, cudaMemcpyDeviceToDevice, stream));
    }
    return cut.bytes == 0 ? Status() : host_.advance(bytes);
}

/// Chunk by chunk: copies to the owners on the caller's stream, reductions beside them, and for an allreduce copies of
/// the results, which come after the next chunk's first ones so that links do not wait for a reduction.
///
/// What comes to an owner lands in slots of its window; in an allreduce whose output is not its input, in the parts of
/// the output that others will fill with results later. These hold any chunk, and few large chunks are the fastest.
Status DeviceGroup::reduce_steps(const Call &call, const Job &job, const Cut &cut, CUstream_st *stream) {
    constexpr uint64_t kLine = 4096;
    const bool gathers = job.kind == Kind::allreduce;
    const bool in_output = gathers && job.in != job.out && job.bytes == job.part_bytes * job.ranks;
    const uint64_t base = layout_.slots();
    const uint64_t room = (layout_.bytes() - base) / (2 * job.ranks) / kLine * kLine;
    // Two chunks are enough for two phases to run beside each other; the last reduction of a reduce-scatter is not
    // beside anything, and so shall be short.
    const uint64_t parts = gathers ? 2 : 8;
    const uint64_t wanted = std::max<uint64_t>((job.part_bytes / parts + kLine - 1) / kLine * kLine, 4 << 20);
    const uint64_t chunk = in_output ? wanted : std::min(room, wanted);
    const auto chunks = static_cast<int>((job.part_bytes + chunk - 1) / chunk);
    const auto landing = [&](int owner, int index, int source) {
        return in_output ? job.outputs[owner] + job.part_offset(source) + index * chunk
                         : job.windows[owner] + base + (uint64_t(index % 2) * job.ranks + source) * room;
    };
    const auto piece = [&](int part, int index) {
        const uint64_t from = index * chunk;
        const uint64_t length = job.part_length(part);
        return Piece{from, from >= length ? 0 : std::min(chunk, length - from)};
    };
    const uint32_t peers = peers_of(job);
    const Kernels kernels = kernels_of(call.dtype, call.op);
    for (int c = 0; c <= chunks; ++c) {
        if (c < chunks) {
            if (c >= 2 && !in_output)
                FLX_TRY(step_flags(job, kConsumed, 0, peers, stream));
            for (int k = 1; k < job.ranks; ++k) {
                const int peer = (job.rank + k) % job.ranks;
                const Piece part = piece(peer, c);
                if (part.bytes != 0)
                    FLX_TRY_CUDA(cudaMemcpyAsync(landing(peer, c, job.rank),
                                                 job.in + job.part_offset(peer) + part.offset, part.bytes,
                                                 cudaMemcpyDeviceToDevice, stream));
            }
            FLX_TRY(step_flags(job, kArrived, peers, 0, stream));
            FLX_TRY(step_flags(job, kArrived, 0, peers, side_));
            const Piece mine = piece(job.rank, c);
            const uint64_t at = job.part_offset(job.rank) + mine.offset;
            const LocalReduce work{
                job,
                {job.in + at, landing(job.rank, c, 0), in_output ? job.part_bytes : room, job.rank, job.ranks},
                job.out + (gathers ? at : mine.offset),
                mine.bytes};
            if (mine.bytes != 0)
                FLX_TRY(launch(kernels.local, kReducingBlocks, kBlockThreads, &work, side_));
            FLX_TRY(step_flags(job, kConsumed, peers, 0, side_));
            FLX_TRY_CUDA(cudaEventRecord(reduced_[c % reduced_.size()], side_));
            if (c == 0)
                FLX_TRY(begin_staged(job, cut, side_));
            if (uint64_t(c) * chunk < cut.bytes) {
                FLX_TRY(host_.after(reduced_[c % reduced_.size()]));
                FLX_TRY(host_.advance(c + 1 < chunks ? uint64_t(c + 1) * chunk : job.part_bytes));
            }
        }
        if (gathers && c > 0) {
            // What comes first, and so is reduced first, goes through host memory.
            const Piece all = piece(job.rank, c - 1);
            const uint64_t from = std::clamp(cut.bytes, all.offset, all.offset + all.bytes);
            const Piece mine{from, all.offset + all.bytes - from};
            const uint64_t at = job.part_offset(job.rank) + mine.offset;
            FLX_TRY_CUDA(cudaStreamWaitEvent(stream, reduced_[(c - 1) % reduced_.size()], 0));
            if (in_output)
                FLX_TRY(step_flags(job, kConsumed, 0, peers, stream));
            for (int k = 1; mine.bytes != 0 && k < job.ranks; ++k)
                FLX_TRY_CUDA(cudaMemcpyAsync(job.outputs[(job.rank + k) % job.ranks] + at, job.out + at, mine.bytes,
                                             cudaMemcpyDeviceToDevice, stream));
        }
    }
    // What was told and not yet heard, so that both counts agree when the next operation begins.
    for (int c = std::max(0, chunks - 2); c < chunks && !in_output; ++c)
        FLX_TRY(step_flags(job, kConsumed, 0, peers, stream));
    return {};
}

}  // namespace flx::cuda
