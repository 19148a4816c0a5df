#include "runtime/base/late_wait.h"

#include <gtest/gtest.h>

namespace flx {
namespace {

TEST(LateWait, SaysItOnceForEachWaitThatLasts) {
    LateWait wait;
    constexpr int64_t kAfter = 100;
    EXPECT_FALSE(wait.became_late(-1, 0, kAfter));
    EXPECT_FALSE(wait.became_late(3, 1000, kAfter));
    EXPECT_FALSE(wait.became_late(3, 1099, kAfter));
    EXPECT_TRUE(wait.became_late(3, 1100, kAfter));
    EXPECT_EQ(wait.began_ns(), 1000);
    EXPECT_FALSE(wait.became_late(3, 5000, kAfter)) << "it was said";
    EXPECT_FALSE(wait.became_late(2, 5010, kAfter)) << "another one's turn";
    EXPECT_FALSE(wait.became_late(-1, 5109, kAfter)) << "it came";
    EXPECT_FALSE(wait.became_late(2, 5110, kAfter)) << "the next wait begins anew";
    EXPECT_TRUE(wait.became_late(2, 5210, kAfter));
    EXPECT_FALSE(wait.became_late(-1, 9000, kAfter));
}

}  // namespace
}  // namespace flx
