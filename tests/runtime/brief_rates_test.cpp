// What many brief operations show of links: verdicts from made-up operations.
#include "brief_rates.h"

#include <gtest/gtest.h>

#include <array>

namespace flx {
namespace {

constexpr double kOperationNs = 10e6;

/// One link in operations that are all alike.
struct Link {
    double believed;     // ns per byte
    double cost;         // what its samples say
    bool early;          // it ends before the operations do
    double bytes = 1e6;  // that it carries in each
};

/// Whether something was learnt from so many operations.
template <size_t kLinks>
bool run(BriefRates &rates, const std::array<Link, kLinks> &links, int operations) {
    std::array<double, kLinks> believed{};
    for (size_t i = 0; i < kLinks; ++i)
        believed[i] = links[i].believed;
    bool learnt = false;
    for (int op = 0; op < operations; ++op) {
        for (size_t i = 0; i < kLinks; ++i)
            rates.saw(static_cast<int>(i), static_cast<uint64_t>(links[i].bytes), links[i].cost, links[i].early);
        learnt = rates.ended(kOperationNs, believed);
        if (learnt)
            return true;
    }
    return learnt;
}

TEST(BriefRates, NothingIsLearntBeforeSharesHaveSettled) {
    BriefRates rates;
    const std::array links{Link{10, 11, false}, Link{20, 3, true}};
    EXPECT_FALSE(run(rates, links, 15));
    EXPECT_TRUE(run(rates, links, 1));
    EXPECT_FALSE(run(rates, links, 15)) << "shares are others now";
}

TEST(BriefRates, AFullLinkShowsItsRateAndOthersMayBeFaster) {
    BriefRates rates;
    EXPECT_TRUE(run(rates, std::array{Link{10, 10.4, false}, Link{20, 3, true}}, 16));
    EXPECT_NEAR(rates.factor(0), 1.04, 1e-6);
    EXPECT_FALSE(rates.faster(0));
    EXPECT_LT(rates.factor(1), 1);
    EXPECT_GT(rates.factor(1), 0.9) << "a quantum, not what a burst seems to show";
    EXPECT_TRUE(rates.faster(1));
}

TEST(BriefRates, QuantaShrinkWhereALinkIsFullAndGrowWhereItNeverIs) {
    BriefRates rates;
    double first = 0;
    for (int round = 0; round < 4; ++round) {
        EXPECT_TRUE(run(rates, std::array{Link{10, 10, false}, Link{20, 3, true}}, 16));
        EXPECT_LT(rates.factor(1), first == 0 ? 1 : first);
        first = rates.factor(1);
    }
    for (int round = 0; round < 6; ++round)
        EXPECT_TRUE(run(rates, std::array{Link{10, 10, false}, Link{20, 20, false}}, 16));
    EXPECT_TRUE(run(rates, std::array{Link{10, 10, false}, Link{20, 3, true}}, 16));
    EXPECT_GT(rates.factor(1), 0.99);
}

TEST(BriefRates, WhereAllLinksEndEarlyItIsThePeers) {
    BriefRates rates;
    EXPECT_FALSE(run(rates, std::array{Link{10, 4, true}, Link{20, 3, true}}, 100));
}

TEST(BriefRates, ALinkThatLetsABurstPassUntilTheEndIsLittleFaster) {
    BriefRates rates;
    EXPECT_TRUE(run(rates, std::array{Link{10, 5, false}, Link{20, 20, false}}, 16));
    EXPECT_GT(rates.factor(0), 0.95);
    EXPECT_LT(rates.factor(0), 1);
}

/// Acknowledgements that wait behind what the peer sends make a link seem slow.
TEST(BriefRates, WhatALinkDeliveredItCan) {
    BriefRates rates;
    EXPECT_TRUE(run(rates, std::array{Link{10, 10, false}, Link{20, 20, false, 0.5e6}}, 16));
    EXPECT_TRUE(run(rates, std::array{Link{10, 10, false}, Link{20.5, 30, false, 0.4e6}}, 16));
    EXPECT_NEAR(rates.factor(1), 1.05 * 1.01 * 20 / 20.5, 1e-3);
    EXPECT_TRUE(run(rates, std::array{Link{10, 10, false}, Link{22, 30, false, 0.4e6}}, 16));
    EXPECT_EQ(rates.factor(1), 1);
}

TEST(BriefRates, ALinkThatFellFarKeepsWhatIsBelievedOfIt) {
    BriefRates rates;
    EXPECT_FALSE(run(rates, std::array{Link{10, 80, false}, Link{20, 3, true}}, 100)) << "and makes no other faster";
}

}  // namespace
}  // namespace flx
