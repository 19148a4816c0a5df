// Statistics of measurements against figures worked out by hand.

#include <gtest/gtest.h>

#include <set>

#include "apps/bench/timing.h"

namespace flx::bench {
namespace {

TEST(Statistics, QuantilesInterpolate) {
    EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.5), 2.5);
    EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0), 1);
    EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 1), 4);
    EXPECT_DOUBLE_EQ(quantile({10, 20}, 0.1), 11);
    EXPECT_DOUBLE_EQ(quantile({5}, 0.9), 5);
}

TEST(Statistics, SummarySortsAndIgnoresOneOutlierInTheMedian) {
    const Summary summary = summarise({900, 1, 3, 2, 5, 4, 6, 7, 8, 9, 10});
    EXPECT_DOUBLE_EQ(summary.median, 6);
    EXPECT_DOUBLE_EQ(summary.low, 2);
    EXPECT_DOUBLE_EQ(summary.high, 10);
    EXPECT_DOUBLE_EQ(summary.spread(), 8.0 / 6.0);
    EXPECT_DOUBLE_EQ(summarise({}).median, 0);
    EXPECT_DOUBLE_EQ(Summary{}.spread(), 0);
}

TEST(Statistics, RatiosAreElementWise) {
    EXPECT_EQ(ratios({6, 8, 1}, {3, 2, 0}), std::vector<double>({2, 4}));
}

TEST(Statistics, GeometricMean) {
    EXPECT_DOUBLE_EQ(geometric_mean({0.5, 2}), 1);
    EXPECT_NEAR(geometric_mean({1, 3, 9}), 3, 1e-12);
    EXPECT_DOUBLE_EQ(geometric_mean({}), 0);
}

TEST(Statistics, SharesAddUpToOne) {
    EXPECT_EQ(shares_of({1, 3}), std::vector<double>({0.25, 0.75}));
    EXPECT_EQ(shares_of({0, 0}), std::vector<double>({0, 0}));
    EXPECT_TRUE(shares_of({}).empty());
}

TEST(Blocks, TakeAsManyCallsAsFit) {
    EXPECT_EQ(calls_for(0.05, 0.001), 50);
    EXPECT_EQ(calls_for(0.05, 1.0), 1);
    EXPECT_EQ(calls_for(0.05, 0.0), 1000000);
    EXPECT_EQ(calls_for(10.0, 1e-7), 1000000);
}

TEST(Blocks, AreManyWhereCallsAreShortAndNeverFewerThanSeven) {
    EXPECT_EQ(blocks_for(1.0, 3, 1e-6), 31);
    EXPECT_EQ(blocks_for(1.0, 3, 0.025), 13);
    EXPECT_EQ(blocks_for(1.0, 1, 0.050), 20);
    EXPECT_EQ(blocks_for(1.0, 3, 5.0), 7);
    EXPECT_EQ(blocks_for(0.1, 3, 1e-6), 7);
}

TEST(Blocks, EverySideRunsOnceInABlockAndFollowsEveryPlace) {
    std::set<int> first;
    for (int block = 0; block < 7; ++block) {
        std::set<int> seen;
        for (int turn = 0; turn < 3; ++turn) {
            seen.insert(side_in_turn(block, turn, 3));
        }
        EXPECT_EQ(seen, std::set<int>({0, 1, 2}));
        first.insert(side_in_turn(block, 0, 3));
    }
    EXPECT_EQ(first, std::set<int>({0, 1, 2}));
}

}  // namespace
}  // namespace flx::bench
