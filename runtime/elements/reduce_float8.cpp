// Reductions of 8-bit floats, for every SIMD target.
#include "runtime/elements/reduce_table.h"
#include "runtime/elements/reduce_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/elements/reduce_float8.cpp"
#include <hwy/foreach_target.h>
// Per target, hence after it.
#include "runtime/elements/reduce_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flx::HWY_NAMESPACE {
namespace {

/// The two formats. Shifted to the top of an f16's exponent, magnitudes of either are f16's own: e5m2 is the upper byte
/// of an f16, e4m3 has an exponent bit less and becomes 2^-8 times its value. Subnormals included; the NaN apart.
struct E4m3 {
    static constexpr int kBelow = 7;  ///< f16's bits below its last one
    static constexpr int16_t kLargest = 0x7E;
    static constexpr float kSmallest = 0x1p-17F;  ///< subnormal, times 2^-8
};
struct E5m2 {
    static constexpr int kBelow = 8;
    static constexpr int16_t kLargest = 0x7B;
    static constexpr float kSmallest = 0x1p-16F;
};

/// Division of sums, which may have more digits than an f16 holds.
template <class Format>
struct Float8Finish {
    explicit Float8Finish(int divisor) : active_(divisor > 1), divisor_(static_cast<float>(divisor)) {}

    [[nodiscard]] HWY_INLINE VF apply(VF v) const {
        if (!active_)
            return v;
        const DF d;
        const VF quotient = hn::Div(v, hn::Set(d, divisor_));
        // Below f16's normal numbers, whose last digits the way there would round, to the format's own steps: those are
        // the ulps of this number's binade.
        const VF magic = hn::Set(d, 0x1p23F * Format::kSmallest);
        const VF size = hn::Abs(quotient);
        const VF rounded = hn::CopySignToAbs(hn::Sub(hn::Add(size, magic), magic), quotient);
        return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0x1p-14F)), rounded, quotient);
    }

    bool active_;
    float divisor_;
};

/// Sets the last bit that an f16 keeps if any below is set, and clears those: what is rounded to f16 and then to fewer
/// digits is then rounded as if at once.
HWY_INLINE VF to_odd(VF v) {
    const DU du;
    const VU bits = hn::BitCast(du, v);
    const VU below = hn::Set(du, 0x1FFFu);
    return hn::BitCast(DF(), hn::AndNot(below, hn::Or(bits, hn::Add(hn::And(bits, below), below))));
}

/// Converts bytes in 16-bit lanes to f16, with the format's factor.
template <class Format, class V, class D = hn::DFromV<V>>
HWY_INLINE V to_halves(V bytes) {
    const D d;
    if constexpr (Format::kBelow == 8) {
        return hn::ShiftLeft<8>(bytes);
    } else {
        const hn::RebindToSigned<D> di;
        const V placed = hn::And(hn::BitCast(d, hn::ShiftRight<1>(hn::BitCast(di, hn::ShiftLeft<8>(bytes)))),
                                 hn::Set(d, uint16_t{0xBF80}));
        const V magnitude = hn::And(bytes, hn::Set(d, uint16_t{0x7F}));
        return hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, uint16_t{0x7F})), hn::Set(d, uint16_t{0x7E00}), placed);
    }
}

/// Converts f16 to bytes in 16-bit lanes, to nearest even. What is beyond the largest number, and an infinity, becomes
/// that number.
template <class Format, class V, class D = hn::DFromV<V>>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> from_halves(V halves) {
    const hn::RebindToSigned<D> d;
    const auto bits = hn::BitCast(d, halves);
    constexpr int kBelow = Format::kBelow;
    const auto magnitude = hn::And(bits, hn::Set(d, int16_t{0x7FFF}));
    const auto odd = hn::And(hn::ShiftRight<kBelow>(magnitude), hn::Set(d, int16_t{1}));
    const auto half = hn::Set(d, static_cast<int16_t>((1 << (kBelow - 1)) - 1));
    const auto rounded = hn::ShiftRight<kBelow>(hn::Add(magnitude, hn::Add(odd, half)));
    const auto limited = hn::Min(rounded, hn::Set(d, Format::kLargest));
    const auto sign = hn::And(hn::ShiftRight<8>(bits), hn::Set(d, int16_t{0x80}));
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, int16_t{0x7C00})), hn::Set(d, int16_t{0x7F}),
                          hn::Or(limited, sign));
}

#if HWY_TARGET == HWY_SCALAR

template <class Format>
struct Float8Lanes {
    using Element = uint8_t;
    using R = Raw<uint8_t>;
    using Acc = VF;
    using Finish = Float8Finish<Format>;
    static constexpr bool kFinishes = false;  // unless it divides

    static HWY_INLINE Acc unpack(R::V raw) { return f16_to_f32(to_halves<Format>(hn::PromoteTo(DH(), raw))); }
    static HWY_INLINE R::V pack(Acc acc) { return hn::DemoteTo(R::D(), from_halves<Format>(f32_to_f16(to_odd(acc)))); }
    template <class Op>
    static HWY_INLINE Acc combine(Acc a, Acc b) {
        return Op::apply(DF(), a, b);
    }
    static HWY_INLINE Acc finish(Acc acc, const Finish &by) { return by.apply(acc); }
};

#else

/// Half a vector of bytes, which fills one of 16-bit lanes.
struct RawFloat8 {
    using D = hn::Rebind<uint8_t, hn::ScalableTag<uint16_t>>;
    using V = hn::Vec<D>;
    static constexpr size_t kBytes = HWY_LANES(uint16_t);

    static HWY_INLINE V load(const uint8_t *from) { return hn::LoadU(D(), from); }
    static HWY_INLINE V load_first(const uint8_t *from, size_t n) {
        alignas(64) uint8_t buffer[kBytes] = {};
        copy_few<kBytes>(buffer, from, n);
        return load(buffer);
    }
    static HWY_INLINE void store(V v, uint8_t *to) { hn::StoreU(v, D(), to); }
    static HWY_INLINE void store_first(V v, uint8_t *to, size_t n) {
        alignas(64) uint8_t buffer[kBytes];
        store(v, buffer);
        copy_few<kBytes>(to, buffer, n);
    }
    static HWY_INLINE void stream(V v, uint8_t *to) {
        if constexpr (kBytes >= 16)
            hn::Stream(v, D(), to);
        else  // not of so few bytes
            store(v, to);
    }
};

template <class Format>
struct Float8Lanes {
    using Element = uint8_t;
    using R = RawFloat8;
    using Acc = TwoFloats;
    using Finish = Float8Finish<Format>;
    static constexpr bool kFinishes = false;  // unless it divides

    static HWY_INLINE Acc unpack(R::V raw) {
        const auto halves = to_halves<Format>(hn::PromoteTo(D16(), raw));
        return {f16_to_f32(hn::LowerHalf(DH(), halves)), f16_to_f32(hn::UpperHalf(DH(), halves))};
    }
    static HWY_INLINE R::V pack(const Acc &acc) {
        const auto halves = hn::Combine(D16(), f32_to_f16(to_odd(acc.high)), f32_to_f16(to_odd(acc.low)));
        return hn::DemoteTo(R::D(), from_halves<Format>(halves));
    }
    template <class Op>
    static HWY_INLINE Acc combine(const Acc &a, const Acc &b) {
        return {Op::apply(DF(), a.low, b.low), Op::apply(DF(), a.high, b.high)};
    }
    static HWY_INLINE Acc finish(const Acc &acc, const Finish &by) { return {by.apply(acc.low), by.apply(acc.high)}; }

  private:
    using D16 = hn::ScalableTag<uint16_t>;
};

#endif

}  // namespace

/// The target.
int64_t fill_float8s(ReduceTable &table) {
    fill_without_products<Float8Lanes<E4m3>, OrderedLanes<int8_t, 0x7E, 0x7F>>(table, FLX_F8E4M3);
    fill_without_products<Float8Lanes<E5m2>, OrderedLanes<int8_t, 0x7C, 0x7F>>(table, FLX_F8E5M2);
    return HWY_TARGET;
}

}  // namespace flx::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flx {
HWY_EXPORT(fill_float8s);

void fill_float8_kernels(ReduceTable &table) {
    // Averages, whose sums are the same, keep the kernels of the target.
    if (HWY_DYNAMIC_DISPATCH(fill_float8s)(table) == HWY_AVX3)
        use_f16_for_sums(table);
}
}  // namespace flx
#endif
