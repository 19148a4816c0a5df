// The largest operations: copy engines move the data, kernels of one warp set and await flags between them, or streams
// do by themselves (engines_alone.cpp).
#include <algorithm>
#include <vector>

#include "runtime/cuda/near/device_group.h"
#include "runtime/cuda/protocol/landing.h"
#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

enum Channel : uint32_t { kMeet = kMaxTeams, kArrived, kConsumed };
static_assert(kConsumed < kChannels);

constexpr uint32_t kBlockThreads = 512;

}  // namespace

Status DeviceGroup::step_flags(const Job &job, uint32_t channel, uint32_t tell, uint32_t hear, CUstream_st *stream) {
    constexpr uint32_t kWarp = 32;
    if (flags_.opened()) {
        const auto between = channel == kArrived ? StreamFlags::Channel::arrived : StreamFlags::Channel::consumed;
        FLX_TRY(flags_.tell(between, tell, 1, stream));
        return flags_.hear(between, hear, 1, stream);
    }
    const FlagStep step{job, channel, tell, hear};
    return launch(flag_step_kernel(), 1, kWarp, &step, stream);
}

Status DeviceGroup::fork(CUstream_st *from, CUstream_st *to) {
    FLX_TRY_CUDA(cudaEventRecord(event_, from));
    FLX_TRY_CUDA(cudaStreamWaitEvent(to, event_, 0));
    return {};
}

Status DeviceGroup::run_engines(const Operation &call, const Plan &plan, const Job &job, const Cut &cut,
                                CUstream_st *stream) {
    if (flags_.opened())
        return run_alone(call, plan, job, cut, stream);
    // All ranks are here: their outputs and slots may be written.
    FLX_TRY(step_flags(job, kMeet, peers_of(job), peers_of(job), stream));
    FLX_TRY(fork(stream, side_));
    FLX_TRY(reduces(job.collective) ? reduce_steps(call, plan, job, cut, stream) : copy_steps(job, cut, stream));
    FLX_TRY(fork(side_, stream));
    // All that peers write here in a reduce-scatter has come when it was added.
    if (job.collective != Collective::reduce_scatter_block)
        FLX_TRY(step_flags(job, kMeet, peers_of(job), peers_of(job), stream));
    return {};
}

/// Each step has one writer a target: two of them at once would halve what copy engines reach. Ranks stay in step
/// without flags for it, since an operation has few steps.
Status DeviceGroup::copy_steps(const Job &job, const Cut &cut, CUstream_st *stream) {
    const bool bcast = job.collective == Collective::bcast;
    const uint64_t bytes = bcast ? job.bytes : job.part_bytes;
    const uint64_t home = bcast ? 0 : job.part_offset(job.rank);
    const auto input = [&](int peer) {
        return job.in + (job.collective == Collective::alltoall ? job.part_offset(peer) : 0);
    };
    // A kernel copies this rank's own block: a copy within the GPU takes an engine away from those to peers.
    if (flags_.opened() && !bcast) {
        FLX_TRY(copy(job.out + home, input(job.rank), bytes, side_));
    } else if (input(job.rank) != job.out + home && !bcast) {
        constexpr uint32_t kBlocks = 32;
        LocalReduce work{job, {}, job.out + home, bytes};
        work.sources[job.rank] = input(job.rank);
        FLX_TRY(launch(move_kernels().local, kBlocks, kBlockThreads, &work, side_));
    }
    FLX_TRY(begin_staged(job, cut, stream));
    const uint64_t direct = bytes - cut.bytes;  // what comes last goes through host memory
    for (int k = 1; k < job.ranks && direct != 0 && (!bcast || job.rank == job.root); ++k) {
        const int peer = (job.rank + k) % job.ranks;
        FLX_TRY_CUDA(cudaMemcpyAsync(job.outputs[peer] + home, input(peer), direct, cudaMemcpyDeviceToDevice, stream));
    }
    if (cut.bytes != 0)
        FLX_TRY(host_.advance(bytes));
    return end_staged(cut, stream);
}

/// Copies to the owners on the caller's stream, flags and reductions beside them, so that copies follow each other
/// without a gap. All that goes to one owner goes at once, so that ranks do not drift into two of them writing to one
/// GPU: only what goes to the last is cut into chunks, which are reduced as they come. An allreduce then sends the
/// results likewise: to the first peer in two parts, since the last reduction is still under way, to the others whole.
/// Reductions exchange the flags themselves: a reduce-scatter ends with the last of them.
Status DeviceGroup::reduce_steps(const Operation &call, const Plan &plan, const Job &job, const Cut &cut,
                                 CUstream_st *stream) {
    const bool gathers = job.collective == Collective::allreduce;
    // Where multiprocessors are spared, each addition may wait for a long kernel of the program's to end: few, then.
    const Landing landing(job, gathers ? job.part_bytes : job.part_bytes - cut.bytes, plan.in_place, limits_.spare);
    const std::vector<Chunk> &chunks = landing.chunks();
    const size_t last = chunks.size() - 1;
    const auto piece = [&](int part, uint64_t begin, uint64_t end) {
        const uint64_t length = job.part_length(part);
        return Piece{begin, begin >= length ? 0 : std::min(end, length) - begin};
    };
    const auto reduced = [&](size_t index) { return reduced_[index % reduced_.size()]; };
    const Kernels kernels = kernels_of(call.dtype, call.op);
    const uint32_t peers = peers_of(job);
    // Two fill a multiprocessor. Beside a share over PCIe, whose flags need some room, half as many.
    const uint32_t blocks = limits_.spare ? limits_.blocks : kReducingProcessors * (cut.bytes == 0 ? 2 : 1);
    if (!gathers)
        FLX_TRY(begin_staged(job, cut, stream));
    for (size_t c = 0; c <= last; ++c) {
        const Chunk &chunk = chunks[c];
        for (int k = chunk.opens() ? 1 : job.ranks - 1; k < job.ranks; ++k) {
            const int peer = (job.rank + k) % job.ranks;
            if (k == landing.pause() && chunk.after >= 0)
                FLX_TRY_CUDA(cudaStreamWaitEvent(stream, reduced(chunk.after), 0));
            const Piece part = piece(peer, chunk.begin, k + 1 < job.ranks ? chunk.round_end : chunk.end);
            if (part.bytes != 0)
                FLX_TRY_CUDA(cudaMemcpyAsync(landing.place(peer, job.rank, chunk, part.offset),
                                             job.in + job.part_offset(peer) + part.offset, part.bytes,
                                             cudaMemcpyDeviceToDevice, stream));
        }
        Piece mine = piece(job.rank, chunk.begin, chunk.end);
        if (!gathers) {
            // Not before the first copies: it takes the host long to enqueue.
            if (c == 0 && cut.bytes != 0)
                FLX_TRY(host_.advance(job.part_bytes));
            if (c == last) {
                FLX_TRY(end_staged(cut, stream));
                mine.bytes += cut.bytes;
            }
        }
        FLX_TRY(fork(stream, side_));
        const uint64_t at = job.part_offset(job.rank) + mine.offset;
        LocalReduce work{job, {}, job.out + (gathers ? at : mine.offset), mine.bytes};
        // Where multiprocessors are spared, streams exchange the flags: no kernel waits on one.
        const bool in_kernel = !flags_.opened();
        if (in_kernel) {
            work.arrived = kArrived;
            if (chunk.frees)
                work.consumed = kConsumed;
        } else {
            FLX_TRY(step_flags(job, kArrived, peers, peers, side_));
        }
        for (int rank = 0; rank < job.ranks; ++rank)
            work.sources[rank] = rank == job.rank ? job.in + at : landing.place(job.rank, rank, chunk, mine.offset);
        if (in_kernel || mine.bytes != 0)
            FLX_TRY(launch(kernels.local, blocks, kBlockThreads, &work, side_));
        if (!in_kernel && chunk.frees)
            FLX_TRY(step_flags(job, kConsumed, peers, peers, side_));
        FLX_TRY_CUDA(cudaEventRecord(reduced(c), side_));
        if (gathers && c == 0)
            FLX_TRY(begin_staged(job, cut, side_));
        if (gathers && chunk.begin < cut.bytes) {
            FLX_TRY(host_.after(reduced(c)));
            FLX_TRY(host_.advance(chunk.end));
        }
    }
    return gathers ? send_results(job, cut, chunks[last].begin, last == 0 ? nullptr : reduced(last - 1), stream)
                   : Status();
}

/// What comes first, and so is reduced first, goes through host memory. `early`: what comes before `late` is reduced.
Status DeviceGroup::send_results(const Job &job, const Cut &cut, uint64_t late, CUevent_st *early,
                                 CUstream_st *stream) {
    const uint64_t mine = job.part_length(job.rank);
    const uint64_t from = std::min(cut.bytes, mine);
    late = std::clamp(late, from, mine);
    const auto send = [&](int k, uint64_t first, uint64_t end) -> Status {
        const uint64_t at = job.part_offset(job.rank) + first;
        if (end > first)
            FLX_TRY_CUDA(cudaMemcpyAsync(job.outputs[(job.rank + k) % job.ranks] + at, job.out + at, end - first,
                                         cudaMemcpyDeviceToDevice, stream));
        return {};
    };
    if (late > from) {
        FLX_TRY_CUDA(cudaStreamWaitEvent(stream, early, 0));
        FLX_TRY(send(1, from, late));
    }
    FLX_TRY(fork(side_, stream));
    FLX_TRY(send(1, late, mine));
    for (int k = 2; k < job.ranks; ++k)
        FLX_TRY(send(k, from, mine));
    return end_staged(cut, stream);
}

}  // namespace flx::cuda
