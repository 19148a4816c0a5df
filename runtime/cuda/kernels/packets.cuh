/// \file packets.cuh
/// Small messages: every rank writes its input to every other, which needs it, and each makes its own result. Data
/// travel in packets of 16 bytes, half of them flags, so that nothing else has to be awaited: the protocol that NCCL
/// calls LL. Of the 16 bytes, each aligned 8 arrive together.
///
/// A block's packets have two places, used in turn. Every rank sends each other at least one packet an operation, so
/// who has finished one knows that all others have finished the one before, and its place is free.
#pragma once

#include "runtime/cuda/kernels/messages.cuh"

namespace flx::cuda {

struct Packet {
    uint32_t low, flag, high, flag_again;
};

__device__ __forceinline__ void put_packet(char *to, uint64_t data, uint32_t flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(static_cast<uint32_t>(data)),
                 "r"(flag), "r"(static_cast<uint32_t>(data >> 32)), "r"(flag)
                 : "memory");
}
__device__ __forceinline__ Packet look(const char *from) {
    Packet packet;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(packet.low), "=r"(packet.flag), "=r"(packet.high), "=r"(packet.flag_again)
                 : "l"(from)
                 : "memory");
    return packet;
}

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) packets_kernel(const __grid_constant__ Job job) {
    const Messages messages{job};
    char *own = job.windows[job.rank];
    auto *count = reinterpret_cast<uint32_t *>(own + WindowLayout::packet_count(blockIdx.x));
    const uint32_t before = *count;
    const uint32_t flag = next_flag(before);
    const Op op(job.op);
    const uint64_t length = messages.length();
    const uint64_t begin = blockIdx.x * job.tile_bytes;
    const uint64_t end = begin + job.tile_bytes < length ? begin + job.tile_bytes : length;
    const uint64_t place = job.layout.packets(flag % 2, blockIdx.x, job.rank);
    const uint64_t step = blockDim.x * sizeof(uint64_t);

    for (uint64_t at = begin + threadIdx.x * sizeof(uint64_t); at < end; at += step) {
        for (int k = 1; k < job.ranks; ++k) {
            const int peer = (job.rank + k) % job.ranks;
            if (!messages.sends(job.rank, peer))
                continue;
            const uint64_t data = load_some(messages.input(peer) + at, length - at);
            if (before != kGaveUp)  // asked here: the input comes meanwhile
                put_packet(job.windows[peer] + place + (at - begin) * 2, data, flag);
        }
    }
    if (before == kGaveUp) {
        if (threadIdx.x == 0)
            count_ended(job, false);
        return;
    }
    const int peer = static_cast<int>(threadIdx.x);
    const bool is_peer = peer < job.ranks && peer != job.rank;
    if (is_peer && !messages.sends(job.rank, peer))
        put_packet(job.windows[peer] + place, 0, flag);

    const char *slots = own + job.layout.packets(flag % 2, blockIdx.x, 0);
    bool gave_up = false;
    const auto await = [&](Packet &packet, const char *from, int rank) {
        Patience patience(job);
        while ((packet.flag != flag || packet.flag_again != flag) && !gave_up) {
            packet = look(from);
            gave_up = !patience.more(rank);
        }
    };
    for (uint64_t at = begin + threadIdx.x * sizeof(uint64_t); at < end && !gave_up; at += step) {
        Packet packets[kMaxRanks];
        const auto slot = [&](int rank) { return slots + rank * job.layout.packet_bytes + (at - begin) * 2; };
#pragma unroll
        for (int rank = 0; rank < kMaxRanks; ++rank)
            if (rank < job.ranks && rank != job.rank && messages.sends(rank, job.rank))
                packets[rank] = look(slot(rank));
        Eight<T> sum{};
#pragma unroll
        for (int rank = 0; rank < kMaxRanks; ++rank) {
            if (rank >= job.ranks || (rank != job.rank && !messages.sends(rank, job.rank)))
                continue;
            uint64_t data = 0;
            if (rank == job.rank) {
                if (!messages.keeps())
                    continue;
                data = load_some(messages.input(rank) + at, length - at);
            } else {
                await(packets[rank], slot(rank), rank);
                data = packets[rank].low | static_cast<uint64_t>(packets[rank].high) << 32;
            }
            if (adds(job.collective))
                sum.add(op, data, rank == 0);
            else
                store_some(messages.output(rank) + at, data, length - at);
        }
        if (adds(job.collective) && (job.collective != Collective::reduce || job.rank == job.root))
            store_some(job.out + at, sum.finish(job.divisor), length - at);
    }
    if (is_peer && !messages.sends(peer, job.rank)) {
        Packet packet = {};
        await(packet, slots + peer * job.layout.packet_bytes, peer);
    }
    const bool ended = __syncthreads_or(gave_up ? 1 : 0) == 0;
    if (threadIdx.x == 0) {
        *count = ended ? flag : kGaveUp;
        count_ended(job, !ended);
    }
}

}  // namespace flx::cuda
