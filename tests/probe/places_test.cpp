#include "probe/places.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace flx::probe {
namespace {

LastCaches caches_of(const char *description) {
    setenv("HWLOC_SYNTHETIC", description, 1);
    LastCaches caches;
    const Status status = read_last_caches(caches);
    unsetenv("HWLOC_SYNTHETIC");
    EXPECT_TRUE(status.ok()) << status.sentence();
    return caches;
}

TEST(LastCaches, AreTheOutermost) {
    const LastCaches of_nests =
        caches_of("pack:2 l3:4(size=33554432) core:8 l2:1(size=1048576) l1d:1(size=32768) pu:1");
    EXPECT_EQ(of_nests.bytes, size_t{32} << 20);
    EXPECT_EQ(of_nests.count, 8);
    const LastCaches without_l3 = caches_of("pack:1 l2:2(size=2097152) core:2 l1d:1(size=32768) pu:1");
    EXPECT_EQ(without_l3.bytes, size_t{2} << 20);
    EXPECT_EQ(without_l3.count, 2);
}

TEST(LastCaches, AreNotKnownWhereThereAreNone) {
    const LastCaches caches = caches_of("numa:1 core:3 pu:1");
    EXPECT_EQ(caches.bytes, 0U);
    EXPECT_EQ(caches.count, 0);
}

}  // namespace
}  // namespace flx::probe
