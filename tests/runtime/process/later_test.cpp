#include "runtime/process/later.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

namespace flx {
namespace {

using std::chrono::milliseconds;

bool eventually(const std::function<bool()> &condition, int most_ms = 10'000) {
    for (int turn = 0; turn < most_ms; ++turn) {
        if (condition())
            return true;
        std::this_thread::sleep_for(milliseconds(1));
    }
    return condition();
}

TEST(Later, AsksUntilItIsDoneAndThenLetsGo) {
    std::atomic<bool> may{false};
    std::atomic<int> asked{0};
    auto held = std::make_shared<int>(7);
    const std::weak_ptr<int> seen = held;
    do_later([&may, &asked, held = std::move(held)] {
        ++asked;
        return may.load();
    });
    EXPECT_TRUE(eventually([&] { return asked > 2; }));
    EXPECT_FALSE(seen.expired());
    may = true;
    EXPECT_TRUE(eventually([&] { return seen.expired(); }));
}

TEST(Later, OneThatIsNotDoneDoesNotHoldUpOthers) {
    // Bodies may be asked once more than this test lasts.
    auto may = std::make_shared<std::atomic<bool>>(false);
    auto other = std::make_shared<std::atomic<bool>>(false);
    const std::weak_ptr<std::atomic<bool>> seen = may;
    do_later([may] { return may->load(); });
    do_later([other] { return *other = true; });
    EXPECT_TRUE(eventually([&] { return other->load(); }));
    *may = true;
    may.reset();
    EXPECT_TRUE(eventually([&] { return seen.expired(); }));
}

/// Also such as come while the thread ends, and from bodies.
TEST(Later, NoneIsForgotten) {
    std::atomic<int> done{0};
    constexpr int kRounds = 200;
    constexpr int kTogether = 10;
    for (int round = 1; round <= kRounds; ++round) {
        do_later([&] {
            do_later([&] {
                ++done;
                return true;
            });
            throw std::runtime_error("counts as done");
            return false;
        });
        if (round % kTogether == 0) {
            EXPECT_TRUE(eventually([&] { return done == round; }));
        }
    }
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

/// The child's code, or -1: it had to be killed.
int code_of_child(const std::function<int()> &body) {
    const pid_t child = fork();
    if (child == 0)
        std::exit(body());
    constexpr int kMostMs = 600;  // less than a process that ends waits for a body
    int state = 0;
    if (eventually([&] { return waitpid(child, &state, WNOHANG) == child; }, kMostMs))
        return WIFEXITED(state) ? WEXITSTATUS(state) : -2;
    kill(child, SIGKILL);
    waitpid(child, &state, 0);
    return -1;
}

/// Whatever the thread and others are at: it has no thread, and nothing of its parent's to free.
TEST(Later, AForkedChildEndsAtOnceAndHasAThreadOfItsOwn) {
    auto may = std::make_shared<std::atomic<bool>>(false);
    const std::weak_ptr<std::atomic<bool>> seen = may;
    std::atomic<bool> asked{false};
    do_later([may, &asked] {
        asked = true;
        std::this_thread::sleep_for(milliseconds(2));
        return may->load();
    });
    ASSERT_TRUE(eventually([&] { return asked.load(); }));
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop) {
            do_later([] { return true; });
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    });
    constexpr int kForks = 20;
    constexpr int kCode = 5;
    for (int turn = 0; turn < kForks; ++turn)
        EXPECT_EQ(code_of_child([] { return kCode; }), kCode);
#ifndef __SANITIZE_THREAD__  // it allows no threads in a child of a process that has several
    EXPECT_EQ(code_of_child([] {
                  std::atomic<bool> done{false};
                  do_later([&] { return done = true; });
                  return eventually([&] { return done.load(); }, 500) ? kCode : 1;
              }),
              kCode);
#endif
    stop = true;
    busy.join();
    *may = true;
    may.reset();
    EXPECT_TRUE(eventually([&] { return seen.expired(); }));
}

}  // namespace
}  // namespace flx
