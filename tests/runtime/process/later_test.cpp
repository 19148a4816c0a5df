#include "runtime/process/later.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>

namespace flx {
namespace {

using std::chrono::milliseconds;

TEST(Later, AsksUntilItIsDoneAndThenLetsGo) {
    std::atomic<bool> may{false};
    std::atomic<int> asked{0};
    auto held = std::make_shared<int>(7);
    const std::weak_ptr<int> seen = held;
    do_later([&may, &asked, held = std::move(held)] {
        ++asked;
        return may.load();
    });
    EXPECT_FALSE(await_later(milliseconds(20)));
    EXPECT_FALSE(seen.expired());
    may = true;
    EXPECT_TRUE(await_later(milliseconds(10'000)));
    EXPECT_TRUE(seen.expired());
    EXPECT_GT(asked.load(), 1);
}

TEST(Later, OneThatIsNotDoneDoesNotHoldUpOthers) {
    std::atomic<bool> may{false};
    std::atomic<bool> other{false};
    do_later([&] { return may.load(); });
    do_later([&] { return other = true; });
    for (int turn = 0; turn < 10'000 && !other; ++turn)
        std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(other);
    may = true;
    EXPECT_TRUE(await_later(milliseconds(10'000)));
}

/// Also such as come while the thread ends, and from bodies.
TEST(Later, NoneIsForgotten) {
    std::atomic<int> done{0};
    constexpr int kRounds = 200;
    for (int round = 0; round < kRounds; ++round) {
        do_later([&] {
            do_later([&] {
                ++done;
                return true;
            });
            throw std::runtime_error("counts as done");
            return false;
        });
        if (round % 10 == 0) {
            EXPECT_TRUE(await_later(milliseconds(10'000)));
        }
    }
    EXPECT_TRUE(await_later(milliseconds(10'000)));
    EXPECT_EQ(done.load(), kRounds);
}

/// Neither is a body asked any more, nor does it keep the process.
TEST(LaterDeathTest, AProcessMayEndMeanwhile) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            do_later([] {
                std::this_thread::sleep_for(milliseconds(20));
                return false;
            });
            std::this_thread::sleep_for(milliseconds(5));
            std::exit(3);
        },
        testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace flx
