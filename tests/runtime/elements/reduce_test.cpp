// Reductions against a reference written element by element: integers in 128 bits, small floats through exact doubles.
#include "runtime/elements/reduce.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce_table.h"

namespace flx {
namespace {

__extension__ using Wide = __int128;
using Bytes = std::vector<uint8_t>;

constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000, 4097};

bool is_float(flx_dtype_t dtype) {
    return dtype >= FLX_F16;
}
bool is_signed(flx_dtype_t dtype) {
    return dtype == FLX_INT8 || dtype == FLX_INT16 || dtype == FLX_INT32 || dtype == FLX_INT64;
}

// ---------------------------------------------------------------- the reference

/// Value of a float with the given number of mantissa bits; every one is exact in a double.
double decode_small(uint64_t bits, int mantissa_bits, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1));
    const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1;
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
        value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        value = std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits), exponent - bias - mantissa_bits);
    return negative ? -value : value;
}

/// Rounds to nearest even.
uint64_t encode_small(double value, int mantissa_bits, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    const uint64_t sign = uint64_t{std::signbit(value)} << (mantissa_bits + exponent_bits);
    if (std::isnan(value))
        return infinity | (uint64_t{1} << (mantissa_bits - 1));
    value = std::fabs(value);
    if (std::isinf(value))
        return sign | infinity;
    int exponent = value == 0 ? 1 - bias : std::ilogb(value);
    exponent = std::max(exponent, 1 - bias);
    // The mantissa in units of the last place; nearbyint rounds to even. A carry moves into the exponent by itself.
    const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(value, mantissa_bits - exponent)));
    const bool subnormal = units < (uint64_t{1} << mantissa_bits);
    const uint64_t bits =
        subnormal ? units
                  : (static_cast<uint64_t>(exponent + bias) << mantissa_bits) + units - (uint64_t{1} << mantissa_bits);
    return sign | std::min(bits, infinity);
}

/// 8-bit floats: e4m3 uses what would be infinity and most NaNs for numbers.
double decode_float8(flx_dtype_t dtype, uint64_t bits) {
    if (dtype == FLX_F8E5M2)
        return decode_small(bits, 2, 5);
    if ((bits & 0x7F) == 0x7F)
        return std::numeric_limits<double>::quiet_NaN();
    if ((bits & 0x78) != 0x78)
        return decode_small(bits, 3, 4);
    const double magnitude = 256 * (1 + static_cast<double>(bits & 7) / 8);
    return bits & 0x80 ? -magnitude : magnitude;
}

/// By looking at all numbers for the nearest one, of two as near the one with the even bits. `keep`: infinities stay.
uint64_t encode_float8(flx_dtype_t dtype, double value, bool keep) {
    if (std::isnan(value))
        return 0x7F;
    const uint64_t sign = std::signbit(value) ? 0x80 : 0;
    if (keep && std::isinf(value))
        return sign | 0x7C;
    const uint64_t largest = dtype == FLX_F8E4M3 ? 0x7E : 0x7B;
    const double magnitude = std::min(std::fabs(value), decode_float8(dtype, largest));
    uint64_t best = 0;
    double error = magnitude;
    for (uint64_t bits = 1; bits <= largest; ++bits) {
        const double other = std::fabs(decode_float8(dtype, bits) - magnitude);
        if (other < error || (other == error && bits % 2 == 0)) {
            best = bits;
            error = other;
        }
    }
    return sign | best;
}

template <typename T>
T combine_float(flx_op_t op, T a, T b) {
    switch (op) {
        case FLX_PROD:
            return a * b;
        case FLX_MIN:
        case FLX_MAX: {
            if (std::isnan(a) || std::isnan(b))
                return std::numeric_limits<T>::quiet_NaN();
            if (a == 0 && b == 0) {
                const bool negative =
                    op == FLX_MIN ? std::signbit(a) || std::signbit(b) : std::signbit(a) && std::signbit(b);
                return negative ? -T{0} : T{0};
            }
            return op == FLX_MIN ? std::min(a, b) : std::max(a, b);
        }
        default:
            return a + b;
    }
}

template <typename T>
T reduce_floats(flx_op_t op, const std::vector<T> &values, int divisor) {
    T result = values[0];
    for (size_t s = 1; s < values.size(); ++s)
        result = combine_float(op, result, values[s]);
    if (divisor > 1)
        result /= static_cast<T>(divisor);
    return result;
}

/// Sign- or zero-extends an element's bits.
Wide widen(flx_dtype_t dtype, uint64_t bits) {
    const int width = 8 * static_cast<int>(size_of(dtype));
    Wide value = bits;
    if (is_signed(dtype) && ((bits >> (width - 1)) & 1))
        value -= Wide{1} << width;
    return value;
}

uint64_t truncate(flx_dtype_t dtype, Wide value) {
    const size_t width = 8 * size_of(dtype);
    const auto low = static_cast<uint64_t>(value);
    return width == 64 ? low : low & ((uint64_t{1} << width) - 1);
}

/// One element's bits from those of the sources. `divisor` 1: none.
uint64_t expect_element(flx_dtype_t dtype, flx_op_t op, const std::vector<uint64_t> &sources, int divisor) {
    if (sources.size() == 1 && divisor <= 1)
        return sources[0];
    if (dtype == FLX_F16 || dtype == FLX_BF16) {
        const int mantissa = dtype == FLX_F16 ? 10 : 7;
        std::vector<float> values;
        for (const uint64_t bits : sources)
            values.push_back(static_cast<float>(decode_small(bits, mantissa, 15 - mantissa)));
        return encode_small(reduce_floats(op, values, divisor), mantissa, 15 - mantissa);
    }
    if (is_float8(dtype)) {
        std::vector<float> values;
        for (const uint64_t bits : sources)
            values.push_back(static_cast<float>(decode_float8(dtype, bits)));
        return encode_float8(dtype, reduce_floats(op, values, divisor), op == FLX_MIN || op == FLX_MAX);
    }
    if (dtype == FLX_F32) {
        std::vector<float> values(sources.size());
        for (size_t s = 0; s < sources.size(); ++s)
            std::memcpy(&values[s], &sources[s], 4);
        const float result = reduce_floats(op, values, divisor);
        uint32_t bits;
        std::memcpy(&bits, &result, 4);
        return std::isnan(result) ? 0x7FC00000u : bits;
    }
    if (dtype == FLX_F64) {
        std::vector<double> values(sources.size());
        std::memcpy(values.data(), sources.data(), 8 * sources.size());
        const double result = reduce_floats(op, values, divisor);
        uint64_t bits;
        std::memcpy(&bits, &result, 8);
        return std::isnan(result) ? 0x7FF8000000000000u : bits;
    }
    uint64_t result = sources[0];
    for (size_t s = 1; s < sources.size(); ++s) {
        const Wide a = widen(dtype, result);
        const Wide b = widen(dtype, sources[s]);
        switch (op) {
            case FLX_PROD: {
                __extension__ using UnsignedWide = unsigned __int128;
                result =
                    truncate(dtype, static_cast<Wide>(static_cast<UnsignedWide>(a) * static_cast<UnsignedWide>(b)));
                break;
            }
            case FLX_MIN:
                result = truncate(dtype, a < b ? a : b);
                break;
            case FLX_MAX:
                result = truncate(dtype, a > b ? a : b);
                break;
            default:
                result = truncate(dtype, a + b);
        }
    }
    return divisor > 1 ? truncate(dtype, widen(dtype, result) / divisor) : result;
}

uint64_t element(flx_dtype_t dtype, const uint8_t *data, size_t i) {
    uint64_t bits = 0;
    std::memcpy(&bits, data + i * size_of(dtype), size_of(dtype));
    return bits;
}

// ---------------------------------------------------------------- data

/// Zeros, ends of ranges, subnormals, infinities, NaNs of several payloads, values that overflow when added.
std::vector<uint64_t> special_values(flx_dtype_t dtype) {
    switch (dtype) {
        case FLX_F8E4M3:
        case FLX_F8E5M2:
            return {0x00, 0x80, 0x01, 0x81, 0x03, 0x04, 0x07, 0x08, 0x38, 0xB8, 0x3C,
                    0x39, 0x7B, 0xFB, 0x7C, 0xFC, 0x7D, 0xFD, 0x7E, 0xFE, 0x7F, 0xFF};
        case FLX_F16:
            return {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF,
                    0x7C00, 0xFC00, 0x7C01, 0xFC01, 0x7E00, 0xFE55, 0x1400, 0x1401, 0x5000, 0x4BFF};
        case FLX_BF16:
            return {0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x3F81, 0x7F7F, 0xFF7F,
                    0x7F80, 0xFF80, 0x7F81, 0xFF81, 0x7FC0, 0xFFD5, 0x7FFF, 0xFFFF, 0x3B80, 0x3C01};
        case FLX_F32:
            return {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000,
                    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFF812345, 0x7FC00000, 0xFFC54321};
        case FLX_F64:
            return {0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000,
                    0x3FF0000000000000, 0xBFF0000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000,
                    0xFFF0000000000000, 0x7FF0000000000001, 0xFFF0000012345678, 0x7FF8000000000000, 0xFFF8765432100000};
        default: {
            const uint64_t ones = ~uint64_t{0};
            const uint64_t top = uint64_t{1} << (8 * size_of(dtype) - 1);
            return {0, 1, 2, 3, 7, ones, ones - 1, ones - 2, top, top - 1, top + 1};
        }
    }
}

/// Random elements: one in four special, the others of any bits or, for floats, near 1.
Bytes random_data(flx_dtype_t dtype, size_t count, std::mt19937_64 &random) {
    const size_t size = size_of(dtype);
    const std::vector<uint64_t> special = special_values(dtype);
    Bytes data(count * size);
    for (size_t i = 0; i < count; ++i) {
        uint64_t bits = random();
        if (random() % 4 == 0) {
            bits = special[random() % special.size()];
        } else if (is_float(dtype) && random() % 2 == 0) {
            const double value = std::uniform_real_distribution<double>(-4, 4)(random);
            const auto narrow = static_cast<float>(value);
            if (dtype == FLX_F64)
                std::memcpy(&bits, &value, 8);
            else if (dtype == FLX_F32)
                std::memcpy(&bits, &narrow, 4);
            else if (is_float8(dtype))
                bits = encode_float8(dtype, value, false);
            else
                bits = dtype == FLX_F16 ? encode_small(value, 10, 5) : encode_small(value, 7, 8);
        }
        std::memcpy(data.data() + i * size, &bits, size);
    }
    return data;
}

/// `content` at `offset` bytes behind a multiple of 64, with guard bytes around it.
class Placed {
  public:
    Placed(const Bytes &content, size_t offset) : storage_(content.size() + offset + 256, kGuard) {
        size_ = content.size();
        const auto address = reinterpret_cast<uintptr_t>(storage_.data());
        start_ = 64 + (64 - address % 64) % 64 + offset;
        std::copy(content.begin(), content.end(), storage_.begin() + static_cast<ptrdiff_t>(start_));
    }
    uint8_t *data() { return storage_.data() + start_; }
    Bytes content() const {
        return {storage_.begin() + static_cast<ptrdiff_t>(start_),
                storage_.begin() + static_cast<ptrdiff_t>(start_ + size_)};
    }
    bool guards_intact() const {
        for (size_t i = 0; i < storage_.size(); ++i) {
            if ((i < start_ || i >= start_ + size_) && storage_[i] != kGuard)
                return false;
        }
        return true;
    }

  private:
    static constexpr uint8_t kGuard = 0xA5;
    std::vector<uint8_t> storage_;
    size_t size_, start_;
};

Bytes expect_all(flx_dtype_t dtype, flx_op_t op, const std::vector<Bytes> &sources, size_t count, int divisor) {
    Bytes result(count * size_of(dtype));
    std::vector<uint64_t> column(sources.size());
    for (size_t i = 0; i < count; ++i) {
        for (size_t s = 0; s < sources.size(); ++s)
            column[s] = element(dtype, sources[s].data(), i);
        const uint64_t bits = expect_element(dtype, op, column, divisor);
        std::memcpy(result.data() + i * size_of(dtype), &bits, size_of(dtype));
    }
    return result;
}

::testing::AssertionResult same(flx_dtype_t dtype, const Bytes &got, const Bytes &want,
                                const std::vector<Bytes> &sources) {
    if (got == want)
        return ::testing::AssertionSuccess();
    for (size_t i = 0; i < want.size() / size_of(dtype); ++i) {
        if (element(dtype, got.data(), i) != element(dtype, want.data(), i)) {
            auto failure = ::testing::AssertionFailure();
            failure << std::hex << "element " << i << ": got " << element(dtype, got.data(), i) << ", expected "
                    << element(dtype, want.data(), i) << " from";
            for (const Bytes &source : sources)
                failure << ' ' << element(dtype, source.data(), i);
            return failure;
        }
    }
    return ::testing::AssertionFailure() << "sizes differ";
}

// ---------------------------------------------------------------- tests, for every SIMD target of this machine

class Reduce : public ::testing::TestWithParam<int64_t> {
  protected:
    void SetUp() override {
        hwy::SetSupportedTargetsForTest(GetParam());
        reselect_reduce_target();
        ASSERT_STREQ(reduce_target(), hwy::TargetName(GetParam()));
    }
    void TearDown() override {
        hwy::SetSupportedTargetsForTest(0);
        reselect_reduce_target();
    }
    std::mt19937_64 random_{20260101};
};

/// The targets that this machine supports and the kernels were compiled for.
std::vector<int64_t> targets() {
    std::vector<int64_t> result;
    for (int64_t left = hwy::SupportedTargets() | HWY_STATIC_TARGET; left != 0; left &= left - 1) {
        const int64_t target = left & -left;
        hwy::SetSupportedTargetsForTest(target);
        reselect_reduce_target();
        if (std::string(reduce_target()) == hwy::TargetName(target))
            result.push_back(target);
    }
    hwy::SetSupportedTargetsForTest(0);
    reselect_reduce_target();
    return result;
}

INSTANTIATE_TEST_SUITE_P(Targets, Reduce, ::testing::ValuesIn(targets()),
                         [](const auto &info) { return std::string(hwy::TargetName(info.param)); });

/// Those that have kernels.
std::vector<flx_dtype_t> dtypes() {
    std::vector<flx_dtype_t> result;
    for (int t = 0; t < kAllDtypes; ++t) {
        if (has_kernel(static_cast<flx_dtype_t>(t), FLX_SUM))
            result.push_back(static_cast<flx_dtype_t>(t));
    }
    return result;
}

template <typename Body>
void for_dtypes_and_ops(Body body) {
    for (const flx_dtype_t dtype : dtypes()) {
        for (int o = 0; o < kOps; ++o) {
            const auto op = static_cast<flx_op_t>(o);
            if (!fits(op, dtype))
                continue;
            SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
            body(dtype, op);
            if (::testing::Test::HasFailure())
                return;
        }
    }
}

TEST_P(Reduce, PairMatchesReference) {
    for_dtypes_and_ops([&](flx_dtype_t dtype, flx_op_t op) {
        for (const size_t count : kCounts) {
            const std::vector<Bytes> sources{random_data(dtype, count, random_), random_data(dtype, count, random_)};
            const Bytes want = expect_all(dtype, op, sources, count, 1);
            for (const size_t offset : {0, 1, 4, 24, 63}) {
                Placed a(sources[0], offset), b(sources[1], 3 * offset % 64), dst(Bytes(want.size()), 7 * offset % 64);
                reduce_pair(dtype, op, dst.data(), a.data(), b.data(), count);
                ASSERT_TRUE(same(dtype, dst.content(), want, sources)) << "count " << count << " offset " << offset;
                ASSERT_TRUE(dst.guards_intact());
                ASSERT_EQ(a.content(), sources[0]);
                ASSERT_EQ(b.content(), sources[1]);

                Placed left(sources[0], offset);
                reduce_pair(dtype, op, left.data(), left.data(), b.data(), count);
                ASSERT_TRUE(same(dtype, left.content(), want, sources)) << "into the left operand, count " << count;
                Placed right(sources[1], offset);
                reduce_pair(dtype, op, right.data(), a.data(), right.data(), count);
                ASSERT_TRUE(same(dtype, right.content(), want, sources)) << "into the right operand, count " << count;
                ASSERT_TRUE(left.guards_intact() && right.guards_intact());
            }
        }
    });
}

TEST_P(Reduce, ManyMatchesReference) {
    for_dtypes_and_ops([&](flx_dtype_t dtype, flx_op_t op) {
        for (int n = 1; n <= 9; ++n) {
            for (const size_t count : {0, 1, 7, 16, 65, 200, 1001}) {
                std::vector<Bytes> sources;
                for (int s = 0; s < n; ++s)
                    sources.push_back(random_data(dtype, count, random_));
                for (const int divisor : {1, 2, 3, n, 1000003}) {
                    const Bytes want = expect_all(dtype, op, sources, count, op == FLX_AVG ? divisor : 1);
                    const bool stream = random_() % 2 == 0;
                    const int target = static_cast<int>(random_() % static_cast<unsigned>(n + 1));  // n: a separate one
                    // Half of the destinations are aligned to their element, so that streaming is possible.
                    std::vector<Placed> placed;
                    for (int s = 0; s <= n; ++s) {
                        const size_t offset = random_() % 64 & (random_() % 2 ? ~(size_of(dtype) - 1) : ~size_t{0});
                        placed.emplace_back(s < n ? sources[s] : Bytes(want.size()), offset);
                    }
                    std::vector<const void *> pointers;
                    for (int s = 0; s < n; ++s)
                        pointers.push_back(placed[s].data());
                    Placed kept(Bytes(want.size()), random_() % 64);
                    const bool keeps = random_() % 2 == 0;
                    reduce_many(dtype, op, placed[target].data(), pointers.data(), n, count, divisor, stream,
                                keeps ? kept.data() : nullptr);
                    ASSERT_TRUE(kept.guards_intact());
                    ASSERT_EQ(kept.content(), keeps ? placed[target].content() : Bytes(want.size()));
                    ASSERT_TRUE(same(dtype, placed[target].content(), want, sources))
                        << "n " << n << " count " << count << " divisor " << divisor << " into " << target << " stream "
                        << stream;
                    for (int s = 0; s <= n; ++s) {
                        ASSERT_TRUE(placed[s].guards_intact()) << s;
                        ASSERT_TRUE(s == target || s == n || placed[s].content() == sources[s]) << s;
                    }
                }
            }
        }
    });
}

TEST_P(Reduce, DivideMatchesReference) {
    for (const flx_dtype_t dtype : dtypes()) {
        for (const int divisor : {1, 2, 3, 4, 5, 7, 10, 127, 128, 255, 256, 641, 65535, 65537, 16777217, 2147483647}) {
            const Bytes before = random_data(dtype, 1003, random_);
            const Bytes want = expect_all(dtype, FLX_AVG, {before}, 1003, divisor);
            Placed data(before, random_() % 64);
            divide(dtype, data.data(), 1003, divisor);
            ASSERT_TRUE(same(dtype, data.content(), want, {before})) << name_of(dtype) << " / " << divisor;
            ASSERT_TRUE(data.guards_intact());
        }
    }
}

/// Every pair of special values, in both operand orders.
TEST_P(Reduce, SpecialValues) {
    for_dtypes_and_ops([&](flx_dtype_t dtype, flx_op_t op) {
        const std::vector<uint64_t> special = special_values(dtype);
        const size_t size = size_of(dtype);
        const size_t count = special.size() * special.size();
        std::vector<Bytes> sources(2, Bytes(count * size));
        for (size_t i = 0; i < count; ++i) {
            std::memcpy(sources[0].data() + i * size, &special[i / special.size()], size);
            std::memcpy(sources[1].data() + i * size, &special[i % special.size()], size);
        }
        Bytes got(count * size);
        reduce_pair(dtype, op, got.data(), sources[0].data(), sources[1].data(), count);
        ASSERT_TRUE(same(dtype, got, expect_all(dtype, op, sources, count, 1), sources));
    });
}

/// All 65536 pairs of 8-bit floats, by both forms; the reference adds doubles, which is exact, and looks for the
/// nearest.
TEST_P(Reduce, EveryPairOf8Bits) {
    for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F8E5M2}) {
        std::vector<Bytes> sources(2, Bytes(65536));
        for (size_t i = 0; i < 65536; ++i) {
            sources[0][i] = static_cast<uint8_t>(i);
            sources[1][i] = static_cast<uint8_t>(i >> 8);
        }
        const void *pointers[] = {sources[0].data(), sources[1].data()};
        for (const flx_op_t op : {FLX_SUM, FLX_AVG, FLX_MIN, FLX_MAX}) {  // an average adds, by another kernel
            const bool ordered = op == FLX_MIN || op == FLX_MAX;
            Bytes want(65536), pair(65536), many(65536);
            for (size_t i = 0; i < 65536; ++i) {
                const double a = decode_float8(dtype, sources[0][i]);
                const double b = decode_float8(dtype, sources[1][i]);
                want[i] = static_cast<uint8_t>(encode_float8(dtype, combine_float(op, a, b), ordered));
            }
            reduce_pair(dtype, op, pair.data(), pointers[0], pointers[1], 65536);
            ASSERT_TRUE(same(dtype, pair, want, sources)) << name_of(dtype) << " " << name_of(op);
            reduce_many(dtype, op, many.data(), pointers, 2, 65536, 1, false);
            ASSERT_TRUE(same(dtype, many, want, sources)) << name_of(dtype) << " " << name_of(op);
        }
    }
}

/// Sums of eight, which have more digits than any way station of the rounding.
TEST_P(Reduce, SumsOfEight8BitFloatsAreRoundedOnce) {
    constexpr size_t kCount = 100'000;
    for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F8E5M2}) {
        std::vector<Bytes> sources;
        std::vector<const void *> pointers;
        for (int s = 0; s < 8; ++s) {
            Bytes bytes(kCount);
            for (uint8_t &byte : bytes)  // without the largest ones, whose sums would all be the limit
                byte = static_cast<uint8_t>(random_()) & 0xEF;
            sources.push_back(bytes);
        }
        for (const Bytes &source : sources)
            pointers.push_back(source.data());
        for (const int divisor : {1, 8, 7}) {
            const flx_op_t op = divisor == 1 ? FLX_SUM : FLX_AVG;
            Bytes got(kCount);
            reduce_many(dtype, op, got.data(), pointers.data(), 8, kCount, divisor, false);
            ASSERT_TRUE(same(dtype, got, expect_all(dtype, op, sources, kCount, divisor), sources));
        }
    }
}

/// All 65536 values of a 16-bit float: adding -0 changes none but NaNs, and x / 3 is rounded once.
TEST_P(Reduce, EveryValueOf16Bits) {
    for (const flx_dtype_t dtype : {FLX_F16, FLX_BF16}) {
        std::vector<Bytes> sources(2, Bytes(65536 * 2));
        for (unsigned i = 0; i < 65536; ++i) {
            const auto value = static_cast<uint16_t>(i);
            const uint16_t minus_zero = 0x8000;
            std::memcpy(sources[0].data() + 2 * i, &value, 2);
            std::memcpy(sources[1].data() + 2 * i, &minus_zero, 2);
        }
        Bytes got(sources[0].size());
        reduce_pair(dtype, FLX_SUM, got.data(), sources[0].data(), sources[1].data(), 65536);
        for (unsigned i = 0; i < 65536; ++i) {
            const unsigned infinity = dtype == FLX_F16 ? 0x7C00 : 0x7F80;
            const unsigned quiet = dtype == FLX_F16 ? 0x7E00 : 0x7FC0;
            const unsigned want = (i & 0x7FFF) > infinity ? quiet : i;
            ASSERT_EQ(element(dtype, got.data(), i), want) << name_of(dtype) << " " << i;
        }
        got = sources[0];
        divide(dtype, got.data(), 65536, 3);
        ASSERT_TRUE(same(dtype, got, expect_all(dtype, FLX_AVG, {sources[0]}, 65536, 3), {sources[0]}));
    }
}

/// Cutting a range anywhere gives the same bits as doing it in one go.
TEST_P(Reduce, CutsDoNotMatter) {
    for_dtypes_and_ops([&](flx_dtype_t dtype, flx_op_t op) {
        const size_t size = size_of(dtype);
        for (int round = 0; round < 12; ++round) {
            const size_t count = 1 + random_() % 700;
            const int n = 2 + static_cast<int>(random_() % 4);
            const int divisor = n;
            std::vector<Bytes> sources;
            std::vector<const void *> whole;
            for (int s = 0; s < n; ++s)
                sources.push_back(random_data(dtype, count, random_));
            for (const Bytes &source : sources)
                whole.push_back(source.data());
            Bytes want(count * size), got(count * size), want_pair(count * size), got_pair(count * size);
            reduce_many(dtype, op, want.data(), whole.data(), n, count, divisor, false);
            reduce_pair(dtype, op, want_pair.data(), whole[0], whole[1], count);
            for (size_t begin = 0; begin < count;) {
                const size_t length = std::min<size_t>(count - begin, 1 + random_() % 100);
                std::vector<const void *> part;
                for (const Bytes &source : sources)
                    part.push_back(source.data() + begin * size);
                reduce_many(dtype, op, got.data() + begin * size, part.data(), n, length, divisor, random_() % 2 == 0);
                reduce_pair(dtype, op, got_pair.data() + begin * size, part[0], part[1], length);
                begin += length;
            }
            ASSERT_TRUE(same(dtype, got, want, sources)) << "count " << count << " n " << n;
            ASSERT_TRUE(same(dtype, got_pair, want_pair, sources)) << "count " << count;
        }
    });
}

TEST_P(Reduce, CopyStreamingCopies) {
    for (const size_t bytes : {0, 1, 63, 64, 65, 255, 256, 257, 511, 1000, 4096, 100001}) {
        for (const size_t offset : {0, 1, 8, 37, 63}) {
            const Bytes content = random_data(FLX_UINT8, bytes, random_);
            Placed src(content, offset), dst(Bytes(bytes), 11 * offset % 64);
            copy_streaming(dst.data(), src.data(), bytes);
            ASSERT_EQ(dst.content(), content) << bytes << " bytes at " << offset;
            ASSERT_TRUE(dst.guards_intact());
        }
    }
}

}  // namespace
}  // namespace flx
