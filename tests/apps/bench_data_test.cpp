// The data that results are checked with: exact in the type's own arithmetic, in any order, and errors show.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "apps/bench/data.h"

namespace flx::bench {
namespace {

constexpr flx_dtype_t kTypes[] = {FLX_INT8,   FLX_UINT8, FLX_INT16, FLX_UINT16, FLX_INT32, FLX_UINT32, FLX_INT64,
                                  FLX_UINT64, FLX_F16,   FLX_BF16,  FLX_F32,    FLX_F64,   FLX_F8E4M3, FLX_F8E5M2};
constexpr flx_op_t kOperations[] = {FLX_SUM, FLX_PROD, FLX_MIN, FLX_MAX, FLX_AVG};

/// Wide enough for one element of any type.
struct Number {
    double real = 0;
    uint64_t bits = 0;
};

bool is_real(flx_dtype_t dtype) {
    return is_float8(dtype) || dtype == FLX_F16 || dtype == FLX_BF16 || dtype == FLX_F32 || dtype == FLX_F64;
}

/// Of what is finite.
double small_value(unsigned bits, int mantissa_bits, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int leading = 1 << mantissa_bits;
    const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = static_cast<int>(bits) & (leading - 1);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                           : std::ldexp(leading + mantissa, exponent - bias - mantissa_bits);
    return (bits >> (mantissa_bits + exponent_bits) & 1) != 0 ? -magnitude : magnitude;
}

/// Rounds to a number with `digits` significant bits, to nearest, ties to even.
double rounded(double value, int digits) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}

int digits_of(flx_dtype_t dtype) {
    if (is_float8(dtype))
        return dtype == FLX_F8E4M3 ? 4 : 3;
    return dtype == FLX_F16 ? 11 : dtype == FLX_BF16 ? 8 : dtype == FLX_F32 ? 24 : 53;
}

template <typename T>
T loaded(const std::byte *from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

Number load(flx_dtype_t dtype, const std::byte *from) {
    switch (dtype) {
        case FLX_INT8:
            return {0, static_cast<uint64_t>(int64_t{loaded<int8_t>(from)})};
        case FLX_UINT8:
            return {0, loaded<uint8_t>(from)};
        case FLX_INT16:
            return {0, static_cast<uint64_t>(int64_t{loaded<int16_t>(from)})};
        case FLX_UINT16:
            return {0, loaded<uint16_t>(from)};
        case FLX_INT32:
            return {0, static_cast<uint64_t>(int64_t{loaded<int32_t>(from)})};
        case FLX_UINT32:
            return {0, loaded<uint32_t>(from)};
        case FLX_INT64:
        case FLX_UINT64:
            return {0, loaded<uint64_t>(from)};
        case FLX_F16:
            return {small_value(loaded<uint16_t>(from), 10, 5), 0};
        case FLX_F8E4M3:
            return {small_value(loaded<uint8_t>(from), 3, 4), 0};
        case FLX_F8E5M2:
            return {small_value(loaded<uint8_t>(from), 2, 5), 0};
        case FLX_BF16:
            return {std::bit_cast<float>(uint32_t{loaded<uint16_t>(from)} << 16), 0};
        case FLX_F32:
            return {loaded<float>(from), 0};
        case FLX_F64:
            return {loaded<double>(from), 0};
        default:
            break;
    }
    return {};
}

bool is_unsigned(flx_dtype_t dtype) {
    return dtype == FLX_UINT8 || dtype == FLX_UINT16 || dtype == FLX_UINT32 || dtype == FLX_UINT64;
}

/// Cut to the type's width and extended again, as storing and loading would.
uint64_t wrapped(flx_dtype_t dtype, uint64_t bits) {
    std::byte memory[8];
    std::memcpy(memory, &bits, sizeof(bits));
    return load(dtype, memory).bits;
}

/// One reduction step that rounds or wraps to the type.
Number step(flx_dtype_t dtype, flx_op_t op, Number a, Number b) {
    const bool b_less = is_real(dtype)       ? b.real < a.real
                        : is_unsigned(dtype) ? b.bits < a.bits
                                             : static_cast<int64_t>(b.bits) < static_cast<int64_t>(a.bits);
    switch (op) {
        case FLX_SUM:
        case FLX_AVG:
            return {rounded(a.real + b.real, digits_of(dtype)), wrapped(dtype, a.bits + b.bits)};
        case FLX_PROD:
            return {rounded(a.real * b.real, digits_of(dtype)), wrapped(dtype, a.bits * b.bits)};
        case FLX_MIN:
            return b_less ? b : a;
        case FLX_MAX:
            return b_less ? a : b;
        default:
            break;
    }
    return {};
}

Number divided(flx_dtype_t dtype, Number sum, int ranks) {
    const auto n = static_cast<uint64_t>(ranks);
    const uint64_t bits =
        is_unsigned(dtype) ? sum.bits / n : static_cast<uint64_t>(static_cast<int64_t>(sum.bits) / int64_t{ranks});
    return {rounded(sum.real / ranks, digits_of(dtype)), bits};
}

class PatternTest : public testing::TestWithParam<std::tuple<flx_dtype_t, flx_op_t>> {};

TEST_P(PatternTest, ResultIsExactInAnyOrderOfRanks) {
    const auto [dtype, op] = GetParam();
    const size_t bytes = size_of(dtype);
    constexpr size_t kCount = 600;
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 40, 300}) {
        SCOPED_TRACE(ranks);
        const Pattern pattern(dtype, op, ranks);
        std::vector<std::vector<std::byte>> inputs(static_cast<size_t>(ranks), std::vector<std::byte>(kCount * bytes));
        for (int r = 0; r < ranks; ++r) {
            pattern.write_input(inputs[static_cast<size_t>(r)].data(), r, 0, kCount, 3);
        }
        std::vector<size_t> order(inputs.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::mt19937 random(7);
        std::vector<Number> first_results(kCount);
        for (int trial = 0; trial < 3; ++trial) {
            for (size_t i = 0; i < kCount; ++i) {
                Number result = load(dtype, &inputs[order[0]][i * bytes]);
                for (size_t r = 1; r < order.size(); ++r) {
                    result = step(dtype, op, result, load(dtype, &inputs[order[r]][i * bytes]));
                }
                result = op == FLX_AVG ? divided(dtype, result, ranks) : result;
                first_results[i] = trial == 0 ? result : first_results[i];
                ASSERT_EQ(result.bits, first_results[i].bits);
                ASSERT_EQ(result.real, first_results[i].real);
                ASSERT_TRUE(std::isfinite(result.real));
            }
            std::shuffle(order.begin(), order.end(), random);
        }
        // The pattern's own expectation: exactly one encoding of that number is accepted.
        for (size_t i = 0; i < kCount; ++i) {
            std::byte memory[8];
            const Number want = first_results[i];
            if (dtype == FLX_F64) {
                std::memcpy(memory, &want.real, 8);
            } else if (dtype == FLX_F32) {
                const auto value = static_cast<float>(want.real);
                std::memcpy(memory, &value, 4);
            } else if (is_real(dtype)) {
                uint16_t found = 0;
                const uint32_t minus_zero = bytes == 2 ? 0x8000 : 0x80;
                for (uint32_t bits = 0; bits < 2 * minus_zero; ++bits) {
                    const auto candidate = static_cast<uint16_t>(bits);
                    std::memcpy(memory, &candidate, 2);
                    if (bits != minus_zero && load(dtype, memory).real == want.real) {
                        found = candidate;
                        break;
                    }
                }
                std::memcpy(memory, &found, 2);
                if (i > 40) {
                    break;  // the search is slow
                }
            } else {
                std::memcpy(memory, &want.bits, 8);
            }
            ASSERT_EQ(pattern.count_wrong_result(memory, i, 1, 3), 0U) << "element " << i;
            memory[0] ^= std::byte{1};
            ASSERT_EQ(pattern.count_wrong_result(memory, i, 1, 3), 1U) << "element " << i;
        }
    }
}

TEST_P(PatternTest, DataDifferByElementRankAndCall) {
    const auto [dtype, op] = GetParam();
    const Pattern pattern(dtype, op, 4);
    constexpr size_t kCount = 1000;
    std::vector<std::byte> input(kCount * size_of(dtype));
    pattern.write_input(input.data(), 1, 0, kCount, 5);
    EXPECT_EQ(pattern.count_wrong_input(input.data(), 1, 0, kCount, 5), 0U);
    // Products of floats are ±1 and ±2 only; even they must differ in many places.
    EXPECT_GT(pattern.count_wrong_input(input.data(), 2, 0, kCount, 5), kCount / 8);
    EXPECT_GT(pattern.count_wrong_input(input.data(), 1, 64, kCount, 5), kCount / 8);
    EXPECT_GT(pattern.count_wrong_input(input.data(), 1, 0, kCount, 6), kCount / 8);
}

INSTANTIATE_TEST_SUITE_P(All, PatternTest, testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kOperations)),
                         [](const auto &info) {
                             return std::string(name_of(std::get<0>(info.param))) + "_" +
                                    std::string(name_of(std::get<1>(info.param)));
                         });

TEST(Pattern, PoisonIsNoExpectedFloat) {
    const auto all_wrong = Pattern::kPeriod;
    for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F8E5M2, FLX_F16, FLX_BF16, FLX_F32, FLX_F64}) {
        const std::vector<std::byte> poison(Pattern::kPeriod * size_of(dtype), kPoison);
        for (const flx_op_t op : kOperations) {
            const Pattern pattern(dtype, op, 4);
            EXPECT_EQ(pattern.count_wrong_result(poison.data(), 0, Pattern::kPeriod, 1), all_wrong);
            EXPECT_EQ(pattern.count_wrong_input(poison.data(), 2, 0, Pattern::kPeriod, 1), all_wrong);
        }
        const Pattern moved(dtype, std::nullopt, 4);
        EXPECT_EQ(moved.count_wrong_input(poison.data(), 2, 0, Pattern::kPeriod, 1), all_wrong);
    }
}

TEST(Pattern, PiecesAreTheWhole) {
    const Pattern pattern(FLX_F32, FLX_SUM, 3);
    constexpr size_t kCount = 3 * Pattern::kPeriod + 17;
    std::vector<float> whole(kCount);
    std::vector<float> pieces(kCount);
    pattern.write_input(whole.data(), 2, 0, kCount, 9);
    for (size_t at = 0; at < kCount; at += 1000) {
        pattern.write_input(&pieces[at], 2, at, std::min<size_t>(1000, kCount - at), 9);
    }
    EXPECT_EQ(whole, pieces);
}

/// A job of one rank with its memory, done right by a serial loop over all ranks' data.
class JobTest : public testing::TestWithParam<std::tuple<Collective, bool, int>> {
  protected:
    static constexpr int kRanks = 3;
    static constexpr int kRoot = 1;
    static constexpr size_t kCount = 5000;

    void SetUp() override {
        const auto [kind, in_place, rank] = GetParam();
        job_.kind = kind;
        job_.dtype = FLX_INT32;
        job_.op = FLX_SUM;
        job_.root = kRoot;
        job_.in_place = in_place;
        job_.rank = rank;
        job_.ranks = kRanks;
        job_.shape = shape_for(kind, kCount * 4 * kRanks, job_.dtype, kRanks);
        if (is_exchange(kind)) {
            job_.counts = Counts(job_.shape.matrix, rank, kRanks);
        }
        send_.resize(kRanks * kCount + 100);
        recv_.resize(kRanks * kCount + 100);
        job_.send = reinterpret_cast<std::byte *>(send_.data());
        job_.recv = reinterpret_cast<std::byte *>(recv_.data());
        prepare(job_, pattern_, kCall);
    }

    /// What the collective should do, from the patterns of all ranks.
    void perform() {
        const size_t count = job_.shape.count;
        std::vector<int32_t> input(job_.shape.send_elements);
        if (has_reduction(job_.kind)) {
            std::vector<uint32_t> sum(job_.shape.send_elements);
            for (int r = 0; r < kRanks; ++r) {
                pattern_.write_input(input.data(), r, 0, input.size(), kCall);
                for (size_t i = 0; i < sum.size(); ++i) {
                    sum[i] += static_cast<uint32_t>(input[i]);
                }
            }
            const size_t first =
                job_.kind == Collective::kReduceScatterBlock ? static_cast<size_t>(job_.rank) * count : 0;
            if (job_.kind != Collective::kReduce || job_.rank == kRoot) {
                std::memcpy(recv_.data(), &sum[first], count * 4);
            }
        } else if (job_.kind == Collective::kAlltoall) {
            for (int r = 0; r < kRanks; ++r) {
                pattern_.write_input(&recv_[static_cast<size_t>(r) * count], r, job_.rank * count, count, kCall);
            }
        } else if (job_.kind == Collective::kAllgather) {
            for (int r = 0; r < kRanks; ++r) {
                pattern_.write_input(&recv_[static_cast<size_t>(r) * count], r, 0, count, kCall);
            }
        } else {
            pattern_.write_input(recv_.data(), kRoot, 0, count, kCall);
        }
    }

    static constexpr uint64_t kCall = 4;
    Job job_;
    Pattern pattern_{FLX_INT32, FLX_SUM, kRanks};
    std::vector<int32_t> send_;
    std::vector<int32_t> recv_;
};

TEST_P(JobTest, RightResultPassesAndEachKindOfErrorShows) {
    perform();
    ASSERT_EQ(count_wrong(job_, pattern_, kCall), 0U);

    recv_[job_.shape.recv_elements / 2] ^= 4;
    EXPECT_EQ(count_wrong(job_, pattern_, kCall), 1U) << "one bit of the output";
    recv_[job_.shape.recv_elements / 2] ^= 4;

    const bool input_there = job_.kind == Collective::kReduceScatterBlock && job_.in_place;
    recv_[input_there ? job_.shape.send_elements : job_.shape.recv_elements] = 0;
    EXPECT_EQ(count_wrong(job_, pattern_, kCall), 1U) << "written past the end";
    prepare(job_, pattern_, kCall);
    perform();

    const bool at_root_only = job_.kind == Collective::kReduce && job_.rank != kRoot;
    const bool has_send = job_.kind != Collective::kBcast && (!job_.in_place || at_root_only);
    if (has_send) {
        send_[7] ^= 1;
        EXPECT_EQ(count_wrong(job_, pattern_, kCall), 1U) << "input written";
    }
}

TEST_P(JobTest, DataOfAnEarlierCallAreWrong) {
    perform();
    EXPECT_GT(count_wrong(job_, pattern_, kCall + 1), kCount / 2);
}

INSTANTIATE_TEST_SUITE_P(All, JobTest,
                         testing::Combine(testing::Values(Collective::kAllreduce, Collective::kReduceScatterBlock,
                                                          Collective::kAllgather, Collective::kBcast,
                                                          Collective::kReduce, Collective::kAlltoall),
                                          testing::Bool(), testing::Values(0, 1, 2)),
                         [](const auto &info) {
                             return std::string(name_of(std::get<0>(info.param))) +
                                    (std::get<1>(info.param) ? "_in_place_" : "_") +
                                    std::to_string(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace flx::bench
