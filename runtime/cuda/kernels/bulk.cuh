/// \file bulk.cuh
/// Reductions between two ranks by bulk copies (runtime/cuda/protocol/bulk.h, bulk_roles.h), as the blocks of a kernel.
#pragma once

#include "runtime/cuda/kernels/anywhere.cuh"
#include "runtime/cuda/protocol/bulk_roles.h"

namespace flx::cuda {

inline constexpr uint32_t kBulkRoles = 4;
inline constexpr uint32_t kBulkAdders = 8;
inline constexpr uint32_t kBulkThreads = (kBulkRoles + kBulkAdders) * 32;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

class BulkLane {
  public:
    using Barrier = uint64_t;
    using Waiting = Patience;
    static constexpr uint32_t kLanes = 32;

    [[nodiscard]] __device__ __forceinline__ uint32_t lane() const { return threadIdx.x % kLanes; }
    __device__ __forceinline__ void sync_warp() const { __syncwarp(); }
    [[nodiscard]] __device__ __forceinline__ bool all(bool yes) const { return __all_sync(~0U, yes ? 1 : 0) != 0; }

    // Words and barriers of the block.
    [[nodiscard]] __device__ __forceinline__ uint32_t look(const uint32_t &word) const {
        uint32_t value;
        asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(shared(&word)) : "memory");
        return value;
    }
    __device__ __forceinline__ void post(uint32_t &word, uint32_t value) const {
        asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(shared(&word)), "r"(value) : "memory");
    }
    __device__ __forceinline__ void make(uint64_t &barrier, uint32_t arrivals) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(&barrier)), "r"(arrivals) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __device__ __forceinline__ void arrive(uint64_t &barrier) const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&barrier)) : "memory");
    }
    [[nodiscard]] __device__ __forceinline__ bool passed(uint64_t &barrier, uint32_t round) const {
        uint32_t passed;
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(passed)
                     : "r"(shared(&barrier)), "r"(round & 1)
                     : "memory");
        return passed != 0;
    }

    // Flags between GPUs.
    __device__ __forceinline__ void tell(uint32_t *flag, uint32_t value) const { store_release(flag, value); }
    [[nodiscard]] __device__ __forceinline__ uint32_t hear(const uint32_t *flag) const { return load_acquire(flag); }

    // Bulk copies. What they read or write is in order with ordinary reads and writes from here on.
    __device__ __forceinline__ void join_proxies() const { asm volatile("fence.proxy.async;" ::: "memory"); }
    /// The same of shared memory alone, which waits for nothing that is under way.
    __device__ __forceinline__ void join_shared() const { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    __device__ __forceinline__ void load(char *to, const char *from, uint32_t bytes, uint64_t &barrier) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(&barrier)), "r"(bytes)
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared(to)),
            "l"(from), "r"(bytes), "r"(shared(&barrier))
            : "memory");
    }
    __device__ __forceinline__ void store(char *to, const char *from, uint32_t bytes) const {
        asm volatile(
            "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(to),
            "r"(shared(from)), "r"(bytes)
            : "memory");
    }
    /// Waits until at most kMost stores have not arrived.
    template <uint32_t kMost>
    __device__ __forceinline__ void await_stores() const {
        asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kMost) : "memory");
    }

  private:
    static __device__ __forceinline__ uint32_t shared(const void *at) {
        return static_cast<uint32_t>(__cvta_generic_to_shared(at));
    }
};

/// 16 bytes of shared memory from anywhere; both units that have some of them are read.
__device__ __forceinline__ uint4 load_any(const char *from) {
    const uint32_t beyond = beyond_unit(from);
    const auto *units = reinterpret_cast<const uint4 *>(from - beyond);
    return joined(units[0], units[1], beyond);
}

/// Packs from anywhere on, as an array has them.
struct Anywhere {
    const char *first;
    __device__ __forceinline__ uint4 operator[](uint32_t number) const {
        return load_any(first + number * sizeof(uint4));
    }
};

/// A lane of the warps that add.
template <typename T, typename Op>
class BulkAdder {
  public:
    static constexpr int kElements = sizeof(uint4) / sizeof(T);
    static constexpr uint32_t kLanes = kBulkAdders * 32;

    __device__ BulkAdder(const Job &job, uint32_t lane) : op_(job.op), divisor_(job.divisor), lane_(lane) {}

    /// Packs of 16 bytes of the output, wherever they come from, and single bytes before and behind them.
    __device__ void add(const char *first, const char *second, char *out, uint64_t bytes) const {
        constexpr uint32_t kPack = sizeof(uint4);
        const auto size = static_cast<uint32_t>(bytes);
        const auto up = static_cast<uint32_t>(-reinterpret_cast<uint64_t>(out) % kPack);
        const uint32_t head = up < size ? up : size;
        const uint32_t packs = (size - head) / kPack;
        add_bytes(first, second, out, head, head + packs * kPack, size);
        auto *to = reinterpret_cast<uint4 *>(out + head);
        if (head % sizeof(T) != 0) {
            // Elements lie across packs: a sum's bytes come from those of two packs that begin with an element.
            for (uint32_t at = lane_; at < packs; at += kLanes)
                to[at] = joined(sum_at(first + at * kPack, second + at * kPack),
                                sum_at(first + (at + 1) * kPack, second + (at + 1) * kPack), head);
        } else if (aligned(reinterpret_cast<uint64_t>(first + head) | reinterpret_cast<uint64_t>(second + head),
                           kPack)) {
            for (uint32_t at = lane_; at < packs; at += kLanes * kUnroll)
                add_packs(reinterpret_cast<const uint4 *>(first + head) + at,
                          reinterpret_cast<const uint4 *>(second + head) + at, to + at, packs - at);
        } else {
            for (uint32_t at = lane_; at < packs; at += kLanes * kUnroll)
                add_packs(Anywhere{first + head + at * kPack}, Anywhere{second + head + at * kPack}, to + at,
                          packs - at);
        }
    }

  private:
    static constexpr uint32_t kUnroll = sizeof(T) >= 4 ? 4 : sizeof(T);

    __device__ __forceinline__ uint4 added(uint4 first, uint4 second) const {
        if constexpr (kInPairs<T, Op>) {
            if (divisor_ == 1)
                return sum_of_two<T>(first, second);
        }
        struct Pack {
            T element[kElements];
        };
        Pack pack = bits_as<Pack>(first);
        WideOf<T> sum[kElements];
        WideOf<T> value[kElements];
        widen_all(pack.element, sum);
        pack = bits_as<Pack>(second);
        widen_all(pack.element, value);
#pragma unroll
        for (int e = 0; e < kElements; ++e)
            sum[e] = op_.apply(sum[e], value[e]);
        narrow_all<T>(sum, pack.element, divisor_);
        return bits_as<uint4>(pack);
    }

    [[nodiscard]] __device__ __forceinline__ uint4 sum_at(const char *first, const char *second) const {
        return added(load_any(first), load_any(second));
    }

    /// The bytes [0, head) and [tail, end) of the output, a lane each: fewer than two packs. The last lanes have them,
    /// since they have the fewest packs.
    __device__ __forceinline__ void add_bytes(const char *first, const char *second, char *out, uint32_t head,
                                              uint32_t tail, uint32_t end) const {
        const uint32_t place = kLanes - 1 - lane_;
        const uint32_t at = place < head ? place : place - head + tail;
        if (at >= end)
            return;
        const uint32_t element = at / sizeof(T) * sizeof(T);
        const T sum = narrow<T>(
            op_.apply(widen(load_bytes<T>(first + element)), widen(load_bytes<T>(second + element))), divisor_);
        uint64_t raw = 0;
        memcpy(&raw, &sum, sizeof sum);
        out[at] = static_cast<char>(raw >> (8 * (at - element)));
    }

    /// `Packs`: an array of them, or what is used like one.
    template <class Packs>
    __device__ __forceinline__ void add_packs(const Packs &first, const Packs &second, uint4 *out,
                                              uint32_t left) const {
        uint4 one[kUnroll];
        uint4 other[kUnroll];
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u) {
            if (u * kLanes < left) {
                one[u] = first[u * kLanes];
                other[u] = second[u * kLanes];
            }
        }
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u)
            if (u * kLanes < left)
                out[u * kLanes] = added(one[u], other[u]);
    }

    Op op_;
    int divisor_;
    uint32_t lane_;
};

template <typename T, typename Op>
__global__ void __launch_bounds__(kBulkThreads, 1) bulk_kernel(const __grid_constant__ Job job) {
    extern __shared__ __align__(128) char bulk_stages[];
    __shared__ BulkBoard<uint64_t> board;
    const uint32_t block = blockIdx.x;
    auto *count = reinterpret_cast<uint32_t *>(job.windows[job.rank] + WindowLayout::count(block));
    const BulkTeam team(job, block, *count);
    BulkLane lane;
    BulkRoles<BulkLane> roles(lane, job, team, board);
    if (threadIdx.x == 0)
        roles.prepare(kBulkAdders, *job.dead == 0);
    __syncthreads();
    if (board.over != 0)
        return;
    char *pairs = bulk_stages + kBulkSending * kBulkSlot;
    switch (threadIdx.x / BulkLane::kLanes) {
        case 0:
            roles.send(bulk_stages);
            break;
        case 1:
            roles.take(pairs);
            break;
        case 2:
            roles.tell(block);
            break;
        case 3:
            roles.hear(block);
            break;
        default:
            const uint32_t adder = threadIdx.x - kBulkRoles * BulkLane::kLanes;
            roles.add(BulkAdder<T, Op>(job, adder), adder == 0, pairs);
    }
    __syncthreads();
    if (threadIdx.x == 0 && board.over == 0)
        *count = team.end();
}

#else

/// Older GPUs have no bulk copies: it is not launched there.
template <typename T, typename Op>
__global__ void __launch_bounds__(kBulkThreads, 1) bulk_kernel(const __grid_constant__ Job /*job*/) {}

#endif

}  // namespace flx::cuda
