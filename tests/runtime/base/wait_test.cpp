#include "runtime/base/wait.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/clock.h"

namespace flx {
namespace {

struct Log final : Watch {
    void progress() override { ++progressed; }
    Status check(int64_t waited_ns) override {
        waits.push_back(waited_ns);
        if (static_cast<int>(waits.size()) == fail_at)
            return fail(Fault::peer_died, "rank 3 died");
        return {};
    }
    bool awaited_outside(int64_t /*now*/) override { return awaited; }
    void outlasted() override { ++outlasts; }
    bool arm() override {
        ++arms;
        return false;
    }
    int progressed = 0;
    int arms = 0;
    int outlasts = 0;
    bool awaited = false;
    int fail_at = 0;
    std::vector<int64_t> waits;
};

TEST(Waiter, SpinsBeforeItDoesAnythingElse) {
    const WaitPolicy policy{.spins = 1000, .sleep_after_ns = INT64_MAX, .check_ns = 0};
    Log log;
    Waiter waiter(policy, log);
    for (int i = 0; i < 1000; ++i)
        ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.progressed, 0);
    EXPECT_EQ(log.outlasts, 0);
    for (int i = 0; i < 15; ++i)
        ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.progressed, 0);
    for (int i = 0; i < 100; ++i)
        ASSERT_TRUE(waiter.pause().ok());
    EXPECT_GE(log.progressed, 100) << "the program's traffic moves at each turn";
    EXPECT_EQ(log.waits.size(), 100U);
    EXPECT_EQ(log.outlasts, 1);
}

TEST(Waiter, SaysThatItOutlastedWhereItMayNotSpin) {
    const WaitPolicy policy{.spins = 0};
    Log log;
    Waiter waiter(policy, log);
    ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.outlasts, 1);
    waiter.moved();
    ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.outlasts, 2);
}

/// Whoever waits for the program's own traffic needs a rank that is awake.
TEST(Waiter, StaysAwakeWhileItIsAwaitedOutside) {
    const WaitPolicy policy{.spins = 0, .sleep_after_ns = 100'000, .sleep_ns = 10'000'000};
    Log log;
    log.awaited = true;
    Waiter waiter(policy, log);
    // The time waited begins with the first look. Then by counts: on a busy machine one turn, which yields, may last
    // for longer than a sleep.
    while (log.progressed == 0)
        ASSERT_TRUE(waiter.pause().ok());
    for (const int64_t end = now_ns() + 1'000'000; log.progressed <= 100 || now_ns() < end;)
        ASSERT_TRUE(waiter.pause().ok());
    ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.arms, 0) << "it asked to be woken, so it slept";
    log.awaited = false;
    const int64_t before = now_ns();
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.arms, 2);
    EXPECT_GE(now_ns() - before, 2 * policy.sleep_ns);
}

TEST(Waiter, StartsAgainWhenSomethingMoved) {
    const WaitPolicy policy{.spins = 10, .sleep_after_ns = INT64_MAX, .check_ns = 0};
    Log log;
    Waiter waiter(policy, log);
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < 25; ++i)
            ASSERT_TRUE(waiter.pause().ok());
        waiter.moved();
    }
    EXPECT_EQ(log.progressed, 0);
    // The time waited begins anew too.
    for (int i = 0; i < 26; ++i)
        ASSERT_TRUE(waiter.pause().ok());
    ASSERT_EQ(log.waits.size(), 1U);
    EXPECT_EQ(log.waits[0], 0);
}

TEST(Waiter, PassesOnWhatCheckSays) {
    const WaitPolicy policy{.spins = 0, .sleep_after_ns = INT64_MAX, .check_ns = 0};
    Log log;
    log.fail_at = 3;
    Waiter waiter(policy, log);
    Status status;
    int pauses = 0;
    while (status.ok() && pauses < 1000) {
        status = waiter.pause();
        ++pauses;
    }
    EXPECT_EQ(status.code(), FLX_ERR_PEER);
    EXPECT_EQ(status.sentence(), "rank 3 died [FLX-E601]");
    EXPECT_EQ(log.waits.size(), 3U);
    EXPECT_EQ(pauses, 18);
}

TEST(Waiter, ChecksAtItsIntervalAndSleepsWhenItWaitsLong) {
    const WaitPolicy policy{.spins = 0, .sleep_after_ns = 1'000'000, .sleep_ns = 200'000, .check_ns = 4'000'000};
    Log log;
    Waiter waiter(policy, log);
    const int64_t began = now_ns();
    int pauses = 0;
    for (; log.waits.size() < 5; ++pauses)
        ASSERT_TRUE(waiter.pause().ok());
    const int64_t passed = now_ns() - began;
    EXPECT_GE(passed, 5 * policy.check_ns);
    for (size_t i = 0; i < log.waits.size(); ++i) {
        EXPECT_GE(log.waits[i], static_cast<int64_t>(i + 1) * policy.check_ns);
        EXPECT_LE(log.waits[i], passed);
    }
    // Asleep it looks at the program's traffic every time, and no more often than the naps let it.
    EXPECT_GT(log.progressed, 5);
    const int64_t before = now_ns();
    const int turns = log.progressed;
    for (int i = 0; i < 20; ++i)
        ASSERT_TRUE(waiter.pause().ok());
    EXPECT_EQ(log.progressed, turns + 20);
    EXPECT_GE(now_ns() - before, 20 * policy.sleep_ns);
}

}  // namespace
}  // namespace flx
