#include "runtime/base/boot_id.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace flx {
namespace {

TEST(BootId, IsTheKernelsWord) {
    std::string word;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> word;
    if (word.empty())
        GTEST_SKIP() << "skipped: the kernel's word cannot be read here";
    EXPECT_EQ(boot_id(), word);
}

/// Hosts whose kernels say nothing differ by name.
TEST(BootId, IsTheHostsNameWhereTheKernelSaysNothing) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    for (const char *unreadable : {"/nowhere/boot_id", "/dev/null"}) {
        EXPECT_EQ(boot_id(unreadable).substr(0, std::string(name).size() + 1), std::string(name) + " ");
        EXPECT_EQ(boot_id(unreadable), boot_id(unreadable));
    }
}

}  // namespace
}  // namespace flx
