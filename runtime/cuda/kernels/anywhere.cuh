/// \file anywhere.cuh
/// What Team does on lines of 16 bytes, wherever inputs, outputs and pieces begin and end, at little less speed: what
/// lies between two lines is loaded as both, and stored together with what the thread before it has.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/cuda/kernels/team.cuh"

namespace flx::cuda {

/// A *unit* is 16 bytes of a piece, from its begin on.
inline constexpr uint32_t kUnit = sizeof(uint4);
inline constexpr uint32_t kWarp = 32;

__device__ __forceinline__ uint32_t beyond_unit(const char *address) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(address) % kUnit);
}
/// Those of a piece that may be loaded; the bytes behind them go one by one. `beyond`: or'ed of all it is loaded from.
__device__ __forceinline__ uint64_t units_of(uint64_t bytes, uint32_t beyond) {
    const uint64_t units = bytes / kUnit;
    return beyond != 0 && units > 0 ? units - 1 : units;  // nothing is loaded from behind the piece's line
}
/// Bytes `skip` to `skip` + 15 of both; it is at most 16.
__device__ __forceinline__ uint4 joined(uint4 low, uint4 high, uint32_t skip) {
    if ((skip & 16) != 0)
        return high;
    if ((skip & 8) != 0) {
        low = {low.z, low.w, high.x, high.y};
        high = {high.z, high.w, 0, 0};
    }
    if ((skip & 4) != 0) {
        low = {low.y, low.z, low.w, high.x};
        high.x = high.y;
    }
    const uint32_t bits = skip % 4 * 8;
    return {__funnelshift_r(low.x, low.y, bits), __funnelshift_r(low.y, low.z, bits),
            __funnelshift_r(low.z, low.w, bits), __funnelshift_r(low.w, high.x, bits)};
}
/// From one thread of a warp; `bytes` of the unit, from `first` on.
static __device__ __noinline__ void store_part(char *to, uint4 unit, uint32_t first, uint32_t bytes) {
    const uint32_t words[] = {unit.x, unit.y, unit.z, unit.w};
    if ((reinterpret_cast<uint64_t>(to) | first | bytes) % sizeof(uint32_t) == 0)
        for (uint32_t at = 0; at < bytes; at += sizeof(uint32_t))
            *reinterpret_cast<uint32_t *>(to + at) = words[(first + at) / sizeof(uint32_t)];
    else
        for (uint32_t at = 0; at < bytes; ++at)
            to[at] = reinterpret_cast<const char *>(words)[first + at];
}

/// Units `at`, `at` + 32, …, of which those from `end` on are not there, unless they all are (`kAll`).
template <bool kAll, int kUnroll>
__device__ __forceinline__ void load_units(const char *from, uint64_t at, uint64_t end, uint4 (&unit)[kUnroll]) {
    const uint32_t beyond = beyond_unit(from);
    const auto *data = reinterpret_cast<const uint4 *>(from - beyond) + at;
    const auto there = [&](int u) { return kAll || at + u * kWarp < end; };
    if (beyond == 0) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (there(u))
                unit[u] = data[u * kWarp];
        return;
    }
    uint4 next[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        if (there(u)) {
            unit[u] = data[u * kWarp];
            next[u] = data[u * kWarp + 1];
        }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
        unit[u] = joined(unit[u], next[u], beyond);
}

template <typename T, typename Op>
class TeamAnywhere : public Team<T, Op> {
  public:
    using Team<T, Op>::Team;

    // Functions with values for arguments: they have the registers for themselves, and lie once in a kernel.
    __device__ void copy(const char *from, const Targets &to, uint64_t bytes) const {
        copy_piece(this->job_, from, to, bytes);
    }
    __device__ void reduce(const Sources &from, const Targets &to, uint64_t bytes, int divisor) const {
        reduce_piece(this->job_, from, to, bytes, divisor);
    }

  private:
    using Pack = typename Team<T, Op>::template PackOf<uint4>;

    static __device__ __noinline__ void copy_piece(const Job &job, const char *from, Targets to, uint64_t bytes) {
        const TeamAnywhere team(job);
        constexpr int kUnroll = 4;
        const uint64_t units = units_of(bytes, beyond_unit(from));
        in_rounds<kUnroll>(units, [&](auto all, uint64_t at) {
            uint4 unit[kUnroll];
            load_units<all.value>(from, at, units, unit);
            team.template store<all.value>(to, at, units, unit);
        });
        for (uint64_t at = units * kUnit + threadIdx.x; at < bytes; at += kThreads)
            team.store_element(to, at, from[at]);
    }

    static __device__ __noinline__ void reduce_piece(const Job &job, Sources from, Targets to, uint64_t bytes,
                                                     int divisor) {
        const TeamAnywhere team(job);
        constexpr int kUnroll = sizeof(T) >= 4 ? 4 : 2;
        const uint64_t units = units_of(bytes, beyond_unit(from.own));  // slots lie on lines
        in_rounds<kUnroll>(units, [&](auto all, uint64_t at) {
            WideOf<T> sum[kUnroll][Pack::kElements];
            for (int rank = 0; rank < from.ranks; ++rank) {
                uint4 unit[kUnroll] = {};
                load_units<all.value>(source(from, rank), at, units, unit);
#pragma unroll
                for (int u = 0; u < kUnroll; ++u) {
                    WideOf<T> value[Pack::kElements];
                    widen_all(Pack::of(unit[u]).element, value);
#pragma unroll
                    for (int e = 0; e < Pack::kElements; ++e)
                        sum[u][e] = rank == 0 ? value[e] : team.op_.apply(sum[u][e], value[e]);
                }
            }
            uint4 result[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                Pack pack;
                narrow_all<T>(sum[u], pack.element, divisor);
                result[u] = pack.raw();
            }
            team.template store<all.value>(to, at, units, result);
        });
        for (uint64_t at = units * kUnit + threadIdx.x * sizeof(T); at < bytes; at += kThreads * sizeof(T)) {
            WideOf<T> sum{};
            for (int rank = 0; rank < from.ranks; ++rank) {
                const WideOf<T> value = widen(load_bytes<T>(source(from, rank) + at));
                sum = rank == 0 ? value : team.op_.apply(sum, value);
            }
            team.store_element(to, at, narrow<T>(sum, divisor));
        }
    }

    /// Calls body(std::bool_constant, at) with the units at, at + 32, … of each thread: true, where all are less than
    /// `units`. A warp has units that lie side by side, and all its threads are in a call, or none.
    template <int kUnroll, typename Body>
    static __device__ __forceinline__ void in_rounds(uint64_t units, const Body &body) {
        constexpr uint64_t kRound = uint64_t{kThreads} * kUnroll;
        const uint32_t lane = threadIdx.x % kWarp;
        const uint64_t whole = units / kRound * kRound;
        const uint64_t first = uint64_t{threadIdx.x - lane} * kUnroll + lane;
        for (uint64_t at = first; at < whole; at += kRound)
            body(std::true_type(), at);
        if (whole + first - lane < units)
            body(std::false_type(), whole + first);
    }

    /// By all threads of a warp. Of its first and its last line it writes its own bytes alone: the rest is others'.
    template <bool kAll, int kUnroll>
    __device__ __forceinline__ void store(const Targets &to, uint64_t at, uint64_t end,
                                          const uint4 (&unit)[kUnroll]) const {
        const uint32_t lane = threadIdx.x % kWarp;
        const auto there = [&](int u) { return kAll || at + u * kWarp < end; };
        uint4 line[kUnroll];
        uint32_t made = 0;  // `line` is for what begins so far beyond one; most targets lie alike
        this->to_each(to, [&](char *base) {
            const uint32_t beyond = beyond_unit(base);
            auto *data = reinterpret_cast<uint4 *>(base - beyond) + at;
            if (beyond == 0) {
#pragma unroll
                for (int u = 0; u < kUnroll; ++u)
                    if (there(u))
                        data[u * kWarp] = unit[u];
                return;
            }
            const uint32_t own = kUnit - beyond;  // bytes of a unit on its first line
            if (made != beyond) {
                made = beyond;
#pragma unroll
                for (int u = 0; u < kUnroll; ++u) {
                    const uint4 passed = u > 0 && lane == kWarp - 1 ? unit[u > 0 ? u - 1 : 0] : unit[u];
                    line[u] = joined(of_thread_before(passed), unit[u], own);
                }
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                if (there(u) && (u > 0 || lane > 0))
                    data[u * kWarp] = line[u];
            char *const place = base + at * kUnit;
            if (lane == 0 && there(0))
                store_part(place, unit[0], 0, own);
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                if ((kAll || there(u)) &&
                    ((u == kUnroll - 1 && lane == kWarp - 1) || (!kAll && at + u * kWarp + 1 == end)))
                    store_part(place + u * kWarp * kUnit + own, unit[u], own, beyond);
        });
    }
    static __device__ __forceinline__ uint4 of_thread_before(uint4 its) {
        constexpr uint32_t kAllThreads = ~0U;
        const uint32_t before = (threadIdx.x + kWarp - 1) % kWarp;
        return {__shfl_sync(kAllThreads, its.x, before), __shfl_sync(kAllThreads, its.y, before),
                __shfl_sync(kAllThreads, its.z, before), __shfl_sync(kAllThreads, its.w, before)};
    }
};

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) exchange_anywhere_kernel(const __grid_constant__ Job job) {
    TeamAnywhere<T, Op> team(job);
    run_exchange<kKindOf<Op>>(team, job, blockIdx.x);
}

}  // namespace flx::cuda
