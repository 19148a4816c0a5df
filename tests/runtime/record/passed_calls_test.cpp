#include "runtime/record/passed_calls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "runtime/record/explain.h"
#include "runtime/record/reader.h"
#include "runtime/record/recorder.h"
#include "tests/runtime/record/in_front.h"

namespace flx::record {
namespace {

/// Others may use the core meanwhile.
double cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

class Passed : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        const Status status = passed().begin({true, "", "here", "0badcafe", false});
        ASSERT_TRUE(status.ok()) << status.sentence();
    }
    static ProcessSeen look() {
        ProcessSeen process;
        const Status status = Reader::read(file_of(getuid(), this_process()), process);
        EXPECT_TRUE(status.ok()) << status.sentence();
        return process;
    }
};

TEST_F(Passed, IsSeenWhileMpiHasIt) {
    const uint32_t place = passed().open({kMpiIds, 2, 4, 1, 77, {}});
    ASSERT_NE(place, kNowhere);
    passed().leave(passed().enter(place, bcast(16), 1));
    const uint64_t stamp = passed().enter(place, bcast(64), 2);
    const ProcessSeen process = look();
    const Latest latest = latest_of(process);
    ASSERT_TRUE(latest.inside());
    EXPECT_EQ(describe(latest.comm->id, *latest.call), "call 2 of MPI_COMM_WORLD, bcast of 64 B from rank 1");
    EXPECT_EQ(way_of(*latest.call), "served by MPI");
    EXPECT_EQ(latest.comm->calls, 2U);
    EXPECT_EQ(process.by_mpi, 2U);
    EXPECT_EQ(process.begun, 2U);
    passed().leave(stamp);
    EXPECT_FALSE(latest_of(look()).inside());
    passed().close(place);
    EXPECT_TRUE(look().communicators.empty());
}

TEST_F(Passed, TheRecorderOfFlxGoesOnInTheSameRecord) {
    const uint32_t place = passed().open({kMpiIds + 4711, 0, 2, 1, 78, {}});
    passed().leave(passed().enter(place, bcast(8), 1));
    Recorder &recorder = Recorder::of_process({true, "", "here", false});
    const uint32_t own = recorder.open({1, 0, 2, 1, 79, {}});
    ASSERT_NE(own, kNowhere);
    EXPECT_NE(own, place);
    CallRecord sum;
    sum.collective = algorithms::Collective::allreduce;
    sum.dtype = FLX_F32;
    sum.bytes = 4096;
    recorder.leave(recorder.enter(own, sum, 1, Way::fused), {});
    recorder.leave(recorder.enter(own, sum, 1, Way::exchanged, Carrier::stream), {});
    passed().leave(passed().enter(place, bcast(8), 2));
    const ProcessSeen process = look();
    ASSERT_EQ(process.communicators.size(), 2U);
    for (const CommunicatorSeen &comm : process.communicators) {
        EXPECT_EQ(comm.last.size(), 2U);
        EXPECT_EQ(comm.calls, is_of_mpi(comm.id) ? 2U : 1U) << "those on GPU memory are numbered apart";
    }
    const CallSeen &enqueued = process.communicators[is_of_mpi(process.communicators[0].id) ? 1 : 0].last.back();
    EXPECT_EQ(describe(1, enqueued), "call 1 on GPU memory of communicator 1, allreduce of 4 KiB (f32, sum)");
    EXPECT_EQ(way_of(enqueued), "enqueued on a stream");
    EXPECT_EQ(name_of_communicator(kMpiIds + 4711), "MPI's communicator 4711");
    EXPECT_EQ(process.on_gpus, 1U);
    passed().close(place);
    recorder.close(own);
}

TEST_F(Passed, WhatMpiRefusedIsNoCall) {
    const uint32_t place = passed().open({kMpiIds + 5, 0, 2, 1, 81, {}});
    passed().leave(passed().enter(place, bcast(8), 1));
    const ProcessSeen before = look();
    const uint64_t stamp = passed().enter(place, bcast(16), 2);
    passed().take_back(stamp, place, 1);
    passed().leave(stamp);
    const ProcessSeen process = look();
    EXPECT_EQ(process.begun - process.by_mpi, before.begun - before.by_mpi) << "it is no call of FLX's";
    EXPECT_GE(process.by_mpi, before.by_mpi) << "a counter never falls";
    const auto comm = std::ranges::find(process.communicators, kMpiIds + 5, &CommunicatorSeen::id);
    ASSERT_NE(comm, process.communicators.end());
    EXPECT_EQ(comm->calls, 1U);
    EXPECT_EQ(comm->last.size(), 1U);
    passed().close(place);
}

TEST_F(Passed, HalfOfThePlacesAreLeftToFlx) {
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < PassedCalls::kMost; ++i)
        places.push_back(passed().open({kMpiIds + i, 0, 2, 1, i, {}}));
    EXPECT_NE(places.back(), kNowhere);
    EXPECT_EQ(passed().open({kMpiIds + 99, 0, 2, 1, 99, {}}), kNowhere);
    EXPECT_EQ(passed().enter(kNowhere, bcast(8), 1), 0U);
    passed().leave(0);
    for (const uint32_t place : places)
        passed().close(place);
    const uint32_t again = passed().open({kMpiIds + 99, 0, 2, 1, 99, {}});
    EXPECT_NE(again, kNowhere);
    passed().close(again);
}

TEST_F(Passed, CostsLittle) {
    const uint32_t place = passed().open({kMpiIds, 0, 2, 1, 80, {}});
    constexpr int kTurns = 1'000'000;
    double least = 1e9;
    for (int series = 0; series < 5; ++series) {
        const double began = cpu_ns();
        for (int turn = 1; turn <= kTurns; ++turn)
            passed().leave(passed().enter(place, bcast(8), turn));
        least = std::min(least, (cpu_ns() - began) / kTurns);
    }
    std::printf("%.1f ns a call\n", least);
    EXPECT_LT(least, 200) << "far above what it takes, also on a core that others share";
    passed().close(place);
}

}  // namespace
}  // namespace flx::record
