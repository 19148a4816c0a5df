/// Ranks that wait leave their cores to others, also while what they wait for comes over a network.
#include <flx.h>
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/mpi/harness.h"

namespace {

using flx::test::Comm;

double seconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The last rank comes late to each collective; the others' calls last as long, and take a fraction of that of a core.
TEST(Waiting, TakesNoCore) {
    constexpr double kLateS = 0.5;
    constexpr double kMostOfACore = 0.5;
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::vector<float> data(1U << 16, 1.0F);
    for (const size_t count : {size_t{1}, data.size()}) {
        // Connections are made by the first call.
        ASSERT_TRUE(flx::test::succeeded(flx_allreduce(FLX_IN_PLACE, data.data(), count, FLX_F32, FLX_MAX, comm)));
        MPI_Barrier(MPI_COMM_WORLD);
        const bool late = comm.rank() == comm.size() - 1;
        if (late)
            std::this_thread::sleep_for(std::chrono::duration<double>(kLateS));
        const double began = seconds(CLOCK_MONOTONIC), cpu_began = seconds(CLOCK_PROCESS_CPUTIME_ID);
        ASSERT_TRUE(flx::test::succeeded(flx_allreduce(FLX_IN_PLACE, data.data(), count, FLX_F32, FLX_MAX, comm)));
        const double took = seconds(CLOCK_MONOTONIC) - began, cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_began;
        if (late)
            continue;
        std::printf("%zu bytes: waited for %.2f s, with %.0f %% of a core\n", count * sizeof(float), took,
                    100 * cpu / took);
        EXPECT_GT(took, kLateS / 2);
        EXPECT_LT(cpu, kMostOfACore * took) << "all threads of the process";
    }
}

}  // namespace
