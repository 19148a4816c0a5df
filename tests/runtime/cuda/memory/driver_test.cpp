#include <gtest/gtest.h>

#include "runtime/cuda/near/group.h"
#include "tests/runtime/cuda/memory/fake_driver.h"

namespace flx::cuda {
namespace {

/// A program that uses no GPU is asked in every call whether its memory is one's.
TEST(Driver, IsNotInitialisedByLooking) {
    const int memory = 0;
    EXPECT_FALSE(on_device(&memory));
    EXPECT_FALSE(in_use());
    EXPECT_EQ(test::fake_driver().asked_for_context, 2);
    EXPECT_EQ(test::fake_driver().asked_for_more, 0);

    // By the program.
    test::fake_driver().initialised = true;
    EXPECT_FALSE(on_device(&memory)) << "no GPU";
    EXPECT_GT(test::fake_driver().asked_for_more, 0);
    EXPECT_FALSE(why_none().empty());
}

}  // namespace
}  // namespace flx::cuda
