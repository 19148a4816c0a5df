/// Hosts that share cores, as containers do, and do not know it: each believes that its two ranks have a core each.
/// They are to find out that others want the core, and yield it: a small collective then takes about as long as with
/// FLX_SPIN_US=0.
#include <flx.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tests/mpi/harness.h"

namespace {

using flx::test::Comm;

/// All ranks on the same two cores.
void share_two_cores() {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    cpu_set_t two;
    CPU_ZERO(&two);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &two);
    ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
}

struct Calls {
    Comm comm;
    const char *name;
    double allreduce_us = std::numeric_limits<double>::infinity();
    double alltoall_us = std::numeric_limits<double>::infinity();

    void run(int times) {
        constexpr size_t kBytes = 1024;
        double values[2] = {1, 0};
        const std::vector<char> out(kBytes * static_cast<size_t>(comm.size()), 'x');
        std::vector<char> in(out.size());
        const double began = MPI_Wtime();
        for (int i = 0; i < times; ++i)
            ASSERT_EQ(flx_allreduce(values, values + 1, 1, FLX_F64, FLX_SUM, comm), FLX_SUCCESS) << flx_last_error();
        const double between = MPI_Wtime();
        for (int i = 0; i < times; ++i)
            ASSERT_EQ(flx_alltoall(out.data(), in.data(), kBytes, FLX_UINT8, comm), FLX_SUCCESS) << flx_last_error();
        const double ended = MPI_Wtime();
        allreduce_us = std::min(allreduce_us, 1e6 * (between - began) / times);
        alltoall_us = std::min(alltoall_us, 1e6 * (ended - between) / times);
        EXPECT_EQ(values[1], comm.size());
        EXPECT_EQ(in, out);
    }
};

TEST(SharedCores, SmallCallsDoNotSpinWhileOthersWantTheCore) {
    constexpr int kTurns = 30;
    constexpr int kLeastTurns = 3;
    constexpr int kCalls = 20;
    constexpr double kMost = 3;
    share_two_cores();
    setenv("FLX_PROBE_MS", "50", 1);
    Calls found{Comm::world(), "by default"};
    setenv("FLX_SPIN_US", "0", 1);
    Calls told{Comm::world(), "with FLX_SPIN_US=0"};
    ASSERT_TRUE(found.comm && told.comm);
    const auto alike = [&] {
        return found.allreduce_us < kMost * told.allreduce_us && found.alltoall_us < kMost * told.alltoall_us;
    };
    // The least of each, as others may want the cores, too.
    for (int turn = 0; turn < kTurns && (turn < kLeastTurns || !flx::test::everywhere(alike())); ++turn)
        for (Calls *calls : {&found, &told})
            calls->run(kCalls);
    for (const Calls *calls : {&found, &told})
        std::printf("rank %d %s: allreduce of 8 B %.1f us, alltoall of 1 KiB %.1f us\n", found.comm.rank(), calls->name,
                    calls->allreduce_us, calls->alltoall_us);
    EXPECT_LT(found.allreduce_us, kMost * told.allreduce_us);
    EXPECT_LT(found.alltoall_us, kMost * told.alltoall_us);
}

}  // namespace
