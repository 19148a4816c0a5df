// What ranks give and take in a collective.

#include <gtest/gtest.h>

#include "apps/flx_trace/volumes.h"

namespace flx::trace {
namespace {

using algorithms::Collective;

/// Given and taken of 400 bytes among 4 ranks with root 2, as one number.
uint64_t of(Collective collective, int64_t rank) {
    const Volumes volumes = volumes_of(collective, 400, 4, rank, 2);
    return volumes.given * 1000 + volumes.taken;
}

TEST(Volumes, AreThoseOfTheArguments) {
    EXPECT_EQ(of(Collective::allreduce, 0), 400'400U);
    EXPECT_EQ(of(Collective::alltoall, 0), 400'400U);
    EXPECT_EQ(of(Collective::allgather, 0), 100'400U);
    EXPECT_EQ(of(Collective::reduce_scatter_block, 0), 400'100U);
    EXPECT_EQ(of(Collective::scan, 0), 400'400U);
    EXPECT_EQ(of(Collective::exscan, 0), 400'000U) << "the first rank gets nothing";
    EXPECT_EQ(of(Collective::exscan, 1), 400'400U);
}

TEST(Volumes, OfARootDiffer) {
    EXPECT_EQ(of(Collective::bcast, 2), 400'000U);
    EXPECT_EQ(of(Collective::bcast, 1), 400U);
    EXPECT_EQ(of(Collective::reduce, 2), 400'400U);
    EXPECT_EQ(of(Collective::reduce, 1), 400'000U);
    EXPECT_EQ(of(Collective::gather, 2), 100'400U);
    EXPECT_EQ(of(Collective::gather, 1), 100'000U);
    EXPECT_EQ(of(Collective::scatter, 2), 400'100U);
    EXPECT_EQ(of(Collective::scatter, 1), 100U);
}

TEST(Volumes, AreZeroWhereTheTraceDoesNotSay) {
    EXPECT_EQ(of(Collective::allgatherv, 0), 400U);
    EXPECT_EQ(of(Collective::reduce_scatter, 0), 400'000U);
    EXPECT_EQ(volumes_of(Collective::alltoallv, 0, 4, 0, -1).given, 0U);
    EXPECT_EQ(volumes_of(Collective::barrier, 0, 0, 0, -1).taken, 0U) << "no size is no error";
}

TEST(Volumes, CollectivesHaveTheirNames) {
    EXPECT_EQ(collective_named("reduce_scatter_block"), Collective::reduce_scatter_block);
    EXPECT_EQ(collective_named("messages"), std::nullopt);
}

}  // namespace
}  // namespace flx::trace
