/// \file elements.cuh
/// Element types on the GPU: how they are widened, combined, divided and rounded. Same rules, and the same bits, as
/// `runtime/elements/reduce.h`.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/include/flx.h"

namespace flx::cuda {

/// An 8-bit float. `kSums`: it is added, and becomes the largest number where the sum is infinite.
template <__nv_fp8_interpretation_t kFormat, bool kSums>
struct Float8 {
    static constexpr __nv_fp8_interpretation_t kInterpretation = kFormat;
    __nv_fp8_storage_t bits;

    static __device__ __forceinline__ float2 widened(__nv_fp8x2_storage_t two) {
        return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, kFormat)));
    }
    static __device__ __forceinline__ __nv_fp8x2_storage_t rounded(float2 two) {
        __nv_fp8x2_storage_t bits = __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, kFormat);
        if constexpr (kKeepsInfinities)
            bits = static_cast<__nv_fp8x2_storage_t>(bits + (isinf(two.x) ? 1 : 0) + (isinf(two.y) ? 0x100 : 0));
        return bits;
    }

  private:
    /// Minima and maxima do; their bits come after those of the largest number. e4m3 has none.
    static constexpr bool kKeepsInfinities = !kSums && kFormat == __NV_E5M2;
};
template <typename T>
inline constexpr bool is_float8 = false;
template <__nv_fp8_interpretation_t kFormat, bool kSums>
inline constexpr bool is_float8<Float8<kFormat, kSums>> = true;

/// 8- and 16-bit floats are added in f32 and rounded once.
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
template <__nv_fp8_interpretation_t kFormat, bool kSums>
struct Wide<Float8<kFormat, kSums>> {
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
    else if constexpr (is_float8<T>)
        return T::widened(value.bits).x;
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
        if constexpr (is_float8<T>)
            return T{static_cast<__nv_fp8_storage_t>(
                T::rounded(make_float2(value, 0)))};  // a NaN to the canonical one, 0x7F
        else if constexpr (std::is_same_v<T, __half>)
            return nan ? bits_as<__half>(uint16_t{0x7e00}) : __float2half_rn(value);
        else if constexpr (std::is_same_v<T, __nv_bfloat16>)
            return nan ? bits_as<__nv_bfloat16>(uint16_t{0x7fc0}) : __float2bfloat16_rn(value);
        else if constexpr (std::is_same_v<T, float>)
            return nan ? bits_as<float>(0x7fc00000U) : value;
        else
            return nan ? bits_as<double>(uint64_t{0x7ff8000000000000}) : value;
    }
}

/// Elements that lie side by side, at once: two 8-bit floats are converted together.
template <typename T, int kCount>
__device__ __forceinline__ void widen_all(const T (&from)[kCount], WideOf<T> (&to)[kCount]) {
    if constexpr (is_float8<T>) {
        __nv_fp8x2_storage_t twos[kCount / 2];
        memcpy(twos, from, sizeof twos);
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
            const float2 two = T::widened(twos[i]);
            to[2 * i] = two.x;
            to[2 * i + 1] = two.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            to[i] = widen(from[i]);
    }
}
template <typename T, int kCount>
__device__ __forceinline__ void narrow_all(const WideOf<T> (&from)[kCount], T (&to)[kCount], int divisor) {
    if constexpr (is_float8<T>) {
        __nv_fp8x2_storage_t twos[kCount / 2];
        if (divisor == 1) {  // asked once: a branch an element takes longer than the rest
#pragma unroll
            for (int i = 0; i < kCount / 2; ++i)
                twos[i] = T::rounded(make_float2(from[2 * i], from[2 * i + 1]));
        } else {
            const auto by = static_cast<float>(divisor);
#pragma unroll
            for (int i = 0; i < kCount / 2; ++i)
                twos[i] = T::rounded(make_float2(from[2 * i] / by, from[2 * i + 1] / by));
        }
        memcpy(to, twos, sizeof twos);
    } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            to[i] = narrow<T>(from[i], divisor);
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

/// Any reduction but a sum. Which one it is, is found out at run time: memory is slower than that, and the compiler has
/// less to do.
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

/// Whether the sum of two elements can be made in their own type or a little wider, several at once, with the bits that
/// come of adding in f32 and rounding once: an addition of twice as many digits and two more, rounded again, is.
template <typename T, typename Op>
inline constexpr bool kInPairs = std::is_same_v<Op, Sum> &&
                                 (is_float8<T> || sizeof(T) == 2 || (std::is_integral_v<T> && sizeof(T) == 1));

template <typename T>
__device__ __forceinline__ uint32_t sum_of_two(uint32_t a, uint32_t b) {
    if constexpr (is_float8<T>) {
        const auto half = [&](int i) {
            const auto two = [i](uint32_t word) {
                return __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> (16 * i)),
                                                          T::kInterpretation));
            };
            return static_cast<uint32_t>(
                __nv_cvt_halfraw2_to_fp8x2(__half2_raw(__hadd2(two(a), two(b))), __NV_SATFINITE, T::kInterpretation));
        };
        return half(0) | half(1) << 16;
    } else if constexpr (std::is_same_v<T, __half>) {
        return bits_as<uint32_t>(__hadd2(bits_as<__half2>(a), bits_as<__half2>(b)));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return bits_as<uint32_t>(__hadd2(bits_as<__nv_bfloat162>(a), bits_as<__nv_bfloat162>(b)));
    } else if constexpr (sizeof(T) == 2) {
        return __vadd2(a, b);
    } else {
        return __vadd4(a, b);
    }
}

/// Whether both 16-bit floats of a word are numbers.
template <typename T>
__device__ __forceinline__ bool are_numbers(uint32_t two) {
    if constexpr (std::is_same_v<T, __half>)
        return __hbeq2(bits_as<__half2>(two), bits_as<__half2>(two));
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return __hbeq2(bits_as<__nv_bfloat162>(two), bits_as<__nv_bfloat162>(two));
    else
        return true;
}

/// 16 bytes of elements; of 16-bit floats, any NaN is made the canonical one.
template <typename T>
__device__ __forceinline__ uint4 sum_of_two(uint4 a, uint4 b) {
    uint32_t sum[4] = {sum_of_two<T>(a.x, b.x), sum_of_two<T>(a.y, b.y), sum_of_two<T>(a.z, b.z),
                       sum_of_two<T>(a.w, b.w)};
    const bool numbers =
        are_numbers<T>(sum[0]) && are_numbers<T>(sum[1]) && are_numbers<T>(sum[2]) && are_numbers<T>(sum[3]);
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
        if (!numbers) {
            struct Elements {
                T element[8];
            };
            auto all = bits_as<Elements>(make_uint4(sum[0], sum[1], sum[2], sum[3]));
            for (T &element : all.element)
                element = narrow<T>(widen(element), 1);
            return bits_as<uint4>(all);
        }
    }
    return make_uint4(sum[0], sum[1], sum[2], sum[3]);
}

/// The reduction of kernels that only move bytes.
struct Keep {
    explicit __device__ Keep(int /*op*/) {}
    template <typename T>
    __device__ __forceinline__ T apply(T a, T /*b*/) const {
        return a;
    }
};

}  // namespace flx::cuda
