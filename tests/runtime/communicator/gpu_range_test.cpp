#include "runtime/communicator/gpu_range.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace flx {
namespace {

void *listener(const char *name) {
    void *const library = dlopen(FLX_TEST_LISTENER, RTLD_NOW | RTLD_NOLOAD);
    return library == nullptr ? nullptr : dlsym(library, name);
}

/// Others may use the core meanwhile.
double cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

/// The test runs in a process of its own, as NVTX looks for a profiler once.
TEST(GpuRange, AProfilerSeesKindAndBytes) {
    setenv("NVTX_INJECTION64_PATH", FLX_TEST_LISTENER, 1);
    {
        const GpuRange outer("allreduce", 4096);
        const GpuRange inner("messages", 77);
    }
    ASSERT_NE(listener("nvtx_opened"), nullptr) << "NVTX did not load it";
    EXPECT_EQ(*static_cast<int *>(listener("nvtx_opened")), 2);
    EXPECT_EQ(*static_cast<int *>(listener("nvtx_closed")), 2);
    EXPECT_EQ(*static_cast<unsigned long long *>(listener("nvtx_bytes")), 77U);
    EXPECT_EQ(std::string(static_cast<char *>(listener("nvtx_name"))), "messages 77 B");
    EXPECT_EQ(std::string(static_cast<char *>(listener("nvtx_domain"))), "FLX");
}

TEST(GpuRange, CostsNothingWhereNobodyLooks) {
    if (listener("nvtx_opened") != nullptr)
        GTEST_SKIP() << "the other test was in this process";
    unsetenv("NVTX_INJECTION64_PATH");
    constexpr int kTurns = 1'000'000;
    const double began = cpu_ns();
    for (int turn = 0; turn < kTurns; ++turn)
        const GpuRange range("allreduce", 4096);
    const double ns = (cpu_ns() - began) / kTurns;
    EXPECT_EQ(listener("nvtx_opened"), nullptr);
    std::printf("%.1f ns a range\n", ns);
    EXPECT_LT(ns, 50) << "far above what it takes, also on a core that others share";
}

}  // namespace
}  // namespace flx
