#include "runtime/base/core_share.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "runtime/base/clock.h"

namespace flx {
namespace {

constexpr int64_t kMs = 1'000'000;

/// A thread's totals, which a test lets grow.
struct Totals {
    CoreShare share;
    int64_t ran = 5000 * kMs;
    int64_t waited = 700 * kMs;
    int64_t turns = 3000;

    Totals() { share.add(ran, waited, turns); }
    void pass(int64_t more_ran, int64_t more_waited, int64_t more_turns = 1) {
        share.add(ran += more_ran, waited += more_waited, turns += more_turns);
    }
    [[nodiscard]] bool shared() const { return share.use() != CoreUse::alone; }
};

TEST(CoreShare, WhatWasBeforeSaysNothing) {
    const Totals totals;
    EXPECT_FALSE(totals.shared());
}

TEST(CoreShare, SeesThatOthersRunInItsPlace) {
    Totals totals;
    totals.pass(10 * kMs, 10 * kMs);
    EXPECT_TRUE(totals.shared());
}

TEST(CoreShare, SmallWaitsAreNothing) {
    Totals totals;
    for (int i = 0; i < 100; ++i)
        totals.pass(99 * kMs, kMs);
    EXPECT_FALSE(totals.shared());
}

TEST(CoreShare, JudgesNoShortStretch) {
    Totals totals;
    totals.pass(kMs, 4 * kMs);  // a few ms of bad luck
    EXPECT_FALSE(totals.shared());
    totals.pass(95 * kMs, 0);
    EXPECT_FALSE(totals.shared());
    // Many short ones are judged together.
    for (int i = 0; i < 4; ++i)
        totals.pass(4 * kMs, kMs);
    EXPECT_TRUE(totals.shared());
}

TEST(CoreShare, SleepIsNeither) {
    Totals totals;
    for (int i = 0; i < 1000; ++i)
        totals.pass(0, 0);
    EXPECT_FALSE(totals.shared());
}

TEST(CoreShare, TakesAWhileToBelieveThatTheyAreGone) {
    Totals totals;
    totals.pass(10 * kMs, 10 * kMs);
    for (int i = 0; i < CoreShare::kCalmStretches - 1; ++i)
        totals.pass(20 * kMs, 0);
    EXPECT_TRUE(totals.shared());
    totals.pass(97 * kMs, 3 * kMs);  // neither calm nor shared: it begins anew
    for (int i = 0; i < CoreShare::kCalmStretches - 1; ++i)
        totals.pass(20 * kMs, 0);
    EXPECT_TRUE(totals.shared());
    totals.pass(20 * kMs, 0);
    EXPECT_FALSE(totals.shared());
}

TEST(CoreShare, TellsWhoGivesTheCoreBackFromWhoKeepsIt) {
    Totals totals;
    totals.pass(10 * kMs, 10 * kMs, 5);
    EXPECT_EQ(totals.share.use(), CoreUse::contested);
    totals.pass(10 * kMs, 10 * kMs, 1000);
    EXPECT_EQ(totals.share.use(), CoreUse::in_turns);
    totals.pass(18 * kMs, 2 * kMs, 1000);
    EXPECT_EQ(totals.share.use(), CoreUse::in_turns);
    totals.pass(10 * kMs, 10 * kMs, 5);
    EXPECT_EQ(totals.share.use(), CoreUse::contested);
    totals.pass(18 * kMs, 2 * kMs, 1000);
    EXPECT_EQ(totals.share.use(), CoreUse::contested) << "a neighbour's noise";
    totals.pass(10 * kMs, 10 * kMs, 1000);
    EXPECT_EQ(totals.share.use(), CoreUse::in_turns);
    totals.pass(20 * kMs, 0, 1000);
    EXPECT_EQ(totals.share.use(), CoreUse::contested) << "whoever they were, they are gone";
}

/// An hour without a call is one stretch, not many.
TEST(CoreShare, ALongComputationIsOneStretch) {
    Totals totals;
    totals.pass(10 * kMs, 10 * kMs, 1000);
    totals.pass(3'600'000 * kMs, 0);
    EXPECT_EQ(totals.share.use(), CoreUse::contested);
    for (int i = 0; i < CoreShare::kCalmStretches; ++i)
        totals.pass(20 * kMs, 0);
    EXPECT_EQ(totals.share.use(), CoreUse::alone);
    totals.pass(3'600'000 * kMs, 60'000 * kMs, 1000);  // others came by now and then
    EXPECT_EQ(totals.share.use(), CoreUse::alone);
}

/// The kernel's own word: two threads that never sleep, on one core.
TEST(CoreShare, TwoThreadsOnOneCore) {
    if (access("/proc/thread-self/schedstat", R_OK) != 0)
        GTEST_SKIP() << "this kernel does not say how long a thread waits for a core";
    std::atomic<bool> seen{false};
    const auto run = [&] {
        for (const int64_t end = now_ns() + 5'000 * kMs; !seen && now_ns() < end;)
            if (core_use() != CoreUse::alone)
                seen = true;
    };
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // which threads inherit
    std::thread other(run);
    run();
    other.join();
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace flx
