/// \file elements.cuh
/// Element types on the GPU: how they are widened, combined, divided and rounded. Same rules, and the same bits, as
/// `runtime/reduce.h`.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "flx.h"

namespace flx::cuda {

/// 16-bit floats are added in f32 and rounded once.
template <typename T>
struct Wide {
    using Type = T;
};
template <>
struct Wide<__half> {
    using Type = float;
};
template <>
struct Wide<__nv_bfloat16> {
    using Type = float;
};
template <typename T>
using WideOf = typename Wide<T>::Type;

template <typename T>
__device__ __forceinline__ WideOf<T> widen(T value) {
    if constexpr (std::is_same_v<T, __half>)
        return __half2float(value);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return __bfloat162float(value);
    else
        return value;
}

template <typename To, typename From>
__device__ __forceinline__ To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/// Divides (averages), rounds, and makes every NaN the canonical one: GPUs make others than CPUs do.
template <typename T>
__device__ __forceinline__ T narrow(WideOf<T> value, int divisor) {
    if constexpr (std::is_integral_v<T>) {
        return divisor == 1 ? value : static_cast<T>(value / static_cast<T>(divisor));
    } else {
        if (divisor != 1)
            value = value / static_cast<WideOf<T>>(divisor);
        const bool nan = value != value;
        if constexpr (std::is_same_v<T, __half>)
            return nan ? bits_as<__half>(uint16_t{0x7e00}) : __float2half_rn(value);
        else if constexpr (std::is_same_v<T, __nv_bfloat16>)
            return nan ? bits_as<__nv_bfloat16>(uint16_t{0x7fc0}) : __float2bfloat16_rn(value);
        else if constexpr (std::is_same_v<T, float>)
            return nan ? bits_as<float>(0x7fc00000U) : value;
        else
            return nan ? bits_as<double>(uint64_t{0x7ff8000000000000}) : value;
    }
}

/// Integers wrap: they are combined as unsigned ones of at least 32 bits.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Sum {
    explicit __device__ Sum(int /*op*/) {}
    template <typename T>
    __device__ __forceinline__ T apply(T a, T b) const {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
        else
            return a + b;
    }
};

/// A NaN anywhere gives a NaN; -0 is less than +0.
template <typename T>
__device__ __forceinline__ T extreme(T a, T b, bool less) {
    if constexpr (std::is_integral_v<T>) {
        return (a < b) == less ? a : b;
    } else {
        const bool first = a == b ? (signbit(a) != 0) == less : (a < b) == less;
        return a != a || (b == b && first) ? a : b;
    }
}

/// Which one of the others is a question at run time: memory is slower than the answer, and the compiler has less to
/// do.
struct NotSum {
    explicit __device__ NotSum(int op) : product_(op == FLX_PROD), less_(op == FLX_MIN) {}
    template <typename T>
    __device__ __forceinline__ T apply(T a, T b) const {
        const T product = [&] {
            if constexpr (std::is_integral_v<T>)
                return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
            else
                return a * b;
        }();
        return product_ ? product : extreme(a, b, less_);
    }

  private:
    bool product_;
    bool less_;
};

/// Of kernels that only move bytes.
struct Keep {
    explicit __device__ Keep(int /*op*/) {}
    template <typename T>
    __device__ __forceinline__ T apply(T a, T /*b*/) const {
        return a;
    }
};

}  // namespace flx::cuda
