// What many brief operations show of links: verdicts from made-up operations.
#include "runtime/shares/brief_rates.h"

#include <gtest/gtest.h>

#include <array>

namespace flx {
namespace {

constexpr int kRound = 8;       // operations
constexpr int kFirstPause = 1;  // rounds
constexpr int kMistakePause = 3;
constexpr int kMostRounds = 20;
constexpr double kOperationNs = 10e6;

/// One link in operations that are all alike.
struct Link {
    double believed;     // ns per byte
    double cost;         // what its samples say
    bool early;          // it ends before the operations do
    double bytes = 1e6;  // that it carries in each
};

/// Rounds until something is learnt, -1 if that takes more than `most`.
template <size_t kLinks>
int run(BriefRates &rates, const std::array<Link, kLinks> &links, int most = kMostRounds, double time_ns = kOperationNs,
        uint64_t bytes = 1 << 20) {
    std::array<double, kLinks> believed{};
    for (size_t i = 0; i < kLinks; ++i)
        believed[i] = links[i].believed;
    for (int op = 1; op <= most * kRound; ++op) {
        for (size_t i = 0; i < kLinks; ++i)
            rates.saw(static_cast<int>(i), static_cast<uint64_t>(links[i].bytes), links[i].cost, links[i].early);
        if (rates.ended(time_ns, bytes, believed)) {
            EXPECT_EQ(op % kRound, 0);
            return op / kRound;
        }
    }
    return -1;
}

const std::array kSecondNotFull{Link{10, 10, false}, Link{20, 3, true}};

TEST(BriefRates, NothingIsLearntBeforeSharesHaveSettled) {
    BriefRates rates;
    const std::array links{Link{10, 11, false}, Link{20, 3, true}};
    EXPECT_EQ(run(rates, links), 1 + kFirstPause + 1);
    EXPECT_EQ(run(rates, links, 2), -1) << "shares are others now";
}

TEST(BriefRates, AFullLinkShowsItsRateAndOthersMayBeFaster) {
    BriefRates rates;
    EXPECT_GT(run(rates, std::array{Link{10, 10.4, false}, Link{20, 3, true}}), 0);
    EXPECT_NEAR(rates.factor(0), 1.04, 1e-6);
    EXPECT_EQ(rates.unmeasured(0), 1);
    EXPECT_LT(rates.factor(1), 1);
    EXPECT_GT(rates.factor(1), 0.9) << "a quantum, not what a burst seems to show";
    EXPECT_EQ(rates.unmeasured(1), rates.factor(1));
}

TEST(BriefRates, QuantaShrinkWhereALinkIsFullAndGrowWhereItNeverIs) {
    BriefRates rates;
    double first = 0;
    for (int round = 0; round < 4; ++round) {
        EXPECT_GT(run(rates, kSecondNotFull), 0);
        EXPECT_LT(rates.factor(1), first == 0 ? 1 : first);
        first = rates.factor(1);
    }
    for (int round = 0; round < 6; ++round)
        EXPECT_GT(run(rates, std::array{Link{10, 10, false}, Link{20, 20, false}}), 0);
    EXPECT_GT(run(rates, kSecondNotFull), 0);
    EXPECT_GT(rates.factor(1), 0.99);
}

TEST(BriefRates, AChangeThatMadeOperationsLongerIsTakenBack) {
    BriefRates rates;
    ASSERT_GT(run(rates, kSecondNotFull), 0);
    const double first = rates.factor(1);
    ASSERT_GT(run(rates, kSecondNotFull), 0);  // no difference
    const double second = rates.factor(1);
    const double both = first * second;
    ASSERT_EQ(run(rates, kSecondNotFull, kMostRounds, 1.02 * kOperationNs), 2);
    EXPECT_NEAR(rates.factor(1), 1 / both, 1e-9);
    EXPECT_NEAR(rates.unmeasured(1), 1 / both, 1e-9);
    EXPECT_EQ(rates.factor(0), 1);
    // And not tried again for a while, then by less.
    EXPECT_GT(run(rates, kSecondNotFull), kMistakePause);
    EXPECT_GT(rates.factor(1), second);
}

TEST(BriefRates, OnlyWhatWasMovedUnmeasuredIsTakenBackSo) {
    BriefRates rates;
    ASSERT_GT(run(rates, std::array{Link{10, 10.4, false}, Link{20, 3, true}}), 0);
    const double second = rates.factor(1);
    ASSERT_GT(run(rates, kSecondNotFull, kMostRounds, 1.02 * kOperationNs), 0);
    EXPECT_NEAR(rates.factor(0), 1 / 1.04, 1e-6);
    EXPECT_EQ(rates.unmeasured(0), 1) << "its samples show it";
    EXPECT_NEAR(rates.unmeasured(1), 1 / second, 1e-9);
}

TEST(BriefRates, AfterAChangeThatMadeThemQuickerALargerOneFollowsAtOnce) {
    BriefRates rates;
    ASSERT_GT(run(rates, kSecondNotFull), 0);
    const double first = rates.factor(1);
    ASSERT_EQ(run(rates, kSecondNotFull, kMostRounds, 0.98 * kOperationNs), 2);
    EXPECT_NEAR(1 / rates.factor(1) - 1, 2 * (1 / first - 1), 1e-9);
}

TEST(BriefRates, WhereOperationsBecomeSlowerThereIsNoPause) {
    BriefRates rates;
    EXPECT_EQ(run(rates, kSecondNotFull, 2), -1);
    EXPECT_EQ(run(rates, kSecondNotFull, kMostRounds, 2 * kOperationNs), 1);
    for (int round = 0; round < 4; ++round)
        EXPECT_EQ(run(rates, kSecondNotFull, kMostRounds, 2 * kOperationNs), 2);
}

TEST(BriefRates, WhereOperationsBecomeSlowerALinkMayDeliverLessThanItDid) {
    BriefRates rates;
    const std::array slower{Link{10, 15, false}, Link{20, 3, true}};
    ASSERT_GT(run(rates, kSecondNotFull), 0);
    ASSERT_EQ(run(rates, slower, kMostRounds, 1.5 * kOperationNs), 2);  // the change is to blame
    ASSERT_EQ(run(rates, slower, kMostRounds, 1.5 * kOperationNs), 2);  // it was not
    ASSERT_EQ(run(rates, slower, kMostRounds, 1.5 * kOperationNs), 2);
    EXPECT_NEAR(rates.factor(0), 1.1, 1e-6);
}

TEST(BriefRates, OperationsOfOtherSizesAreNotCompared) {
    BriefRates rates;
    ASSERT_GT(run(rates, kSecondNotFull), 0);
    EXPECT_GT(run(rates, kSecondNotFull, kMostRounds, kOperationNs, 1 << 18), 0);
    EXPECT_LT(rates.factor(1), 1) << "nothing was taken back";
}

TEST(BriefRates, WhereAllLinksEndEarlyItIsThePeers) {
    BriefRates rates;
    EXPECT_EQ(run(rates, std::array{Link{10, 4, true}, Link{20, 3, true}}), -1);
}

TEST(BriefRates, ALinkThatLetsABurstPassUntilTheEndIsLittleFaster) {
    BriefRates rates;
    EXPECT_GT(run(rates, std::array{Link{10, 5, false}, Link{20, 20, false}}), 0);
    EXPECT_GT(rates.factor(0), 0.95);
    EXPECT_LT(rates.factor(0), 1);
}

/// Acknowledgements that wait behind what the peer sends make a link seem slow.
TEST(BriefRates, WhatALinkDeliveredItCan) {
    BriefRates rates;
    EXPECT_GT(run(rates, std::array{Link{10, 10, false}, Link{20, 20, false, 0.5e6}}), 0);
    EXPECT_GT(run(rates, std::array{Link{10, 10, false}, Link{20, 30, false, 0.4e6}}), 0);
    EXPECT_NEAR(rates.factor(1), 1.05 * 1.01, 1e-2);
    EXPECT_GT(run(rates, std::array{Link{10, 10, false}, Link{22, 30, false, 0.4e6}}), 0);
    EXPECT_EQ(rates.factor(1), 1);
}

TEST(BriefRates, ALinkThatFellFarKeepsWhatIsBelievedOfIt) {
    BriefRates rates;
    EXPECT_EQ(run(rates, std::array{Link{10, 80, false}, Link{20, 3, true}}), -1) << "and makes no other faster";
}

}  // namespace
}  // namespace flx
