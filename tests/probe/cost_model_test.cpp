#include "cost_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flx::probe {
namespace {

using algorithms::Collective;

constexpr Pattern kPatterns[] = {Pattern::direct, Pattern::ring, Pattern::double_binary_tree,
                                 Pattern::recursive_doubling};
constexpr Collective kCollectives[] = {Collective::allreduce, Collective::reduce_scatter_block,
                                       Collective::allgather, Collective::bcast,
                                       Collective::reduce,    Collective::barrier};

CostInput machine(int ranks, int hosts) {
    CostInput input;
    input.ranks = ranks;
    input.hosts = hosts;
    input.near = {300, 8};
    input.far = {20'000, 0.175};
    return input;
}

Pattern best(Collective collective, size_t bytes, const CostInput &input) {
    Pattern best = Pattern::direct;
    for (const Pattern pattern : kPatterns)
        if (estimate_ns(pattern, collective, bytes, input) < estimate_ns(best, collective, bytes, input))
            best = pattern;
    return best;
}

TEST(CostModel, GrowsWithSize) {
    for (const int hosts : {1, 2, 4})
        for (const int ranks : {2, 3, 4, 5, 8, 12, 64})
            for (const Pattern pattern : kPatterns)
                for (const Collective collective : kCollectives) {
                    double before = 0;
                    for (size_t bytes = 1; bytes <= (256u << 20); bytes *= 2) {
                        const double time = estimate_ns(pattern, collective, bytes, machine(ranks, hosts));
                        EXPECT_GT(time, 0);
                        EXPECT_GE(time, before) << ranks << " ranks, " << bytes << " bytes";
                        before = time;
                    }
                }
}

TEST(CostModel, OneRankCostsNothing) {
    for (const Pattern pattern : kPatterns)
        EXPECT_EQ(estimate_ns(pattern, Collective::allreduce, 1 << 20, machine(1, 1)), 0);
}

TEST(CostModel, TheWorthOfTheRing) {
    // 4 ranks on one host: 2 (p - 1) alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma.
    const double n = 1 << 20;
    const double expected = 6 * 300 + 2 * n * 0.75 / 8 + n * 0.75 / 8;
    EXPECT_DOUBLE_EQ(estimate_ns(Pattern::ring, Collective::allreduce, 1 << 20, machine(4, 1)), expected);
}

TEST(CostModel, SmallMessagesTakeFewRounds) {
    for (const int ranks : {16, 64}) {
        EXPECT_EQ(best(Collective::allreduce, 8, machine(ranks, 1)), Pattern::recursive_doubling);
        EXPECT_GT(estimate_ns(Pattern::ring, Collective::allreduce, 8, machine(ranks, 1)),
                  2 * estimate_ns(Pattern::recursive_doubling, Collective::allreduce, 8, machine(ranks, 1)));
    }
    for (const int ranks : {2, 4}) {
        const Pattern pattern = best(Collective::allreduce, 8, machine(ranks, 1));
        EXPECT_TRUE(pattern == Pattern::recursive_doubling || pattern == Pattern::direct);
    }
}

TEST(CostModel, LargeMessagesMoveEachByteOnce) {
    for (const int ranks : {4, 8, 64}) {
        const Pattern pattern = best(Collective::allreduce, 64 << 20, machine(ranks, 1));
        EXPECT_TRUE(pattern == Pattern::ring || pattern == Pattern::direct) << ranks;
    }
}

TEST(CostModel, SeveralRanksOnAHostShareItsRails) {
    // Direct exchange between 2 hosts of 4 ranks crosses 4 times as often as the ring does.
    const CostInput input = machine(8, 2);
    EXPECT_EQ(best(Collective::allreduce, 64 << 20, input), Pattern::ring);
    EXPECT_GT(estimate_ns(Pattern::direct, Collective::allreduce, 64 << 20, input),
              2 * estimate_ns(Pattern::ring, Collective::allreduce, 64 << 20, input));
    // With one rank a host they move the same.
    EXPECT_NEAR(estimate_ns(Pattern::direct, Collective::allgather, 64 << 20, machine(4, 4)) /
                    estimate_ns(Pattern::ring, Collective::allgather, 64 << 20, machine(4, 4)),
                1.0, 0.01);
}

TEST(CostModel, TreesForManyRanksAndMiddleSizes) {
    EXPECT_EQ(best(Collective::bcast, 4 << 20, machine(64, 1)), Pattern::double_binary_tree);
    EXPECT_LT(estimate_ns(Pattern::double_binary_tree, Collective::allreduce, 4096, machine(64, 64)),
              estimate_ns(Pattern::ring, Collective::allreduce, 4096, machine(64, 64)));
}

TEST(CostModel, TreesDoNotServeAllgather) {
    EXPECT_TRUE(std::isinf(estimate_ns(Pattern::double_binary_tree, Collective::allgather, 8, machine(4, 1))));
    EXPECT_TRUE(
        std::isinf(estimate_ns(Pattern::double_binary_tree, Collective::reduce_scatter_block, 8, machine(4, 1))));
}

TEST(CostModel, RanksBeyondAPowerOfTwoCostMore) {
    EXPECT_GT(estimate_ns(Pattern::recursive_doubling, Collective::allreduce, 1 << 20, machine(9, 1)),
              estimate_ns(Pattern::recursive_doubling, Collective::allreduce, 1 << 20, machine(16, 1)));
}

}  // namespace
}  // namespace flx::probe
