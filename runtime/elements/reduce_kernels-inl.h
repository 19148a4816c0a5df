// Kernels of reductions for one SIMD target; included once per target by the files that instantiate them.
//
// Everything works on *units*: the bytes of one raw vector. A `Lanes` policy says how a unit is unpacked into what is
// combined (`Acc`: one vector, or two of f32 for a unit of 16-bit floats), how two of them are combined, and how the
// result is finished (canonical NaN, division) and packed again. Rests shorter than a unit run through the very same
// vector code, so that an element's bits depend neither on where it lies nor on how a range was cut.

#if defined(FLX_REDUCE_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FLX_REDUCE_KERNELS_INL_H
#undef FLX_REDUCE_KERNELS_INL_H
#else
#define FLX_REDUCE_KERNELS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

// Highway's own conversion from f32 to f16 truncates before AVX2.
#define FLX_HARDWARE_F16 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)

HWY_BEFORE_NAMESPACE();
namespace flx::HWY_NAMESPACE {
// Each including file has its own copies: two of them must not be merged by the linker.
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// ---------------------------------------------------------------- bytes to vectors and back

/// Copies n < kLimit bytes, kLimit a power of two. Inline, since a call costs more than the copy.
template <size_t kLimit>
HWY_INLINE void copy_few(uint8_t *dst, const uint8_t *src, size_t n) {
    if constexpr (kLimit > 1) {
        constexpr size_t kHalf = kLimit / 2;
        if (n & kHalf) {
            std::memcpy(dst, src, kHalf);
            dst += kHalf;
            src += kHalf;
        }
        copy_few<kHalf>(dst, src, n);
    }
}

/// The raw vectors of lanes T: loads and stores at any alignment, whole or of the first n bytes.
template <typename T>
struct Raw {
    using D = hn::ScalableTag<T>;
    using V = hn::Vec<D>;
    static constexpr size_t kBytes = HWY_LANES(T) * sizeof(T);

    static HWY_INLINE V load(const uint8_t *from) {
#if HWY_TARGET == HWY_SCALAR  // dereferences, which needs alignment
        T value;
        std::memcpy(&value, from, sizeof(T));
        return hn::Set(D(), value);
#else
        return hn::LoadU(D(), reinterpret_cast<const T *>(from));
#endif
    }

    static HWY_INLINE V load_first(const uint8_t *from, size_t n) {
#if HWY_TARGET == HWY_AVX3
        if (n == 8)
            return low_lane<uint64_t>(from);
        if (n == 4)
            return low_lane<uint32_t>(from);
        const hn::ScalableTag<uint8_t> d8;
        return hn::BitCast(D(), hn::MaskedLoad(hn::FirstN(d8, n), d8, from));
#else
        alignas(64) uint8_t buffer[kBytes] = {};
        copy_few<kBytes>(buffer, from, n);
        return load(buffer);
#endif
    }

    static HWY_INLINE void store(V v, uint8_t *to) {
#if HWY_TARGET == HWY_SCALAR
        const T value = hn::GetLane(v);
        std::memcpy(to, &value, sizeof(T));
#else
        hn::StoreU(v, D(), reinterpret_cast<T *>(to));
#endif
    }

    static HWY_INLINE void store_first(V v, uint8_t *to, size_t n) {
#if HWY_TARGET == HWY_AVX3
        if (n == 8 || n == 4) {
            const uint64_t low = hn::GetLane(hn::BitCast(hn::ScalableTag<uint64_t>(), v));
            std::memcpy(to, &low, n == 8 ? 8 : 4);
            return;
        }
        const hn::ScalableTag<uint8_t> d8;
        hn::BlendedStore(hn::BitCast(d8, v), hn::FirstN(d8, n), d8, to);
#else
        alignas(64) uint8_t buffer[kBytes];
        store(v, buffer);
        copy_few<kBytes>(to, buffer, n);
#endif
    }

    /// `to` is a multiple of kBytes.
    static HWY_INLINE void stream(V v, uint8_t *to) {
        hn::Stream(v, D(), reinterpret_cast<T *>(to));
    }

#if HWY_TARGET == HWY_AVX3
  private:
    /// One or two numbers that were just written: a masked load would wait until they are in the cache.
    template <typename Lane>
    static HWY_INLINE V low_lane(const uint8_t *from) {
        const hn::ScalableTag<Lane> d;
        Lane value;
        std::memcpy(&value, from, sizeof(Lane));
        return hn::BitCast(D(), hn::IfThenElseZero(hn::FirstN(d, 1), hn::Set(d, value)));
    }
#endif
};

// ---------------------------------------------------------------- reductions of two vectors

struct Sum {
    static constexpr bool kOrders = false;
    template <class D, class V = hn::Vec<D>>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::Add(a, b);
    }
};

struct Prod {
    static constexpr bool kOrders = false;
    template <class D, class V = hn::Vec<D>>
    static HWY_INLINE V apply(D d, V a, V b) {
#if HWY_TARGET != HWY_SCALAR
        if constexpr (sizeof(hn::TFromD<D>) == 1) {  // no target multiplies bytes: twice the 16-bit lanes
            const hn::Repartition<uint16_t, D> d16;
            const auto a16 = hn::BitCast(d16, a);
            const auto b16 = hn::BitCast(d16, b);
            const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, 0x00FF));
            const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
            return hn::BitCast(d, hn::Or(even, odd));
        } else
#endif
        {
            (void)d;
            return hn::Mul(a, b);
        }
    }
};

// Minimum and maximum of floats. Of equal operands only zeros differ in their bits (the sign), and of unordered ones
// the two selections give both operands; so the bitwise combination of both selections is right for zeros and, where an
// operand is NaN, still a NaN (all exponent bits, some mantissa bit), which `finish` makes canonical.
struct Min {
    static constexpr bool kOrders = true;
    template <class D, class V = hn::Vec<D>>
    static HWY_INLINE V apply(D, V a, V b) {
        if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
            return hn::Or(hn::IfThenElse(hn::Lt(a, b), a, b), hn::IfThenElse(hn::Lt(b, a), b, a));
        } else {
            return hn::Min(a, b);
        }
    }
};

struct Max {
    static constexpr bool kOrders = true;
    template <class D, class V = hn::Vec<D>>
    static HWY_INLINE V apply(D d, V a, V b) {
        if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
            const V first = hn::IfThenElse(hn::Lt(b, a), a, b);
            const V second = hn::IfThenElse(hn::Lt(a, b), b, a);
            // The sign is the And of both, every other bit the Or.
            return hn::Or(hn::And(first, second), hn::AndNot(hn::SignBit(d), hn::Or(first, second)));
        } else {
            return hn::Max(a, b);
        }
    }
};

// ---------------------------------------------------------------- integers

/// Division towards zero by a number that stays the same, without the slow integer division where another is exact.
template <typename T>
class Divider {
  public:
    explicit Divider(int divisor) : active_(divisor > 1) {
        if constexpr (sizeof(T) < 8) {
            divisor_ = static_cast<Real>(divisor);
        } else if (active_) {
            // Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994, figure 4.1.
            const auto d = static_cast<uint64_t>(divisor);
            const int log = std::bit_width(d - 1);
            multiplier_ = static_cast<uint64_t>((static_cast<Wide>((uint64_t{1} << log) - d) << 64) / d) + 1;
            shift_ = log - 1;
        }
    }

    [[nodiscard]] HWY_INLINE bool active() const { return active_; }

    HWY_INLINE T operator()(T x) const {
        if constexpr (sizeof(T) < 8) {
            // The quotient's distance from the next integer, if any, is more than a float's (double's) rounding for
            // 16-bit (32-bit) x; so truncating the rounded quotient is exact.
            return static_cast<T>(
                static_cast<std::conditional_t<sizeof(T) == 4, int64_t, int32_t>>(static_cast<Real>(x) / divisor_));
        } else if constexpr (std::is_signed_v<T>) {
            const uint64_t sign = x < 0 ? ~uint64_t{0} : 0;
            return static_cast<T>((magnitude((static_cast<uint64_t>(x) ^ sign) - sign) ^ sign) - sign);
        } else {
            return magnitude(x);
        }
    }

  private:
    using Real = std::conditional_t<sizeof(T) == 4, double, float>;
    __extension__ using Wide = unsigned __int128;

    [[nodiscard]] HWY_INLINE uint64_t magnitude(uint64_t x) const {
        const auto high = static_cast<uint64_t>((static_cast<Wide>(multiplier_) * x) >> 64);
        return (high + ((x - high) >> 1)) >> shift_;
    }

    bool active_;
    Real divisor_ = 1;
    uint64_t multiplier_ = 0;
    int shift_ = 0;
};

/// T: the element's type. Sums and products wrap, so they are those of the unsigned type.
template <typename T>
struct IntegerLanes {
    using Element = T;
    using R = Raw<T>;
    using Acc = typename R::V;
    using Finish = Divider<T>;
    static constexpr bool kFinishes = false;  // unless it divides

    static HWY_INLINE Acc unpack(Acc raw) { return raw; }
    static HWY_INLINE Acc pack(Acc acc) { return acc; }

    template <class Op>
    static HWY_INLINE Acc combine(Acc a, Acc b) {
        const typename R::D d;
        if constexpr (Op::kOrders) {
            return Op::apply(d, a, b);
        } else {
            const hn::RebindToUnsigned<typename R::D> du;
            return hn::BitCast(d, Op::apply(du, hn::BitCast(du, a), hn::BitCast(du, b)));
        }
    }

    static HWY_INLINE Acc finish(Acc acc, const Finish &divider) {
        if (!divider.active())
            return acc;
        alignas(64) T lanes[kLanes];
        hn::Store(acc, typename R::D(), lanes);
        divide(lanes, divider);
        return hn::Load(typename R::D(), lanes);
    }

  private:
    static constexpr size_t kLanes = R::kBytes / sizeof(T);

    /// Not inline: a kernel finishes at a dozen places, and dividing takes far longer than the call.
    static HWY_NOINLINE void divide(T *lanes, const Finish &divider) {
        for (size_t i = 0; i < kLanes; ++i)
            lanes[i] = divider(lanes[i]);
    }
};

// ---------------------------------------------------------------- floats

/// Division of floats: IEEE's, by the divisor rounded to the type.
template <typename T>
struct FloatFinish {
    explicit FloatFinish(int divisor) : active_(divisor > 1), divisor_(static_cast<T>(divisor)) {}

    /// Divides if asked to, and replaces any NaN by the canonical one: which operand's NaN the hardware passes on
    /// depends on the order in which the compiler put them.
    template <class V>
    [[nodiscard]] HWY_INLINE V apply(V v) const {
        using D = hn::DFromV<V>;
        const D d;
        if (active_)
            v = hn::Div(v, hn::Set(d, divisor_));
        const hn::RebindToUnsigned<D> du;
        constexpr auto kQuiet =
            static_cast<hn::TFromD<decltype(du)>>(sizeof(T) == 4 ? 0x7FC00000u : 0x7FF8000000000000u);
        return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, kQuiet)), v);
    }

    bool active_;
    T divisor_;
};

template <typename T>
struct FloatLanes {
    using Element = T;
    using R = Raw<T>;
    using Acc = typename R::V;
    using Finish = FloatFinish<T>;
    static constexpr bool kFinishes = true;

    static HWY_INLINE Acc unpack(Acc raw) { return raw; }
    static HWY_INLINE Acc pack(Acc acc) { return acc; }
    template <class Op>
    static HWY_INLINE Acc combine(Acc a, Acc b) {
        return Op::apply(typename R::D(), a, b);
    }
    static HWY_INLINE Acc finish(Acc acc, const Finish &by) { return by.apply(acc); }
};

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

/// Two vectors of f32.
struct TwoFloats {
    VF low, high;
};

/// A unit is 32-bit lanes with two elements each: the low halves make one vector of f32, the high halves the other.
struct Bf16Lanes {
    using Element = uint16_t;
    using R = Raw<uint32_t>;
    using Acc = TwoFloats;
    using Finish = FloatFinish<float>;
    static constexpr bool kFinishes = true;

    static HWY_INLINE Acc unpack(VU raw) {
        const DU du;
        return {hn::BitCast(DF(), hn::ShiftLeft<16>(raw)), hn::BitCast(DF(), hn::And(raw, hn::Set(du, 0xFFFF0000u)))};
    }

    static HWY_INLINE VU pack(const Acc &acc) {
        const VU low = hn::ShiftRight<16>(round(acc.low));
#if HWY_TARGET == HWY_SCALAR
        return hn::Or(low, hn::And(round(acc.high), hn::Set(DU(), 0xFFFF0000u)));
#else
        const hn::Repartition<uint16_t, DU> d16;
        return hn::BitCast(DU(), hn::OddEven(hn::BitCast(d16, round(acc.high)), hn::BitCast(d16, low)));
#endif
    }

    template <class Op>
    static HWY_INLINE Acc combine(const Acc &a, const Acc &b) {
        return {Op::apply(DF(), a.low, b.low), Op::apply(DF(), a.high, b.high)};
    }
    static HWY_INLINE Acc finish(const Acc &acc, const Finish &by) {
        return {by.apply(acc.low), by.apply(acc.high)};
    }

  private:
    /// Rounds to nearest even, in the upper 16 bits; the lower ones are left over. The canonical NaN stays as it is.
    static HWY_INLINE VU round(VF v) {
        const DU du;
        const VU bits = hn::BitCast(du, v);
        const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
        return hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
    }
};

using DH = hn::Rebind<uint16_t, DF>;  // as many 16-bit lanes as a vector of f32 has
using VH = hn::Vec<DH>;

#if FLX_HARDWARE_F16

HWY_INLINE VF f16_to_f32(VH half) {
    return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
}
HWY_INLINE VH f32_to_f16(VF v) {
    return hn::BitCast(DH(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v));
}

#else

HWY_INLINE VF f16_to_f32(VH half) {
    const DF df;
    const DU du;
    const hn::RebindToSigned<DF> di;
    const VU bits = hn::PromoteTo(du, half);
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
    const VU sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto as_int = hn::BitCast(di, magnitude);
    // Exponents differ by 112; infinity and NaN by 224.
    const auto infinite = hn::Gt(as_int, hn::Set(di, 0x7BFF));
    const auto rebias = hn::IfThenElse(infinite, hn::Set(di, 224 << 23), hn::Set(di, 112 << 23));
    const auto normal = hn::Add(hn::ShiftLeft<13>(as_int), rebias);
    const VF subnormal = hn::Mul(hn::ConvertTo(df, as_int), hn::Set(df, 0x1p-24f));
    const auto value = hn::IfThenElse(hn::Lt(as_int, hn::Set(di, 0x400)), hn::BitCast(di, subnormal), normal);
    return hn::BitCast(df, hn::Or(hn::BitCast(du, value), sign));
}

/// Converts to nearest even. A NaN becomes the canonical one.
HWY_INLINE VH f32_to_f16(VF v) {
    const DF df;
    const DU du;
    const hn::RebindToSigned<DF> di;
    const VU bits = hn::BitCast(du, v);
    const VU sign = hn::And(bits, hn::Set(du, 0x80000000u));
    const auto magnitude = hn::BitCast(di, hn::Xor(bits, sign));
    // All from 2^16 up rounds to infinity as 2^16 itself does.
    const auto capped = hn::Min(magnitude, hn::Set(di, 0x47800000));
    const auto odd = hn::And(hn::ShiftRight<13>(capped), hn::Set(di, 1));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(capped, odd), hn::Set(di, 0xFFF - (112 << 23))));
    // The ulp of [0.5, 1) in f32 is f16's smallest subnormal, so this addition rounds to it.
    const auto half = hn::Set(df, 0.5f);
    const auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, capped), half)), hn::BitCast(di, half));
    auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
    value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), hn::Set(di, 0x7E00), value);
    return hn::DemoteTo(DH(), hn::Or(value, hn::BitCast(di, hn::ShiftRight<16>(sign))));
}

#endif

#if HWY_TARGET == HWY_SCALAR

struct F16Lanes {
    using Element = uint16_t;
    using R = Raw<uint16_t>;
    using Acc = VF;
    using Finish = FloatFinish<float>;
    static constexpr bool kFinishes = true;

    static HWY_INLINE Acc unpack(VH raw) { return f16_to_f32(raw); }
    static HWY_INLINE VH pack(Acc acc) { return f32_to_f16(acc); }
    template <class Op>
    static HWY_INLINE Acc combine(Acc a, Acc b) {
        return Op::apply(DF(), a, b);
    }
    static HWY_INLINE Acc finish(Acc acc, const Finish &by) { return by.apply(acc); }
};

#else

struct TwoHalves {
    VH low, high;
};

/// A unit of 16-bit floats in two loads: conversion straight from memory costs less than taking a vector apart.
struct RawHalves {
    using V = TwoHalves;
    using Whole = Raw<uint16_t>;
    static constexpr size_t kBytes = Whole::kBytes;

    static HWY_INLINE V load(const uint8_t *from) {
        return {hn::LoadU(DH(), reinterpret_cast<const uint16_t *>(from)),
                hn::LoadU(DH(), reinterpret_cast<const uint16_t *>(from + kBytes / 2))};
    }
    static HWY_INLINE V load_first(const uint8_t *from, size_t n) {
        const Whole::V whole = Whole::load_first(from, n);
        return {hn::LowerHalf(DH(), whole), hn::UpperHalf(DH(), whole)};
    }
    static HWY_INLINE void store(const V &v, uint8_t *to) {
        hn::StoreU(v.low, DH(), reinterpret_cast<uint16_t *>(to));
        hn::StoreU(v.high, DH(), reinterpret_cast<uint16_t *>(to + kBytes / 2));
    }
    static HWY_INLINE void store_first(const V &v, uint8_t *to, size_t n) {
        Whole::store_first(hn::Combine(Whole::D(), v.high, v.low), to, n);
    }
    static HWY_INLINE void stream(const V &v, uint8_t *to) {
        Whole::stream(hn::Combine(Whole::D(), v.high, v.low), to);
    }
};

struct F16Lanes {
    using Element = uint16_t;
    using R = RawHalves;
    using Acc = TwoFloats;
    using Finish = FloatFinish<float>;
    static constexpr bool kFinishes = true;

    static HWY_INLINE Acc unpack(const TwoHalves &raw) { return {f16_to_f32(raw.low), f16_to_f32(raw.high)}; }
    static HWY_INLINE TwoHalves pack(const Acc &acc) { return {f32_to_f16(acc.low), f32_to_f16(acc.high)}; }
    template <class Op>
    static HWY_INLINE Acc combine(const Acc &a, const Acc &b) {
        return {Op::apply(DF(), a.low, b.low), Op::apply(DF(), a.high, b.high)};
    }
    static HWY_INLINE Acc finish(const Acc &acc, const Finish &by) { return {by.apply(acc.low), by.apply(acc.high)}; }
};

#endif

/// Minimum and maximum of 8- and 16-bit floats, which need no conversion: with the bits below the sign inverted in
/// negative numbers, floats are ordered as integers are, -0 before +0. T: the integer; `kInfinity`: the bits above
/// which a magnitude is NaN; `kQuiet`: the canonical NaN.
template <typename T, T kInfinity, T kQuiet>
struct OrderedLanes {
    using Element = std::make_unsigned_t<T>;
    using R = Raw<T>;
    using Acc = typename R::V;
    struct Finish {
        explicit Finish(int) {}
    };
    static constexpr bool kFinishes = false;

    static HWY_INLINE Acc unpack(Acc raw) { return raw; }
    static HWY_INLINE Acc pack(Acc acc) { return acc; }
    template <class Op>
    static HWY_INLINE Acc combine(Acc a, Acc b) {
        const typename R::D d;
        const Acc below_sign = hn::Set(d, kBelowSign);
        const Acc larger = hn::Max(hn::And(a, below_sign), hn::And(b, below_sign));
        const Acc result = flip(Op::apply(d, flip(a), flip(b)));
        return hn::IfThenElse(hn::Gt(larger, hn::Set(d, kInfinity)), hn::Set(d, kQuiet), result);
    }
    static HWY_INLINE Acc finish(Acc acc, const Finish &) { return acc; }

  private:
    static constexpr T kBelowSign = std::numeric_limits<T>::max();
    /// Converts between float bits and ordered integers, either way.
    static HWY_INLINE Acc flip(Acc v) {
        return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), hn::Set(typename R::D(), kBelowSign)));
    }
};

// ---------------------------------------------------------------- loops over memory

/// What copy_streaming does, for this target.
void copy_bypassing(void *dst, const void *src, size_t bytes) {
    using R = Raw<uint8_t>;
    auto *to = static_cast<uint8_t *>(dst);
    const auto *from = static_cast<const uint8_t *>(src);
    if (HWY_TARGET == HWY_SCALAR || bytes < 256) {
        std::memcpy(to, from, bytes);
        return;
    }
    const size_t head = -reinterpret_cast<uintptr_t>(to) % 64;
    std::memcpy(to, from, head);
    size_t i = head;
    // Several pages side by side: what fetches ahead does so within each of them. Some lines of each at a time: with
    // one, stores to so many pages in turn take some processors four times as long (4 instead of 17 GB/s on an EPYC
    // 7003). Eight: on an EPYC 9004 15 GB/s from the cache and 10 from memory, with four 13.5 and 9, one after the
    // other 12.8 and 10.3.
    constexpr size_t kPage = 4096;
    constexpr size_t kPages = 8;
    constexpr size_t kPart = 256;
    constexpr size_t kStep = 2 * R::kBytes;
    static_assert(kPage % kPart == 0 && kPart % kStep == 0);
    for (; i + kPages * kPage <= bytes; i += kPages * kPage) {
        for (size_t part = i; part < i + kPage; part += kPart) {
            for (size_t page = part; page < part + kPages * kPage; page += kPage) {
                for (size_t at = page; at < page + kPart; at += kStep) {
                    const auto v0 = R::load(from + at);
                    const auto v1 = R::load(from + at + R::kBytes);
                    R::stream(v0, to + at);
                    R::stream(v1, to + at + R::kBytes);
                }
            }
        }
    }
    for (; i + 4 * R::kBytes <= bytes; i += 4 * R::kBytes) {
        const auto v0 = R::load(from + i);
        const auto v1 = R::load(from + i + R::kBytes);
        const auto v2 = R::load(from + i + 2 * R::kBytes);
        const auto v3 = R::load(from + i + 3 * R::kBytes);
        R::stream(v0, to + i);
        R::stream(v1, to + i + R::kBytes);
        R::stream(v2, to + i + 2 * R::kBytes);
        R::stream(v3, to + i + 3 * R::kBytes);
    }
    std::memcpy(to + i, from + i, bytes - i);
    hwy::FlushStream();
}

/// One unit of reduce_pair, in registers.
template <class Lanes, class Op, class V = typename Lanes::R::V>
HWY_INLINE V pair_unit(V a, V b, const typename Lanes::Finish &finish) {
    auto acc = Lanes::template combine<Op>(Lanes::unpack(a), Lanes::unpack(b));
    if constexpr (Lanes::kFinishes)
        acc = Lanes::finish(acc, finish);
    return Lanes::pack(acc);
}

/// The kernel of reduce_pair.
template <class Lanes, class Op>
void pair_kernel(void *dst, const void *a, const void *b, size_t count) {
    using R = typename Lanes::R;
    constexpr size_t kUnit = R::kBytes;
    const size_t bytes = count * sizeof(typename Lanes::Element);
    auto *to = static_cast<uint8_t *>(dst);
    const auto *x = static_cast<const uint8_t *>(a);
    const auto *y = static_cast<const uint8_t *>(b);
    const typename Lanes::Finish finish(1);
    size_t i = 0;
    for (; i + 4 * kUnit <= bytes; i += 4 * kUnit) {
        const auto v0 = pair_unit<Lanes, Op>(R::load(x + i), R::load(y + i), finish);
        const auto v1 = pair_unit<Lanes, Op>(R::load(x + i + kUnit), R::load(y + i + kUnit), finish);
        const auto v2 = pair_unit<Lanes, Op>(R::load(x + i + 2 * kUnit), R::load(y + i + 2 * kUnit), finish);
        const auto v3 = pair_unit<Lanes, Op>(R::load(x + i + 3 * kUnit), R::load(y + i + 3 * kUnit), finish);
        R::store(v0, to + i);
        R::store(v1, to + i + kUnit);
        R::store(v2, to + i + 2 * kUnit);
        R::store(v3, to + i + 3 * kUnit);
    }
    for (; i + kUnit <= bytes; i += kUnit)
        R::store(pair_unit<Lanes, Op>(R::load(x + i), R::load(y + i), finish), to + i);
    if (const size_t rest = bytes - i; kUnit > sizeof(typename Lanes::Element) && rest > 0) {
        const auto v = pair_unit<Lanes, Op>(R::load_first(x + i, rest), R::load_first(y + i, rest), finish);
        R::store_first(v, to + i, rest);
    }
}

/// The whole tiles of reduce_many from byte `begin` on; returns where the first begins that does not end before `end`.
/// Each tile of four units is loaded from all sources before it is stored, so that `to` may be one of them. `kStream`:
/// `to + begin` is a multiple of 64. `kept`: null, or where the result goes as well.
template <class Lanes, class Op, bool kStream>
HWY_INLINE size_t many_tiles(uint8_t *to, uint8_t *kept, const uint8_t *const *sources, int n, size_t begin, size_t end,
                             const typename Lanes::Finish &finish) {
    using R = typename Lanes::R;
    constexpr size_t kUnit = R::kBytes;
    size_t i = begin;
    for (; i + 4 * kUnit <= end; i += 4 * kUnit) {
        const uint8_t *from = sources[0] + i;
        auto v0 = Lanes::unpack(R::load(from));
        auto v1 = Lanes::unpack(R::load(from + kUnit));
        auto v2 = Lanes::unpack(R::load(from + 2 * kUnit));
        auto v3 = Lanes::unpack(R::load(from + 3 * kUnit));
        for (int s = 1; s < n; ++s) {
            from = sources[s] + i;
            v0 = Lanes::template combine<Op>(v0, Lanes::unpack(R::load(from)));
            v1 = Lanes::template combine<Op>(v1, Lanes::unpack(R::load(from + kUnit)));
            v2 = Lanes::template combine<Op>(v2, Lanes::unpack(R::load(from + 2 * kUnit)));
            v3 = Lanes::template combine<Op>(v3, Lanes::unpack(R::load(from + 3 * kUnit)));
        }
        const auto w0 = Lanes::pack(Lanes::finish(v0, finish));
        const auto w1 = Lanes::pack(Lanes::finish(v1, finish));
        const auto w2 = Lanes::pack(Lanes::finish(v2, finish));
        const auto w3 = Lanes::pack(Lanes::finish(v3, finish));
        if constexpr (kStream) {
            R::stream(w0, to + i);
            R::stream(w1, to + i + kUnit);
            R::stream(w2, to + i + 2 * kUnit);
            R::stream(w3, to + i + 3 * kUnit);
        } else {
            R::store(w0, to + i);
            R::store(w1, to + i + kUnit);
            R::store(w2, to + i + 2 * kUnit);
            R::store(w3, to + i + 3 * kUnit);
        }
        if (kept != nullptr) {
            R::store(w0, kept + i);
            R::store(w1, kept + i + kUnit);
            R::store(w2, kept + i + 2 * kUnit);
            R::store(w3, kept + i + 3 * kUnit);
        }
    }
    return i;
}

/// What is less than a tile, from byte i to `end`.
template <class Lanes, class Op>
HWY_INLINE void many_units(uint8_t *to, uint8_t *kept, const uint8_t *const *sources, int n, size_t i, size_t end,
                           const typename Lanes::Finish &finish) {
    using R = typename Lanes::R;
    constexpr size_t kUnit = R::kBytes;
    for (; i + kUnit <= end; i += kUnit) {
        auto v = Lanes::unpack(R::load(sources[0] + i));
        for (int s = 1; s < n; ++s)
            v = Lanes::template combine<Op>(v, Lanes::unpack(R::load(sources[s] + i)));
        const auto w = Lanes::pack(Lanes::finish(v, finish));
        R::store(w, to + i);
        if (kept != nullptr)
            R::store(w, kept + i);
    }
    if (const size_t rest = end - i; kUnit > sizeof(typename Lanes::Element) && rest > 0) {
        auto v = Lanes::unpack(R::load_first(sources[0] + i, rest));
        for (int s = 1; s < n; ++s)
            v = Lanes::template combine<Op>(v, Lanes::unpack(R::load_first(sources[s] + i, rest)));
        const auto w = Lanes::pack(Lanes::finish(v, finish));
        R::store_first(w, to + i, rest);
        if (kept != nullptr)
            R::store_first(w, kept + i, rest);
    }
}

/// The kernel of reduce_many. `kDivides`: it divides if `divisor` > 1; otherwise there is no divisor.
template <class Lanes, class Op, bool kDivides = false>
void many_kernel(void *dst, const void *const *sources, int n, size_t count, int divisor, bool stream, void *kept) {
    if constexpr (!kDivides)
        divisor = 1;
    constexpr size_t kElement = sizeof(typename Lanes::Element);
    const size_t bytes = count * kElement;
    if (n == 1 && divisor <= 1) {
        if (kept != nullptr && bytes != 0)
            std::memcpy(kept, sources[0], bytes);
        if (bytes == 0 || dst == sources[0])
            return;
        if (stream)
            copy_bypassing(dst, sources[0], bytes);
        else
            std::memcpy(dst, sources[0], bytes);
        return;
    }
    auto *to = static_cast<uint8_t *>(dst);
    auto *copy = static_cast<uint8_t *>(kept);
    const auto *from = reinterpret_cast<const uint8_t *const *>(sources);
    const typename Lanes::Finish finish(divisor);
    const size_t head = -reinterpret_cast<uintptr_t>(to) % 64;  // less than a tile but for scalars
    const bool streams = stream && head % kElement == 0 && head < bytes;
    // In a loop for the code's sake: it makes up most of the library and of the time to compile it.
    size_t i = 0;
    for (size_t end = streams ? head : bytes;; end = bytes) {
        if (streams && i == head)
            i = many_tiles<Lanes, Op, true>(to, copy, from, n, i, end, finish);
        else
            i = many_tiles<Lanes, Op, false>(to, copy, from, n, i, end, finish);
        many_units<Lanes, Op>(to, copy, from, n, i, end, finish);
        if (end == bytes)
            break;
        i = end;
    }
    if (streams)
        hwy::FlushStream();
}

template <class Lanes, class Op>
void fill_op(ReduceTable &table, flx_dtype_t dtype, flx_op_t op) {
    table.pair[dtype][op] = pair_kernel<Lanes, Op>;
    table.many[dtype][op] = many_kernel<Lanes, Op>;
}

template <class Lanes>
void fill_order(ReduceTable &table, flx_dtype_t dtype) {
    fill_op<Lanes, Min>(table, dtype, FLX_MIN);
    fill_op<Lanes, Max>(table, dtype, FLX_MAX);
}

/// To be called after sums are entered: of two, the mean is the sum, which somebody else divides.
template <class Lanes>
void fill_mean(ReduceTable &table, flx_dtype_t dtype) {
    table.pair[dtype][FLX_AVG] = table.pair[dtype][FLX_SUM];
    table.many[dtype][FLX_AVG] = many_kernel<Lanes, Sum, true>;
}

/// Enters the kernels of one type but for products: sums by `Lanes`, minimum and maximum by `Ordering`.
template <class Lanes, class Ordering>
void fill_without_products(ReduceTable &table, flx_dtype_t dtype) {
    fill_op<Lanes, Sum>(table, dtype, FLX_SUM);
    fill_mean<Lanes>(table, dtype);
    fill_order<Ordering>(table, dtype);
}

/// Products too.
template <class Lanes, class Ordering = Lanes>
void fill_lanes(ReduceTable &table, flx_dtype_t dtype) {
    fill_without_products<Lanes, Ordering>(table, dtype);
    fill_op<Lanes, Prod>(table, dtype, FLX_PROD);
}

}  // namespace
}  // namespace flx::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
