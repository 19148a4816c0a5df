#include "runtime/communicator/late_wait.h"

#include <gtest/gtest.h>

namespace flx {
namespace {

constexpr int64_t kLook = 50'000'000;
constexpr int64_t kAfter = 10'000'000'000;

TEST(LateWait, SaysItOnceForEachWaitThatLasts) {
    LateWait wait;
    int64_t now = 1000;
    const auto waits_once_for = [&](int rank) {
        const int64_t began = now;
        for (; now < began + kAfter; now += kLook)
            EXPECT_FALSE(wait.became_late(rank, now, kAfter));
        EXPECT_TRUE(wait.became_late(rank, now, kAfter));
        EXPECT_EQ(wait.began_ns(rank), began);
        EXPECT_FALSE(wait.became_late(rank, now += kLook, kAfter)) << "it was said";
    };
    waits_once_for(3);
    // It came, and is waited for again later.
    EXPECT_FALSE(wait.became_late(-1, now += kLook, kAfter));
    EXPECT_FALSE(wait.became_late(-1, now += kLook, kAfter));
    waits_once_for(3);
    now += LateWait::kGapNs + 1;
    waits_once_for(3);
}

/// A look may come between two words of the same kernel.
TEST(LateWait, OneLookWithoutANameEndsNothing) {
    LateWait wait;
    int said = 0;
    for (int64_t now = 0; now <= kAfter + kLook; now += kLook)
        said += wait.became_late(now / kLook % 3 == 1 ? -1 : 3, now, kAfter) ? 1 : 0;
    EXPECT_EQ(said, 1);
}

/// Steps that are late again and again are not one that is late for long.
TEST(LateWait, ManyShortWaitsAreNoLongOne) {
    LateWait wait;
    for (int64_t now = 0; now <= 10 * kAfter; now += kLook)
        EXPECT_FALSE(wait.became_late(now / kLook % 10 < 6 ? 3 : -1, now, kAfter));
}

/// Blocks of kernels wait for several ranks and name each now and then.
TEST(LateWait, OfSeveralEachHasATimeOfItsOwn) {
    LateWait wait;
    int said[3] = {};
    for (int64_t now = 0; now <= 2 * kAfter; now += kLook) {
        const int64_t turn = now / kLook;
        const auto awaited = static_cast<int>(now < kAfter / 2 ? turn % 3 : turn % 2);  // the third comes halfway
        said[awaited] += wait.became_late(awaited, now, kAfter) ? 1 : 0;
    }
    EXPECT_EQ(said[0], 1);
    EXPECT_EQ(said[1], 1);
    EXPECT_EQ(said[2], 0);
}

}  // namespace
}  // namespace flx
