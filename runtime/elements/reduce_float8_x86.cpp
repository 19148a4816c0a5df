// Sums of two vectors of 8-bit floats on x86 processors that add f16 (AVX512-FP16), which Highway 1.0 does not use.
// Each unit is 64 bytes: those with an even and those with an odd place, each widened to f16 within its 16 bits.
#include "runtime/elements/reduce_table.h"

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 17 : __GNUC__ >= 12)
#define FLX_ADDS_F16 1
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#else
#define FLX_ADDS_F16 0
#endif

namespace flx {

#if FLX_ADDS_F16

namespace {

#define FLX_WITH_F16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512fp16")))
#define FLX_UNIT FLX_WITH_F16 __attribute__((always_inline)) inline

constexpr size_t kUnit = 64;

FLX_UNIT __m512i all16(int value) {
    return _mm512_set1_epi16(static_cast<int16_t>(value));
}

/// Rounds f16 to nearest even, in the upper byte; what is larger than the largest number becomes that. The lower byte
/// is left over. kBelow: f16's bits below the format's last one, as in reduce_float8.cpp.
template <int kBelow>
FLX_UNIT __m512i rounded(__m512i halves) {
    constexpr int kLargest = kBelow == 8 ? 0x7BFF : 0x3F7F;
    const __m512i magnitude = _mm512_and_si512(halves, all16(0x7FFF));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(magnitude, kBelow), all16(1));
    __m512i sum = _mm512_add_epi16(_mm512_add_epi16(magnitude, odd), all16((1 << (kBelow - 1)) - 1));
    sum = _mm512_min_epu16(sum, all16(kLargest));
    if constexpr (kBelow == 7)
        sum = _mm512_slli_epi16(sum, 1);
    sum = _mm512_ternarylogic_epi64(sum, halves, all16(0x8000), 0xF8);  // sum | (halves & sign)
    if constexpr (kBelow == 8)
        sum = _mm512_mask_mov_epi16(sum, _mm512_cmpgt_epi16_mask(magnitude, all16(0x7C00)), all16(0x7F00));
    return sum;
}

FLX_UNIT __m512i added(__m512i a, __m512i b) {
    return _mm512_castph_si512(_mm512_add_ph(_mm512_castsi512_ph(a), _mm512_castsi512_ph(b)));
}

/// f16 has at least twice a sum's digits and two more, so that rounding to it first changes nothing.
template <int kBelow>
FLX_UNIT __m512i sum_of(__m512i a, __m512i b) {
    const __m512i upper = all16(0xFF00);
    __m512i even;
    __m512i odd;
    if constexpr (kBelow == 8) {
        even = added(_mm512_slli_epi16(a, 8), _mm512_slli_epi16(b, 8));
        odd = added(_mm512_and_si512(a, upper), _mm512_and_si512(b, upper));
    } else {
        const __m512i kept = all16(0xBF80);
        even = added(_mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(a, 8), 1), kept),
                     _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(b, 8), 1), kept));
        odd = added(_mm512_and_si512(_mm512_srai_epi16(a, 1), kept), _mm512_and_si512(_mm512_srai_epi16(b, 1), kept));
    }
    even = _mm512_srli_epi16(rounded<kBelow>(even), 8);
    odd = rounded<kBelow>(odd);
    const __m512i sum = _mm512_ternarylogic_epi64(even, odd, upper, 0xF8);  // even | (odd & upper)
    if constexpr (kBelow == 8)
        return sum;
    // e4m3 has a NaN where f16 has a number.
    const __m512i nan = _mm512_set1_epi8(0x7F);
    const __mmask64 any =
        _mm512_cmpeq_epi8_mask(_mm512_and_si512(a, nan), nan) | _mm512_cmpeq_epi8_mask(_mm512_and_si512(b, nan), nan);
    return _mm512_mask_mov_epi8(sum, any, nan);
}

/// Each unit is loaded before it is stored, so that `to` may be `a` or `b`. `kept`: null, or as in reduce_many.
template <int kBelow, bool kStream>
FLX_WITH_F16 void sum_range(uint8_t *to, uint8_t *kept, const uint8_t *a, const uint8_t *b, size_t bytes) {
    size_t i = 0;
    for (; i + kUnit <= bytes; i += kUnit) {
        const __m512i sum = sum_of<kBelow>(_mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i));
        if constexpr (kStream)
            _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i), sum);
        else
            _mm512_storeu_si512(to + i, sum);
        if (kept != nullptr)
            _mm512_storeu_si512(kept + i, sum);
    }
    if (i < bytes) {
        const __mmask64 rest = ~uint64_t{0} >> (kUnit - (bytes - i));
        const __m512i sum = sum_of<kBelow>(_mm512_maskz_loadu_epi8(rest, a + i), _mm512_maskz_loadu_epi8(rest, b + i));
        _mm512_mask_storeu_epi8(to + i, rest, sum);
        if (kept != nullptr)
            _mm512_mask_storeu_epi8(kept + i, rest, sum);
    }
}

template <int kBelow>
void sum_pair(void *dst, const void *a, const void *b, size_t count) {
    sum_range<kBelow, false>(static_cast<uint8_t *>(dst), nullptr, static_cast<const uint8_t *>(a),
                             static_cast<const uint8_t *>(b), count);
}

/// The kernel that adds more than two vectors, in f32.
template <int kBelow>
ManyKernel by_f32 = nullptr;

template <int kBelow>
void sum_many(void *dst, const void *const *sources, int n, size_t count, int divisor, bool stream, void *kept) {
    if (n != 2)
        return by_f32<kBelow>(dst, sources, n, count, divisor, stream, kept);
    auto *to = static_cast<uint8_t *>(dst);
    auto *copy = static_cast<uint8_t *>(kept);
    const auto *a = static_cast<const uint8_t *>(sources[0]);
    const auto *b = static_cast<const uint8_t *>(sources[1]);
    if (!stream)
        return sum_range<kBelow, false>(to, copy, a, b, count);
    const size_t head = std::min(-reinterpret_cast<uintptr_t>(to) % kUnit, count);
    sum_range<kBelow, false>(to, copy, a, b, head);
    sum_range<kBelow, true>(to + head, copy == nullptr ? nullptr : copy + head, a + head, b + head, count - head);
    _mm_sfence();
}

template <int kBelow>
void enter(ReduceTable &table, flx_dtype_t dtype) {
    by_f32<kBelow> = table.many[dtype][FLX_SUM];
    table.pair[dtype][FLX_SUM] = sum_pair<kBelow>;
    table.many[dtype][FLX_SUM] = sum_many<kBelow>;
}

}  // namespace

void use_f16_for_sums(ReduceTable &table) {
    if (__builtin_cpu_supports("avx512fp16") == 0)
        return;
    enter<7>(table, FLX_F8E4M3);
    enter<8>(table, FLX_F8E5M2);
}

#else

void use_f16_for_sums(ReduceTable &) {}

#endif

}  // namespace flx
