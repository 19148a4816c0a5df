/// \file lines.cuh
/// As packets.cuh, for somewhat larger messages: data travel in lines of 128 bytes, of which only the last 8 are a
/// flag. Eight threads store a line at once, and NVLink and memory keep it whole: the protocol that NCCL calls LL128.
#pragma once

#include "messages.cuh"

namespace flx::cuda {

inline constexpr uint32_t kLineLanes = 8;
inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kLineData = kLineBytes - sizeof(uint64_t);

/// A lane's share of a line; the last lane's `high` is the flag.
struct Words {
    uint64_t low, high;
};

/// All lanes of a line at once: that is what keeps it whole.
__device__ __forceinline__ void put_words(char *to, Words words, uint32_t lanes) {
    __syncwarp(lanes);
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(words.low), "l"(words.high) : "memory");
}
__device__ __forceinline__ Words look_at_words(const char *from, uint32_t lanes) {
    Words words;
    __syncwarp(lanes);
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.low), "=l"(words.high)
                 : "l"(from)
                 : "memory");
    return words;
}

/// Waits until a line has come; null words: told to give up. Where it has come already, nobody calls this.
static __device__ __noinline__ Words await_line(const Job &job, const char *from, uint64_t flag, int rank,
                                                uint32_t lanes, bool has_flag) {
    Patience patience(job);
    while (true) {
        const Words words = look_at_words(from, lanes);
        if (__any_sync(lanes, has_flag && words.high != flag) == 0)
            return words;
        if (__all_sync(lanes, patience.more(rank) ? 1 : 0) == 0)
            return Words{};
    }
}

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) lines_kernel(const __grid_constant__ Job job) {
    const Messages messages{job};
    const Op op(job.op);
    char *own = job.windows[job.rank];
    auto *count = reinterpret_cast<uint32_t *>(own + WindowLayout::line_count(blockIdx.x));
    const uint32_t flag = *count + 1;
    const uint64_t length = messages.length();
    const uint64_t begin = blockIdx.x * job.tile_bytes;
    const uint64_t end = begin + job.tile_bytes < length ? begin + job.tile_bytes : length;
    const auto lines = static_cast<uint32_t>((end - begin + kLineData - 1) / kLineData);
    const uint32_t lane = threadIdx.x % kLineLanes;
    const uint32_t lanes = 0xffU << (threadIdx.x % 32 / kLineLanes * kLineLanes);
    const bool has_flag = lane == kLineLanes - 1;
    const uint64_t base = job.layout.lines(flag % 2, blockIdx.x, 0) + lane * sizeof(Words);
    const uint64_t mine = base + job.rank * job.layout.line_bytes;
    const uint32_t first = threadIdx.x / kLineLanes;
    const uint32_t step = blockDim.x / kLineLanes;
    const auto offset = [&](uint32_t line) { return begin + line * kLineData + lane * sizeof(Words); };
    const auto load = [&](const char *from, uint64_t at) {
        Words words{0, flag};
        if (at < end)
            words.low = load_some(from + at, end - at);
        if (!has_flag)
            words.high =
                at + sizeof(uint64_t) < end ? load_some(from + at + sizeof(uint64_t), end - at - sizeof(uint64_t)) : 0;
        return words;
    };
    const auto store = [&](char *to, uint64_t at, const Words &words) {
        if (at < end)
            store_some(to + at, words.low, end - at);
        if (!has_flag && at + sizeof(uint64_t) < end)
            store_some(to + at + sizeof(uint64_t), words.high, end - at - sizeof(uint64_t));
    };

    for (uint32_t line = first; line < lines; line += step) {
#pragma unroll 1
        for (int k = 1; k < job.ranks; ++k) {
            int peer = job.rank + k;
            peer = peer >= job.ranks ? peer - job.ranks : peer;
            if (messages.sends(job.rank, peer))
                put_words(job.windows[peer] + mine + line * kLineBytes, load(messages.input(peer), offset(line)),
                          lanes);
        }
    }
    // Between ranks that have nothing to send to each other, a line without data.
    const int peer = static_cast<int>(first);
    const bool is_peer = peer < job.ranks && peer != job.rank;
    if (is_peer && !messages.sends(job.rank, peer))
        put_words(job.windows[peer] + mine, Words{0, flag}, lanes);

    for (uint32_t line = first; line < lines; line += step) {
        const uint64_t at = offset(line);
        const char *from = own + base + line * kLineBytes;
        Words words[kMaxRanks];
#pragma unroll
        for (int rank = 0; rank < kMaxRanks; ++rank)
            if (rank < job.ranks && rank != job.rank && messages.sends(rank, job.rank))
                words[rank] = look_at_words(from + rank * job.layout.line_bytes, lanes);
        Eight<T> low{};
        Eight<T> high{};
#pragma unroll
        for (int rank = 0; rank < kMaxRanks; ++rank) {
            if (rank >= job.ranks || (rank != job.rank && !messages.sends(rank, job.rank)))
                continue;
            if (rank == job.rank) {
                if (job.kind == Kind::bcast)
                    continue;
                words[rank] = load(messages.input(rank), at);
            } else if (__any_sync(lanes, has_flag && words[rank].high != flag) != 0) {
                words[rank] = await_line(job, from + rank * job.layout.line_bytes, flag, rank, lanes, has_flag);
            }
            if constexpr (std::is_same_v<Op, Keep>) {
                store(messages.output(rank), at, words[rank]);
            } else {
                low.add(op, words[rank].low, rank == 0);
                high.add(op, words[rank].high, rank == 0);
            }
        }
        if constexpr (!std::is_same_v<Op, Keep>)
            if (job.kind != Kind::reduce || job.rank == job.root)
                store(job.out, at, Words{low.finish(job.divisor), high.finish(job.divisor)});
    }
    if (is_peer && !messages.sends(peer, job.rank))
        await_line(job, own + base + peer * job.layout.line_bytes, flag, peer, lanes, has_flag);
    __syncthreads();
    if (threadIdx.x == 0)
        *count = flag;
}

}  // namespace flx::cuda
