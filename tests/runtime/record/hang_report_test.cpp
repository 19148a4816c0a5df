#include "runtime/record/hang_report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/record/job.h"

namespace flx::record {
namespace {

std::string text_of(const std::vector<std::string> &lines) {
    std::string text;
    for (const std::string &line : lines)
        text += line + "\n";
    return text;
}

TEST(HangReport, RanksInTheSameShareALine) {
    Job job(6);
    job.leave(2);
    job.comm(2).last.back().left_ns = kNow - 2 * kSecond;
    for (const int rank : {0, 1, 3, 4, 5})
        job.comm(rank).waits_for = 2;
    const std::vector<std::string> lines = hang_report("asked", job.processes, {});
    ASSERT_EQ(lines.size(), 4U) << text_of(lines);
    EXPECT_EQ(lines[0].rfind("asked; 6 ranks on here", 0), 0U) << lines[0];
    EXPECT_EQ(
        lines[1],
        "ranks 0-1, 3-5: in call 10 of communicator 1, allreduce of 8 B (f32, sum) (fused), waits for rank 2, since "
        "2.0 s");
    EXPECT_EQ(
        lines[2],
        "rank 2 (pid 102): outside of FLX, after call 9 of communicator 1, allreduce of 8 B (f32, sum), since 2.0 s");
    EXPECT_EQ(lines[3].rfind("late: ", 0), 0U) << lines[3];
}

TEST(HangReport, WhatIsUnderWayIsSoSinceItBegan) {
    Job job(1);
    job.comm(0).last.back().what.kind = CallKind::non_blocking;
    const std::string text = text_of(hang_report("asked", job.processes, {}));
    EXPECT_NE(text.find("rank 0 (pid 100): outside of FLX, after call 10 of communicator 1, non-blocking allreduce of "
                        "8 B (f32, sum), since 2.0 s"),
              std::string::npos)
        << text;
}

TEST(HangReport, SaysWhatIsMissingAndWhatLinksCarried) {
    Job job(2, 2);
    job.processes.pop_back();
    CommunicatorSeen &comm = job.comm(0);
    comm.waits_for = 1;
    comm.missing = 4096;
    comm.unacknowledged = 100;
    comm.progress = {.steps_done = 5, .steps = 8, .phase = 1, .phases = 2, .part = Part::between_hosts};
    comm.links = {{"rail0", 2'500'000, 1, true}, {"rail1", 0, 0, false}};
    const std::string text = text_of(hang_report("asked", job.processes, {}));
    EXPECT_NE(text.find(", between hosts, in phase 2 of 2, 5 of 8 steps done, waits for rank 1"), std::string::npos)
        << text;
    EXPECT_NE(text.find("waits for rank 1, from which 4096 B are missing, which has 100 B not acknowledged"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("sent so far: rail0 2.5 MB, rail1 is off"), std::string::npos) << text;
}

TEST(HangReport, StoppedDeadAndIdleOnes) {
    Job job(4);
    job.processes[1].life = Life::stopped;
    job.processes[2].life = Life::dead;
    job.processes[3].communicators.clear();
    const std::string text = text_of(hang_report("asked", job.processes, {}));
    EXPECT_NE(text.find("rank 1 (pid 101): stopped by a signal or a debugger, in call 10"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 2 (pid 102): died"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 3 (pid 103): no call so far"), std::string::npos) << text;
    EXPECT_TRUE(hang_report("asked", {}, {}).empty());
}

TEST(HangReport, CallsThatMpiHasAndThoseOnStreams) {
    Job job(2);
    job.comm(0).id = kMpiIds;
    job.comm(0).last.back().carrier = Carrier::mpi;
    CallSeen &call = job.comm(1).last.back();
    call.carrier = Carrier::stream;
    call.on_gpus = 3;
    call.number = 0;
    call.left_ns = kNow - kSecond;
    const std::string text = text_of(hang_report("asked", job.processes, {}));
    EXPECT_NE(text.find("rank 0 (pid 100): in call 10 of MPI_COMM_WORLD, allreduce of 8 B (f32, sum) (served by MPI), "
                        "since 2.0 s"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("rank 1 (pid 101): outside of FLX, the last call enqueued is call 3 on GPU memory of "
                        "communicator 1, allreduce of 8 B (f32, sum), since 1.0 s"),
              std::string::npos)
        << text;
}

TEST(HangReport, AJobIsWhatOneLauncherStartedOrSharesACommunicator) {
    Job job(3);
    Job other(2);
    for (ProcessSeen &process : other.processes) {
        process.id.pid += 100;
        for (CommunicatorSeen &comm : process.communicators)
            comm.first_uid = 8;
    }
    std::vector<ProcessSeen> all = other.processes;
    all.insert(all.end(), job.processes.rbegin(), job.processes.rend());
    std::vector<ProcessSeen> found = job_of({101, 1}, all);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].pid, 100);
    EXPECT_EQ(found[2].pid, 102);
    EXPECT_TRUE(job_of({7, 1}, all).empty());
    for (ProcessSeen &process : all)
        process.job = "one";
    EXPECT_EQ(job_of({101, 1}, all).size(), 5U);
}

TEST(HangReport, TheFirstThatWasAskedAndRunsSpeaks) {
    Job job(4);
    EXPECT_EQ(speaker(job.processes, kNow), nullptr);
    for (const int rank : {1, 2, 3})
        job.processes[rank].signalled_ns = kNow;
    EXPECT_EQ(speaker(job.processes, kNow), &job.processes[1]);
    EXPECT_EQ(speaker(job.processes, kNow + 1), nullptr);
    job.processes[1].life = Life::stopped;
    job.processes[2].life = Life::dead;
    EXPECT_EQ(speaker(job.processes, kNow), &job.processes[3]);
    job.processes[0].answered_ns = kNow - 1;
    EXPECT_EQ(speaker(job.processes, kNow), &job.processes[3]) << "that was before it was asked";
    job.processes[0].answered_ns = kNow;
    EXPECT_EQ(speaker(job.processes, kNow), nullptr) << "they were told already";
}

TEST(HangReport, OfThoseThatReportByThemselvesTheFirstDoes) {
    Job job(3);
    EXPECT_FALSE(another_reports(job.processes, {101, 1}, kNow - kSecond));
    for (const int rank : {1, 2})
        job.processes[rank].reports_ns = kNow;
    EXPECT_FALSE(another_reports(job.processes, {101, 1}, kNow - kSecond));
    EXPECT_TRUE(another_reports(job.processes, {102, 1}, kNow - kSecond));
    job.processes[2].reports_ns = kNow - 1;
    EXPECT_TRUE(another_reports(job.processes, {101, 1}, kNow - kSecond));
    EXPECT_FALSE(another_reports(job.processes, {101, 1}, kNow));  // that was before
}

}  // namespace
}  // namespace flx::record
