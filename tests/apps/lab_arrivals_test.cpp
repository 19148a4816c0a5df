// Traces of arrivals: the same for the same seed, and of the rate, the sizes and the ranks that were asked for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/flx_lab/arrivals.h"

namespace flx::bench::lab {
namespace {

constexpr uint64_t kLeast = 1 << 20;
constexpr uint64_t kMost = 64 << 20;

Options options_of(uint64_t seed, int64_t messages = 20000) {
    Options options;
    options.sizes = {kMost, kLeast};
    options.arrivals = 5;
    options.iterations = messages;
    options.seed = seed;
    return options;
}

TEST(Arrivals, SeedsDecide) {
    const auto times = [](uint64_t seed) {
        std::vector<double> result;
        for (const Arrived &message : arrivals_of(options_of(seed, 50), 8)) {
            result.push_back(message.seconds);
        }
        return result;
    };
    EXPECT_EQ(times(1), times(1));
    EXPECT_NE(times(1), times(2));
    // Traces must not change from one machine or library to another: figures name their seed.
    const std::vector<Arrived> trace = arrivals_of(options_of(1, 2), 8);
    EXPECT_NEAR(trace[0].seconds, 0.0288, 1e-4);
    EXPECT_EQ(trace[0].from, 2);
    EXPECT_EQ(trace[0].to, 6);
}

TEST(Arrivals, AreAPoissonProcessOfTheRateAskedFor) {
    const std::vector<Arrived> trace = arrivals_of(options_of(3), 8);
    ASSERT_EQ(trace.size(), 20000U);
    EXPECT_NEAR(trace.back().seconds, 4000, 120);
    // Gaps are exponential: as many are longer than the mean as 1 in e.
    double before = 0;
    int longer = 0;
    for (const Arrived &message : trace) {
        EXPECT_GE(message.seconds, before);
        longer += message.seconds - before > 0.2 ? 1 : 0;
        before = message.seconds;
    }
    EXPECT_NEAR(longer, 20000 / std::exp(1), 300);
}

TEST(Arrivals, SizesAndRanksAreEven) {
    const std::vector<Arrived> trace = arrivals_of(options_of(4), 7);
    std::vector<int> from(7);
    std::vector<int> to(7);
    int small = 0;
    for (const Arrived &message : trace) {
        EXPECT_GE(message.bytes, kLeast);
        EXPECT_LE(message.bytes, kMost);
        small += message.bytes < (8 << 20) ? 1 : 0;  // the middle on a logarithmic scale
        ++from[message.from];
        ++to[message.to];
    }
    EXPECT_NEAR(small, 10000, 400);
    for (int rank = 0; rank < 7; ++rank) {
        EXPECT_NEAR(from[rank], rank < 3 ? 20000 / 3 : 0, 400) << rank;
        EXPECT_NEAR(to[rank], rank < 3 ? 0 : 5000, 400) << rank;
    }
}

TEST(Arrivals, RoundsAreTheWholeTrace) {
    const std::vector<Arrived> trace = arrivals_of(options_of(5, 31), 4);
    size_t next = 0;
    for (int round = 0; round < kArrivalRounds; ++round) {
        double before = 0;
        for (const Arrived &message : round_of(trace, round)) {
            ASSERT_LT(next, trace.size());
            EXPECT_EQ(message.bytes, trace[next].bytes);
            const double gap = trace[next].seconds - (next == 0 ? 0 : trace[next - 1].seconds);
            EXPECT_NEAR(message.seconds - before, gap, 1e-9);
            before = message.seconds;
            ++next;
        }
    }
    EXPECT_EQ(next, trace.size());
}

TEST(Arrivals, ReportsNameBothWaysAndTheirRatio) {
    const Options options = options_of(1, 3);
    ArrivalsResult result;
    result.machine.ranks = 4;
    result.trace = arrivals_of(options, 4);
    result.bound = {"own", {0.4, 0.2, 0.3}, 0};
    result.lent = {"on", {0.1, 0.15, 0.2}, 2};
    const auto json = arrivals_json(options, result);
    EXPECT_DOUBLE_EQ(json["p50_ratio"].get<double>(), 0.5);
    EXPECT_EQ(json["results"][0]["lend"], "own");
    EXPECT_DOUBLE_EQ(json["results"][1]["p50_ms"].get<double>(), 150);
    EXPECT_EQ(json["results"][1]["wrong"], 2);
    const std::string text = arrivals_text(options, result);
    EXPECT_NE(text.find("on / own"), std::string::npos);
    EXPECT_NE(text.find("0.50"), std::string::npos) << text;
}

}  // namespace
}  // namespace flx::bench::lab
