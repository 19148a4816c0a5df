/// \file lines.cuh
/// As packets.cuh, for somewhat larger messages: data travel in lines of 128 bytes, of which only the last 8 are a
/// flag. Eight threads store a line at once, and NVLink and memory keep it whole: the protocol that NCCL calls LL128.
#pragma once

#include "runtime/cuda/kernels/messages.cuh"

namespace flx::cuda {

inline constexpr uint32_t kLineLanes = 8;
inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kLineData = kLineBytes - sizeof(uint64_t);

/// A lane's share of a line; the last lane's `high` is the flag.
struct Words {
    uint64_t low, high;
};

inline constexpr uint32_t kWholeWarp = 0xffffffffU;

/// A line is whole only if its eight threads store it, and look at it, with one instruction. So warps stay together
/// wherever lines are touched, in loops as long for all of their threads, and `valid` says whose line it is: where
/// groups of eight went their own ways, the thread with the flag was seen to be ahead of the other seven.
__device__ __forceinline__ void put_words(char *to, Words words, bool valid) {
    __syncwarp();
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %3, 0;\n"
        "@p st.volatile.global.v2.u64 [%0], {%1, %2};\n"
        "}" ::"l"(to),
        "l"(words.low), "l"(words.high), "r"(valid ? 1U : 0U)
        : "memory");
}
__device__ __forceinline__ Words look_at_words(const char *from, bool valid) {
    Words words;
    __syncwarp();
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %3, 0;\n"
        "mov.u64 %0, 0;\n"
        "mov.u64 %1, 0;\n"
        "@p ld.volatile.global.v2.u64 {%0, %1}, [%2];\n"
        "}"
        : "=&l"(words.low), "=&l"(words.high)
        : "l"(from), "r"(valid ? 1U : 0U)
        : "memory");
    return words;
}

/// Whether a line of the warp has not come. `flagged`: this thread's words hold the flag.
__device__ __forceinline__ bool missing(const Words &words, uint64_t flag, bool flagged) {
    return __any_sync(kWholeWarp, flagged && words.high != flag) != 0;
}

/// Waits until all lines of a warp have come; null words: it was told to give up. Not called where they have come
/// already.
static __device__ __noinline__ Words await_lines(const Job &job, const char *from, uint64_t flag, int rank, bool valid,
                                                 bool flagged) {
    Patience patience(job);
    while (true) {
        const Words words = look_at_words(from, valid);
        if (!missing(words, flag, flagged))
            return words;
        const bool more = patience.more(rank);
        if (__all_sync(kWholeWarp, more ? 1 : 0) == 0)
            return Words{};
    }
}

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) lines_kernel(const __grid_constant__ Job job) {
    const Messages messages{job};
    const Op op(job.op);
    char *own = job.windows[job.rank];
    auto *count = reinterpret_cast<uint32_t *>(own + WindowLayout::line_count(blockIdx.x));
    const uint32_t before = *count;
    const uint32_t flag = next_flag(before);
    const uint64_t length = messages.length();
    const uint64_t begin = blockIdx.x * job.tile_bytes;
    const uint64_t end = begin + job.tile_bytes < length ? begin + job.tile_bytes : length;
    const auto lines = static_cast<uint32_t>((end - begin + kLineData - 1) / kLineData);
    const uint32_t lane = threadIdx.x % kLineLanes;
    const bool has_flag = lane == kLineLanes - 1;
    const uint64_t base = job.layout.lines(flag % 2, blockIdx.x) + lane * sizeof(Words);
    const auto mine = [&](int peer) { return base + job.layout.beside(job.rank, peer); };
    const auto theirs = [&](int rank) { return job.layout.beside(rank, job.rank); };
    const uint32_t first = threadIdx.x / kLineLanes;
    const uint32_t step = blockDim.x / kLineLanes;
    const uint32_t rounds = (lines + step - 1) / step;
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

    for (uint32_t round = 0; round < rounds; ++round) {
        const uint32_t line = first + round * step;
#pragma unroll 1
        for (int k = 1; k < job.ranks; ++k) {
            int peer = job.rank + k;
            peer = peer >= job.ranks ? peer - job.ranks : peer;
            if (messages.sends(job.rank, peer))
                put_words(job.windows[peer] + mine(peer) + line * kLineBytes, load(messages.input(peer), offset(line)),
                          line < lines && before != kGaveUp);
        }
    }
    if (before == kGaveUp) {
        if (threadIdx.x == 0)
            count_ended(job, false);
        return;
    }
    bool gave_up = false;
    const auto await = [&](const char *from, int rank, bool valid) {
        const Words words = await_lines(job, from, flag, rank, valid, valid && has_flag);
        gave_up = gave_up || (valid && has_flag && words.high != flag);
        return words;
    };
    // Ranks that have nothing to send to each other exchange a line without data.
    const int peer = static_cast<int>(first);
    const bool is_peer = peer < job.ranks && peer != job.rank;
    const bool tells = is_peer && !messages.sends(job.rank, peer);
    put_words(job.windows[is_peer ? peer : job.rank] + mine(peer), Words{0, flag}, tells);

    for (uint32_t round = 0; round < rounds; ++round) {
        const uint32_t line = first + round * step;
        const bool valid = line < lines;
        const uint64_t at = offset(line);
        const char *from = own + base + line * kLineBytes;
        Words words[kMaxRanks];
#pragma unroll
        for (int rank = 0; rank < kMaxRanks; ++rank)
            if (rank < job.ranks && rank != job.rank && messages.sends(rank, job.rank))
                words[rank] = look_at_words(from + theirs(rank), valid);
        Eight<T> low{};
        Eight<T> high{};
#pragma unroll
        for (int rank = 0; rank < kMaxRanks; ++rank) {
            if (rank >= job.ranks || (rank != job.rank && !messages.sends(rank, job.rank)))
                continue;
            if (rank == job.rank) {
                if (!messages.keeps())
                    continue;
                words[rank] = load(messages.input(rank), at);
            } else if (missing(words[rank], flag, valid && has_flag)) {
                words[rank] = await(from + theirs(rank), rank, valid);
            }
            if constexpr (std::is_same_v<Op, Keep>) {
                store(messages.output(rank), at, words[rank]);
            } else {
                low.add(op, words[rank].low, rank == 0);
                high.add(op, words[rank].high, rank == 0);
            }
        }
        if constexpr (!std::is_same_v<Op, Keep>)
            if (job.collective != Collective::reduce || job.rank == job.root)
                store(job.out, at, Words{low.finish(job.divisor), high.finish(job.divisor)});
    }
    const bool listens = is_peer && !messages.sends(peer, job.rank);
    await(own + base + theirs(peer), peer, listens);
    const bool ended = __syncthreads_or(gave_up ? 1 : 0) == 0;
    if (threadIdx.x == 0) {
        *count = ended ? flag : kGaveUp;
        count_ended(job, !ended);
    }
}

}  // namespace flx::cuda
