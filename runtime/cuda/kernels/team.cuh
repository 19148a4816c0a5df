/// \file team.cuh
/// The blocks of a kernel as Machines of runtime/cuda/protocol/exchange.h: copies and reductions by all threads of a
/// block, flags in peers' memory, and waits that end when the host says so.
#pragma once

#include "runtime/cuda/kernels/elements.cuh"
#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

inline constexpr int kThreads = 512;

__device__ __forceinline__ void store_release(uint32_t *flag, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t *flag) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

/// By the first thread of a block that does nothing more with windows, after a barrier. What a block that gave up has
/// written comes before: peers do not wait for that.
__device__ __forceinline__ void count_ended(const Job &job, bool gave_up) {
    if (!job.counted)
        return;
    if (gave_up)
        __threadfence_system();
    atomicAdd(reinterpret_cast<uint32_t *>(job.windows[job.rank] + WindowLayout::kEnded), 1U);
}

/// For all of a block the same, by all of its threads: a kernel of this rank gave up before, so this one does nothing.
__device__ __forceinline__ bool gave_up_before(const Job &job) {
    return __syncthreads_or(*job.dead != 0 ? 1 : 0) != 0;
}

/// Decides when a wait gives up: now and then it looks at the host's abort word, and after a while it notes for the
/// host which rank it waits for.
class Patience {
  public:
    __device__ explicit Patience(const Job &job) : job_(job) {}
    /// False: give up.
    __device__ bool more(int peer) {
        // A look at host memory takes as long as some packets need to come: not at once, but within a millisecond.
        // Whoever gives up says so in the GPU, where looks are cheap.
        constexpr uint32_t kLookHere = 1U << 6;
        constexpr uint32_t kLook = 1U << 10;
        constexpr uint64_t kStuckNs = 200'000'000;
        if (++turns_ % kLookHere != 0)
            return true;
        if (*job_.dead != 0)
            return false;
        if (turns_ % kLook != 0)
            return true;
        if (*job_.abort != 0) {
            *job_.dead = 1;
            return false;
        }
        const uint64_t now = nanoseconds();
        if (began_ == 0)
            began_ = now;
        else if (now - began_ > kStuckNs)
            *static_cast<volatile uint32_t *>(job_.stuck) = 1 + static_cast<uint32_t>(peer);
        return true;
    }

  private:
    const Job &job_;
    uint32_t turns_ = 0;
    uint64_t began_ = 0;
};

template <typename T>
__device__ __forceinline__ T load_bytes(const char *from) {
    T value;
    auto *to = reinterpret_cast<char *>(&value);
#pragma unroll
    for (size_t i = 0; i < sizeof(T); ++i)
        to[i] = from[i];
    return value;
}
template <typename T>
__device__ __forceinline__ void store_bytes(char *to, T value) {
    const auto *from = reinterpret_cast<const char *>(&value);
#pragma unroll
    for (size_t i = 0; i < sizeof(T); ++i)
        to[i] = from[i];
}

__device__ __forceinline__ bool aligned(uint64_t address, uint64_t to) {
    return address % to == 0;
}

/// All addresses that a piece is written to, or'ed: what they have in common decides how wide stores may be.
__device__ __forceinline__ uint64_t addresses(const Targets &to, int ranks) {
    uint64_t all = reinterpret_cast<uint64_t>(to.local);
    for (int peer = 0; peer < ranks; ++peer)
        if ((to.peers >> peer & 1) != 0)
            all |= reinterpret_cast<uint64_t>(to.bases[peer] + to.offset);
    return all;
}

/// What is reduced, in rank order, wherever it lies.
struct Places {
    const char *const *of;
    uint64_t offset;
    int ranks;
};

__device__ __forceinline__ const char *source(const Sources &from, int rank) {
    return rank == from.rank ? from.own : from.slots + rank * from.stride;
}
__device__ __forceinline__ const char *source(const Places &from, int rank) {
    return from.of[rank] + from.offset;
}
/// Slots lie on lines.
__device__ __forceinline__ uint64_t addresses(const Sources &from) {
    return reinterpret_cast<uint64_t>(from.own);
}
__device__ __forceinline__ uint64_t addresses(const Places &from) {
    uint64_t all = from.offset;
    for (int rank = 0; rank < from.ranks; ++rank)
        all |= reinterpret_cast<uint64_t>(from.of[rank]);
    return all;
}

/// Copies by a block. `Reduce`: what reduce() does; copies alone need none.
template <typename T, typename Op>
class Team {
  public:
    __device__ explicit Team(const Job &job) : job_(job), op_(job.op) {}

    /// The same for all of the block.
    __device__ bool alive() const { return __syncthreads_or(threadIdx.x == 0 && *job_.dead != 0 ? 1 : 0) == 0; }
    __device__ uint32_t count(uint32_t block) const {
        return *reinterpret_cast<const uint32_t *>(own() + WindowLayout::count(block));
    }
    __device__ void set_count(uint32_t block, uint32_t value) {
        __syncthreads();
        if (threadIdx.x == 0)
            *reinterpret_cast<uint32_t *>(own() + WindowLayout::count(block)) = value;
    }

    __device__ void signal(Stage stage, uint32_t block, uint32_t count) {
        __syncthreads();
        const int peer = static_cast<int>(threadIdx.x);
        if (peer < job_.ranks && peer != job_.rank)
            store_release(flag(job_.windows[peer], stage, block, job_.rank), count);
    }
    __device__ bool wait(Stage stage, uint32_t block, uint32_t count) {
        const int peer = static_cast<int>(threadIdx.x);
        bool gave_up = false;
        if (peer < job_.ranks && peer != job_.rank) {
            Patience patience(job_);
            const uint32_t *mine = flag(own(), stage, block, peer);
            while (static_cast<int32_t>(load_acquire(mine) - count) < 0 && !gave_up)
                gave_up = !patience.more(peer);
        }
        return __syncthreads_or(gave_up ? 1 : 0) == 0;
    }

    __device__ void signal_to(int peer, Stage stage, uint32_t block, uint32_t count) {
        __syncthreads();
        if (threadIdx.x == 0)
            store_release(flag(job_.windows[peer], stage, block, job_.rank), count);
    }
    __device__ bool wait_for(int peer, Stage stage, uint32_t block, uint32_t count) {
        bool gave_up = false;
        if (threadIdx.x == 0) {
            Patience patience(job_);
            const uint32_t *mine = flag(own(), stage, block, peer);
            while (static_cast<int32_t>(load_acquire(mine) - count) < 0 && !gave_up)
                gave_up = !patience.more(peer);
        }
        return __syncthreads_or(gave_up ? 1 : 0) == 0;
    }

    __device__ void copy(const char *from, const Targets &to, uint64_t bytes) {
        const uint64_t all = addresses(to, job_.ranks) | reinterpret_cast<uint64_t>(from);
        if (aligned(all, sizeof(uint4)))
            copy_wide<uint4>(from, to, bytes);
        else if (aligned(all, sizeof(uint32_t)))
            copy_wide<uint32_t>(from, to, bytes);
        else
            copy_wide<char>(from, to, bytes);
    }

    /// `From`: Sources or Places.
    template <typename From>
    __device__ void reduce(const From &from, const Targets &to, uint64_t bytes, int divisor) {
        using Pack = PackOf<uint4>;
        uint64_t done = 0;
        if (aligned(addresses(to, job_.ranks) | addresses(from), sizeof(uint4))) {
            constexpr int kUnroll = sizeof(T) >= 4 ? 4 : sizeof(T);
            const uint64_t packs = bytes / sizeof(uint4);
            const uint64_t round = uint64_t{kThreads} * kUnroll;
            const uint64_t whole = packs / round * round;
            for (uint64_t at = threadIdx.x; at < whole; at += round)
                reduce_packs<Pack, kUnroll>(from, to, at, divisor);
            for (uint64_t at = whole + threadIdx.x; at < packs; at += kThreads)
                reduce_packs<Pack, 1>(from, to, at, divisor);
            done = packs * sizeof(uint4);
        }
        for (uint64_t at = done + threadIdx.x * sizeof(T); at < bytes; at += kThreads * sizeof(T)) {
            WideOf<T> sum{};
            for (int rank = 0; rank < from.ranks; ++rank) {
                const WideOf<T> value = widen(load_bytes<T>(source(from, rank) + at));
                sum = rank == 0 ? value : op_.apply(sum, value);
            }
            store_element(to, at, narrow<T>(sum, divisor));
        }
    }

  protected:
    template <typename Raw>
    struct PackOf {
        static constexpr int kElements = sizeof(Raw) / sizeof(T);
        T element[kElements];
        static __device__ __forceinline__ PackOf of(Raw raw) { return bits_as<PackOf>(raw); }
        [[nodiscard]] __device__ __forceinline__ Raw raw() const { return bits_as<Raw>(*this); }
    };

    __device__ char *own() const { return job_.windows[job_.rank]; }
    static __device__ uint32_t *flag(char *window, Stage stage, uint32_t block, int source) {
        return reinterpret_cast<uint32_t *>(window + WindowLayout::flag(stage, block, source));
    }

    /// Calls put(address) for each place of a piece, other ranks' in turn from this one's on.
    template <typename Put>
    __device__ __forceinline__ void to_each(const Targets &to, const Put &put) const {
        if (to.local != nullptr)
            put(to.local);
        for (int k = 1; k < job_.ranks; ++k) {
            int peer = job_.rank + k;
            peer = peer >= job_.ranks ? peer - job_.ranks : peer;
            if ((to.peers >> peer & 1) != 0)
                put(to.bases[peer] + to.offset);
        }
    }
    template <typename Element>
    __device__ __forceinline__ void store_element(const Targets &to, uint64_t at, Element value) const {
        to_each(to, [&](char *base) { store_bytes(base + at, value); });
    }
    template <typename Raw>
    __device__ __forceinline__ void store(const Targets &to, uint64_t at, Raw value) const {
        to_each(to, [&](char *base) { reinterpret_cast<Raw *>(base)[at] = value; });
    }

    template <typename Raw>
    __device__ void copy_wide(const char *from, const Targets &to, uint64_t bytes) {
        constexpr int kUnroll = 8;
        const Raw *data = reinterpret_cast<const Raw *>(from);
        const uint64_t count = bytes / sizeof(Raw);
        const uint64_t round = uint64_t{kThreads} * kUnroll;
        const uint64_t whole = count / round * round;
        for (uint64_t at = threadIdx.x; at < whole; at += round) {
            Raw value[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                value[u] = data[at + u * kThreads];
            store_all<Raw, kUnroll>(to, at, value);
        }
        copy_rest<Raw, kUnroll>(data, to, whole, count);
        for (uint64_t at = count * sizeof(Raw) + threadIdx.x; at < bytes; at += kThreads)
            store(to, at, from[at]);
    }

    /// What is less than a round, all of it under way at once too.
    template <typename Raw, int kUnroll>
    __device__ __forceinline__ void copy_rest(const Raw *data, const Targets &to, uint64_t from, uint64_t count) {
        Raw value[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (from + threadIdx.x + u * kThreads < count)
                value[u] = data[from + threadIdx.x + u * kThreads];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (from + threadIdx.x + u * kThreads < count)
                store(to, from + threadIdx.x + u * kThreads, value[u]);
    }

    template <typename Raw, int kUnroll>
    __device__ __forceinline__ void store_all(const Targets &to, uint64_t at, const Raw *value) {
        to_each(to, [&](char *base) {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                reinterpret_cast<Raw *>(base)[at + u * kThreads] = value[u];
        });
    }

    template <typename Pack, int kUnroll, typename From>
    __device__ __forceinline__ void reduce_packs(const From &from, const Targets &to, uint64_t at, int divisor) {
        constexpr int kElements = Pack::kElements;
        WideOf<T> sum[kUnroll][kElements];
        for (int rank = 0; rank < from.ranks; ++rank) {
            const uint4 *data = reinterpret_cast<const uint4 *>(source(from, rank));
            uint4 raw[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                raw[u] = data[at + u * kThreads];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const Pack pack = Pack::of(raw[u]);
                WideOf<T> value[kElements];
                widen_all(pack.element, value);
#pragma unroll
                for (int e = 0; e < kElements; ++e)
                    sum[u][e] = rank == 0 ? value[e] : op_.apply(sum[u][e], value[e]);
            }
        }
        uint4 result[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            Pack pack;
            narrow_all<T>(sum[u], pack.element, divisor);
            result[u] = pack.raw();
        }
        store_all<uint4, kUnroll>(to, at, result);
    }

    const Job &job_;
    Op op_;
};

template <typename Op>
inline constexpr Kind kKindOf = std::is_same_v<Op, Keep> ? Kind::moves : Kind::adds;

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) exchange_kernel(const __grid_constant__ Job job) {
    Team<T, Op> team(job);
    run_exchange<kKindOf<Op>>(team, job, blockIdx.x);
}

}  // namespace flx::cuda
