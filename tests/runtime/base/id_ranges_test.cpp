#include "runtime/base/id_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace flx {
namespace {

TEST(IdRanges, OneRangeForAllThatCameAndWent) {
    IdRanges ids;
    for (uint32_t id = 1; id <= 100'000; ++id)
        ids.insert(id);
    EXPECT_EQ(ids.ranges(), 1U);
    EXPECT_TRUE(ids.contains(1) && ids.contains(100'000));
    EXPECT_FALSE(ids.contains(0) || ids.contains(100'001));
}

TEST(IdRanges, TheEndsOfAllNumbers) {
    IdRanges ids;
    ids.insert(UINT32_MAX);
    ids.insert(0);
    ids.insert(UINT32_MAX - 1);
    EXPECT_EQ(ids.ranges(), 2U);
    EXPECT_TRUE(ids.contains(UINT32_MAX) && ids.contains(0));
    ids.erase(UINT32_MAX);
    EXPECT_FALSE(ids.contains(UINT32_MAX));
    EXPECT_TRUE(ids.contains(UINT32_MAX - 1));
}

TEST(IdRanges, HoldWhatASetHolds) {
    std::mt19937 random(3);
    IdRanges ids;
    std::set<uint32_t> expected;
    for (int i = 0; i < 20'000; ++i) {
        const uint32_t id = random() % 40;
        if (random() % 2 == 0) {
            ids.insert(id);
            expected.insert(id);
        } else {
            ids.erase(id);
            expected.erase(id);
        }
        size_t runs = 0;
        for (uint32_t each = 0; each < 42; ++each) {
            ASSERT_EQ(ids.contains(each), expected.contains(each));
            runs += expected.contains(each) && !expected.contains(each + 1) ? 1 : 0;
        }
        ASSERT_EQ(ids.ranges(), runs);
    }
}

}  // namespace
}  // namespace flx
