#include "runtime/record/explain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/record/job.h"

namespace flx::record {
namespace {

void expect_one(const std::vector<Finding> &findings, Trouble trouble, int rank, const char *part) {
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(name_of(findings[0].trouble), name_of(trouble));
    EXPECT_EQ(findings[0].rank, rank);
    EXPECT_NE(findings[0].sentence.find(part), std::string::npos) << findings[0].sentence;
    EXPECT_FALSE(findings[0].advice.empty());
}

TEST(Explain, ARankThatHasNotMadeTheCallIsNamed) {
    Job job(4);
    job.leave(2);
    job.processes[2].life = Life::running;
    expect_one(job.explain(), Trouble::late, 2, "rank 2 (pid 102 on here), which left its last call 3.0 s ago");
    EXPECT_NE(job.explain()[0].sentence.find("uses its core"), std::string::npos);
    EXPECT_NE(job.explain()[0].sentence.find("call 10 of communicator 1"), std::string::npos);
    EXPECT_EQ(job.explain()[0].waiting, 3U);
    job.processes[2].life = Life::sleeping;
    EXPECT_NE(job.explain()[0].sentence.find("sleeps"), std::string::npos);
    job.before = job.processes;
    job.before[2].seen_ns -= kSecond / 5;
    job.processes[2].cpu_ns += kSecond / 100;  // a thread that wakes up now and then
    EXPECT_NE(job.explain()[0].sentence.find("sleeps"), std::string::npos);
    job.processes[2].cpu_ns += kSecond / 10;
    EXPECT_NE(job.explain()[0].sentence.find("uses its core"), std::string::npos);
    job.before = job.processes;  // many others are on its core
    job.before[2].seen_ns -= kSecond / 5;
    job.before[2].life = job.processes[2].life = Life::running;
    EXPECT_NE(job.explain()[0].sentence.find("uses its core"), std::string::npos);
}

TEST(Explain, AStoppedOneADeadOneAndOneThatIsGone) {
    Job job(3);
    job.leave(1);
    job.processes[1].life = Life::stopped;
    expect_one(job.explain(), Trouble::stopped, 1, "stopped");
    EXPECT_NE(job.explain()[0].advice.find("kill -CONT 101"), std::string::npos);
    job.processes[1].life = Life::dead;
    expect_one(job.explain(), Trouble::dead, 1, "died");
    job.processes.erase(job.processes.begin() + 1);
    expect_one(job.explain(), Trouble::dead, 1, "has ended");
}

TEST(Explain, ALateOneInAContainerIsNotSaidToBeDeadOrAsleep) {
    Job job(3);
    job.leave(1);
    job.processes[1].life = Life::hidden;
    job.processes[1].pid = 0;
    expect_one(job.explain(), Trouble::late, 1,
               "rank 1 (pid 101 in its container on here), which left its last call 3.0 s");
    EXPECT_NE(job.explain()[0].sentence.find("and lives"), std::string::npos);
    EXPECT_NE(job.explain()[0].advice.find(", in its container: gdb -p 101"), std::string::npos);
}

TEST(Explain, WhatOtherHostsDoIsNotKnownHere) {
    Job job(4, 2);
    job.processes.erase(job.processes.begin() + 3);
    expect_one(job.explain(), Trouble::elsewhere, 3, "this host knows nothing");
}

TEST(Explain, NobodyWaitsBeforeItsTime) {
    Job job(3);
    job.leave(0);
    EXPECT_TRUE(explain(job.processes, {}, 3 * kSecond).empty());
    EXPECT_TRUE(explain({}, {}, kPatience).empty());
}

TEST(Explain, CallsThatDoNotMatch) {
    Job job(4);
    job.leave(3);
    job.enter(3, 10, call_of(4096));
    expect_one(job.explain(), Trouble::mismatch, 3, "allreduce of 4 KiB");
    // Also where the odd one has ended already.
    job.comm(3).last.back().left_ns = kNow - kSecond;
    expect_one(job.explain(), Trouble::mismatch, 3, "and rank 0");
    CallRecord freed;
    freed.kind = CallKind::freed;
    job.leave(3);
    job.enter(3, 10, freed);
    expect_one(job.explain(), Trouble::mismatch, 3, "flx_comm_free");
}

TEST(Explain, TheOneThatOthersWaitForIndirectlyIsNamedAlone) {
    Job job(3);
    for (int rank = 1; rank < 3; ++rank)
        job.processes[rank].communicators.push_back(Job::communicator(2, rank - 1, 2));
    job.leave(1);
    job.enter(1, 10, call_of(8), 1);  // it waits on communicator 2 for rank 2
    job.leave(2);                     // which is nowhere
    const std::vector<Finding> findings = job.explain();
    ASSERT_FALSE(findings.empty());
    for (const Finding &finding : findings) {
        EXPECT_EQ(name_of(finding.trouble), "late");
        EXPECT_EQ(job.processes[finding.process].pid, 102);
    }
}

TEST(Explain, CallsOnTwoCommunicatorsThatCross) {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank)
        job.processes[rank].communicators.push_back(Job::communicator(2, rank, 2));
    job.leave(1);
    job.enter(1, 10, call_of(8), 1);
    expect_one(job.explain(), Trouble::mismatch, 1,
               "cross: rank 0 (pid 100 on here) waits in call 10 of communicator 1");
}

TEST(Explain, MessagesAreForTheRankThatIsSaid) {
    Job job(3);
    for (int rank = 0; rank < 3; ++rank)
        job.leave(rank);
    CallRecord message;
    message.collective = algorithms::Collective::send_recv;
    job.enter(0, 0, message);
    job.comm(0).calls = 9;
    EXPECT_TRUE(job.explain().empty());
    job.comm(0).waits_for = 2;
    expect_one(job.explain(), Trouble::late, 2, "messages of communicator 1");
}

TEST(Explain, AllAreInTheCallAndBytesMove) {
    Job job(2);
    for (ProcessSeen &process : job.processes)
        process.communicators[0].links.push_back({"eth0", 1'000'000, 1, true});
    job.before = job.processes;
    for (ProcessSeen &process : job.before)
        process.seen_ns -= kSecond;
    for (ProcessSeen &process : job.processes)
        process.communicators[0].links[0].sent += 5'000'000;
    expect_one(job.explain(), Trouble::slow, 0, "eth0 10.0 MB/s");
}

/// A job on MPI_COMM_WORLD alone, or on another communicator of MPI's, all of whose calls MPI has.
Job passed_on(int size, uint32_t id = kMpiIds) {
    Job job(size);
    for (int rank = 0; rank < size; ++rank) {
        job.comm(rank).id = id;
        for (CallSeen &call : job.comm(rank).last)
            call.carrier = Carrier::mpi;
    }
    return job;
}

TEST(Explain, CallsThatMpiHas) {
    Job job = passed_on(3);
    expect_one(job.explain(), Trouble::slow, 0, "which all ranks are in and MPI serves");
    job.leave(1);
    expect_one(job.explain(), Trouble::late, 1, "wait in call 10 of MPI_COMM_WORLD, allreduce of 8 B");
    job.enter(1, 10, call_of(4096));
    expect_one(job.explain(), Trouble::mismatch, 1, "call 10 of MPI_COMM_WORLD, allreduce of 4 KiB");
    // One that has made no call on such a communicator has no place there.
    job = passed_on(3, kMpiIds + 7);
    job.processes[2].communicators.clear();
    expect_one(job.explain(), Trouble::late, 2, "call 10 of MPI's communicator 7");
}

/// One rank is in a call that FLX has, and another in one that MPI has.
TEST(Explain, CallsOfFlxAndOfMpiCross) {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank)
        job.processes[rank].communicators.push_back(Job::communicator(kMpiIds, rank, 2));
    job.leave(1);
    job.enter(1, 10, call_of(8), 1);
    expect_one(job.explain(), Trouble::mismatch, 1, "and rank 1 (pid 101 on here) in call 10 of MPI_COMM_WORLD");
}

TEST(Explain, CallsOnGpuMemoryHaveNumbersOfTheirOwn) {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank) {
        CallSeen &call = job.comm(rank).last.back();
        call.number = 0;
        call.on_gpus = 3;
        call.carrier = Carrier::gpu;
    }
    job.comm(1).last.back().on_gpus = 2;
    job.comm(1).last.back().left_ns = kNow - kSecond;
    expect_one(job.explain(), Trouble::late, 1, "waits in call 3 on GPU memory of communicator 1");
}

/// In a call that does not block a rank is only where it waits for it.
TEST(Explain, AWaitForACallThatDoesNotBlock) {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank)
        job.leave(rank);
    CallRecord record = call_of(8);
    record.kind = CallKind::non_blocking;
    job.enter(0, 10, record);
    EXPECT_TRUE(job.explain().empty()) << "it computes meanwhile";
    job.comm(0).waits_for = 1;
    expect_one(job.explain(), Trouble::late, 1, "rank 0 (pid 100 on here) waits in call 10");
}

TEST(Explain, RanksThatWaitForEachOtherOnOneCommunicator) {
    Job job(2);
    CallRecord message;
    message.collective = algorithms::Collective::send_recv;
    for (int rank = 0; rank < 2; ++rank) {
        job.leave(rank);
        job.enter(rank, 0, message);
        job.comm(rank).calls = 9;
        job.comm(rank).waits_for = 1 - rank;
    }
    expect_one(job.explain(), Trouble::late, 0, "wait for each other");
}

TEST(Explain, ABrokenCommunicatorSaysWhy) {
    Job job(2);
    for (int rank = 0; rank < 2; ++rank) {
        job.leave(rank);
        job.comm(rank).broken = true;
        job.comm(rank).why_broken = "rank 1 died during barrier";
    }
    expect_one(job.explain(), Trouble::broken, 0, "rank 1 died during barrier");
}

TEST(Explain, ALinkThatIsLostOrSlowIsNamedOnce) {
    Job job(2, 2);
    for (const int rank : {0, 1}) {
        job.leave(rank);
        job.comm(rank).links = {{"rail1", 1000, 0.6, true, -1, 1e8, 9e7}, {"rail2", 1000, 0.4, true, -1, 5e7, 5e7}};
    }
    EXPECT_TRUE(job.explain().empty());
    job.comm(1).links[1].lost_to = 0;
    expect_one(job.explain(), Trouble::link, 1, "rail2 does not reach rank 0 of communicator 1 from rank 1 (pid 101");
    job.comm(0).links[1].lost_to = 1;
    expect_one(job.explain(), Trouble::link, 0, "rail2 does not reach rank 1");
    for (const int rank : {0, 1}) {
        job.comm(rank).links[1].lost_to = -1;
        job.comm(rank).links[0].bytes_per_s = 2e7;
    }
    expect_one(job.explain(), Trouble::link, 0,
               "rail1 delivers 20.0 MB/s on communicator 1 from rank 0 (pid 100 on here), and 100.0 MB/s");
    // Where one is stopped nothing is delivered, and that is not the link's fault.
    job.processes[1].life = Life::stopped;
    job.enter(0, 10, call_of(8));
    expect_one(job.explain(), Trouble::stopped, 1, "for rank 1");
    job.processes[1].life = Life::sleeping;
    job.leave(0);
    // All are slow: it is not the link.
    job.comm(0).links[1].bytes_per_s = job.comm(1).links[1].bytes_per_s = 1.5e7;
    EXPECT_TRUE(job.explain().empty());
    // What others wait for comes first.
    job.comm(0).links[0].bytes_per_s = job.comm(1).links[0].bytes_per_s = 9e7;
    job.comm(0).links[1].lost_to = 1;
    job.enter(0, 10, call_of(8));
    ASSERT_EQ(job.explain().size(), 2U);
    EXPECT_EQ(job.explain()[0].trouble, Trouble::late);
    EXPECT_EQ(job.explain()[1].trouble, Trouble::link);
    for (ProcessSeen &process : job.processes)
        process.life = Life::dead;
    for (const Finding &finding : job.explain())
        EXPECT_NE(finding.trouble, Trouble::link) << finding.sentence;
}

}  // namespace
}  // namespace flx::record
