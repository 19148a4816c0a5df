#include "runtime/cuda/memory/farewell.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/runtime/link/ranks.h"

namespace flx::cuda {
namespace {

using std::chrono::milliseconds;

bool all_said_in_time(const Farewell &farewell) {
    constexpr int kMost = 10'000;
    for (int turn = 0; turn < kMost && !farewell.all_said(); ++turn)
        std::this_thread::sleep_for(milliseconds(1));
    return farewell.all_said();
}

TEST(Farewell, MemoryIsUsedAgainOnlyWhenAllPeersHaveSaidThatTheyWriteNoMore) {
    testing::run_group(3, [](Bootstrap &bootstrap) {
        Farewell farewell;
        ASSERT_TRUE(farewell.open(bootstrap).ok());
        EXPECT_FALSE(farewell.all_said());
        ASSERT_TRUE(bootstrap.barrier().ok());
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == bootstrap.rank())
                farewell.say();
            ASSERT_TRUE(bootstrap.barrier().ok());
            EXPECT_EQ(farewell.all_said(), rank == 2 || (rank == 1 && bootstrap.rank() == 2));
            ASSERT_TRUE(bootstrap.barrier().ok());
        }
    });
}

/// A process that ends says nothing. What it had on GPUs ends with it, though perhaps a little later.
TEST(Farewell, WhoIsGoneIsWaitedForALittle) {
    testing::run_group(2, [](Bootstrap &bootstrap) {
        auto farewell = std::make_unique<Farewell>();
        ASSERT_TRUE(farewell->open(bootstrap).ok());
        ASSERT_TRUE(bootstrap.barrier().ok());
        if (bootstrap.rank() == 1)
            farewell.reset();
        ASSERT_TRUE(bootstrap.barrier().ok());
        if (bootstrap.rank() == 1)
            return;
        EXPECT_FALSE(farewell->all_said());
        EXPECT_TRUE(all_said_in_time(*farewell));
    });
}

TEST(Farewell, EachThatIsGoneIsWaitedForByItself) {
    testing::run_group(3, [](Bootstrap &bootstrap) {
        auto farewell = std::make_unique<Farewell>();
        ASSERT_TRUE(farewell->open(bootstrap).ok());
        ASSERT_TRUE(bootstrap.barrier().ok());
        if (bootstrap.rank() == 1)
            farewell.reset();
        ASSERT_TRUE(bootstrap.barrier().ok());
        constexpr int kTurns = 700;  // longer than one that is gone is waited for
        for (int turn = 0; bootstrap.rank() == 0 && turn < kTurns; ++turn) {
            EXPECT_FALSE(farewell->all_said());
            std::this_thread::sleep_for(milliseconds(1));
        }
        ASSERT_TRUE(bootstrap.barrier().ok());
        if (bootstrap.rank() == 2)
            farewell.reset();
        ASSERT_TRUE(bootstrap.barrier().ok());
        if (bootstrap.rank() != 0)
            return;
        EXPECT_FALSE(farewell->all_said()) << "the other one has just gone";
        EXPECT_TRUE(all_said_in_time(*farewell));
    });
}

TEST(Farewell, WhatWasNotOpenedIsNobodys) {
    EXPECT_TRUE(Farewell().all_said());
}

}  // namespace
}  // namespace flx::cuda
