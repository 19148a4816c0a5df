#include "runtime/base/text.h"

#include <gtest/gtest.h>

namespace flx {
namespace {

TEST(Text, OfSizesIsExact) {
    EXPECT_EQ(size_text(0), "0 B");
    EXPECT_EQ(size_text(1000), "1000 B");
    EXPECT_EQ(size_text(1536), "1536 B");
    EXPECT_EQ(size_text(64 << 10), "64 KiB");
    EXPECT_EQ(size_text(uint64_t{2048} << 30), "2048 GiB");
}

TEST(Text, OfAmountsIsShort) {
    EXPECT_EQ(short_bytes(0), "0 B");
    EXPECT_EQ(short_bytes(1023), "1023 B");
    EXPECT_EQ(short_bytes(1536), "1.5 KiB");
    EXPECT_EQ(short_bytes(uint64_t{5} << 40), "5.0 TiB");
    EXPECT_EQ(short_bytes(uint64_t{5} << 50), "5120.0 TiB");
}

}  // namespace
}  // namespace flx
