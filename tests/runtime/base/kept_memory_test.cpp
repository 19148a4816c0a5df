#include "runtime/base/kept_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace flx {
namespace {

constexpr size_t kLarge = KeptMemory::kAlwaysKept + 4096;

TEST(KeptMemory, IsTheSameForWhatFits) {
    KeptMemory kept;
    std::byte *memory = kept.take(100'000);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
    std::memset(memory, 1, 100'000);
    for (int i = 0; i < 10 * KeptMemory::kPatience; ++i)
        EXPECT_EQ(kept.take(i % 2 == 0 ? 0 : 10), memory);
    EXPECT_EQ(kept.take(100'000), memory);
}

TEST(KeptMemory, GivesBackWhatOneOperationNeeded) {
    KeptMemory kept;
    ASSERT_NE(kept.take(kLarge), nullptr);
    EXPECT_GE(kept.bytes(), kLarge);
    for (int i = 1; i < KeptMemory::kPatience; ++i) {
        (void)kept.take(0);
        EXPECT_GE(kept.bytes(), kLarge) << i;
    }
    EXPECT_NE(kept.take(1000), nullptr);
    EXPECT_LT(kept.bytes(), 2000U);
}

TEST(KeptMemory, StaysWhereLargeOperationsComeAgain) {
    KeptMemory kept;
    std::byte *memory = kept.take(kLarge);
    for (int i = 0; i < 4 * KeptMemory::kPatience; ++i)
        EXPECT_EQ(kept.take(i % KeptMemory::kPatience == 0 ? kLarge : 0), memory);
}

TEST(KeptMemory, MoreThanThereIs) {
    KeptMemory kept;
    EXPECT_EQ(kept.take(SIZE_MAX / 4), nullptr);
    EXPECT_EQ(kept.bytes(), 0U);
    EXPECT_NE(kept.take(64), nullptr);
}

}  // namespace
}  // namespace flx
