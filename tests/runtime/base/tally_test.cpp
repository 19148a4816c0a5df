#include "runtime/base/tally.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace flx {
namespace {

/// As many threads as have places of their own, more than that, and later ones that get the places of those that ended.
TEST(Tally, CountsWhatAllThreadsAdd) {
    constexpr uint64_t kTimes = 20'000;
    Tally tally, other;
    uint64_t expected = 0;
    for (const size_t threads : {size_t{1}, Tally::kOwn / 2, 3 * Tally::kOwn, Tally::kOwn}) {
        std::vector<std::thread> running;
        for (size_t thread = 0; thread < threads; ++thread)
            running.emplace_back([&] {
                for (uint64_t time = 0; time < kTimes; ++time) {
                    tally.add(3);
                    other.add(static_cast<uint64_t>(-1));
                }
            });
        for (std::thread &thread : running)
            thread.join();
        expected += threads * kTimes;
        EXPECT_EQ(tally.sum(), 3 * expected);
        EXPECT_EQ(other.sum(), 0 - expected) << "modulo 2^64";
    }
}

}  // namespace
}  // namespace flx
