#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/record/process_files.h"
#include "runtime/record/ticks.h"
#include "runtime/record/trace_clocks.h"
#include "runtime/record/trace_files.h"
#include "runtime/record/trace_writer.h"

namespace flx::record {
namespace {

class Folder {
  public:
    Folder() {
        std::string name = "/tmp/trace-test-XXXXXX";
        path_ = mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::string file() const { return path_ + "/out.json"; }
    [[nodiscard]] const std::string &path() const { return path_; }

  private:
    std::string path_;
};

/// What a rank's record says of it.
std::unique_ptr<File> process(int rank, int size, const char *host, const char *job = "one", int pid = getpid()) {
    auto file = std::make_unique<File>();
    file->pid = pid;
    file->world_rank = rank;
    file->world_size = size;
    file->started = usage_of(getpid()).started;
    file->ticks_are_tsc = ticks_are_tsc() ? 1 : 0;
    file->made_ticks = ticks(ticks_are_tsc());
    file->made_ns = now_ns();
    file->made_since_ns = file->made_ns;
    std::string(host).copy(file->hostname.data(), file->hostname.size() - 1);
    std::string(job).copy(file->job.data(), file->job.size() - 1);
    std::string("program \"x\" \x01\xFF").copy(file->command.data(), file->command.size() - 1);
    return file;
}

std::unique_ptr<TraceWriter> open(const std::string &file, const File &process) {
    std::unique_ptr<TraceWriter> writer;
    const Status status = TraceWriter::open(file, process, writer);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return writer;
}

uint64_t where(uint32_t number, uint8_t place, Carrier carrier = Carrier::flx) {
    return std::bit_cast<uint64_t>(Where{number, place, Way::fused, 0, carrier});
}

std::array<uint64_t, 4> allreduce(uint64_t bytes, CallKind kind = CallKind::blocking) {
    CallRecord record;
    record.collective = algorithms::Collective::allreduce;
    record.bytes = bytes;
    record.kind = kind;
    record.dtype = FLX_F32;
    record.op = FLX_SUM;
    return std::bit_cast<std::array<uint64_t, 4>>(record);
}

int64_t now() {
    return ticks(ticks_are_tsc());
}

void call(TraceWriter &writer, uint64_t stamp, uint32_t number, uint8_t place = 3) {
    writer.enter(stamp, now(), where(number, place), allreduce(64));
    writer.leave(stamp, now(), 0);
}

nlohmann::json read(const std::string &file) {
    std::ifstream text(file);
    return nlohmann::json::parse(text);
}

std::vector<nlohmann::json> events(const nlohmann::json &trace, const char *cat, int rank = 0) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json &event : trace["traceEvents"])
        if (event.value("cat", "") == cat && event["pid"] == rank)
            found.push_back(event);
    return found;
}

/// A phase lies in its call, whatever its own times say, and is that of its communicator's call, not of one that had
/// the place before.
TEST(Trace, PhasesLieInTheirCalls) {
    constexpr uint32_t kPlace = 3;
    constexpr uint64_t kBefore = 2000;
    const Folder folder;
    {
        const auto writer = open(folder.file(), *process(0, 1, "here"));
        writer->communicator(kPlace, 7, 0, 4, 2, 0xabc);
        for (uint64_t number = 1; number <= kBefore; ++number)
            call(*writer, number, static_cast<uint32_t>(number), kPlace);
        writer->communicator(kPlace, 8, 0, 4, 2, 0xdef);
        const int64_t began_ns = now_ns();
        call(*writer, kBefore + 1, 1, kPlace);
        writer->phase(kPlace, 1, {.ended_ns = began_ns, .bytes = 100, .phase = 0, .phases = 2});
        writer->phase(
            kPlace, 1,
            {.began_ns = began_ns, .ended_ns = now_ns() + 1'000'000'000, .bytes = 28, .phase = 1, .phases = 2});
        writer->phase(kPlace, 1, {.ended_ns = began_ns, .part = Part::between_hosts});
        writer->phase(kPlace, 5, {.ended_ns = began_ns, .phases = 2});  // of a call that is not in it
    }
    const nlohmann::json trace = read(folder.file());
    const nlohmann::json call = events(trace, "call").back();
    const std::vector<nlohmann::json> phases = events(trace, "phase");
    ASSERT_EQ(phases.size(), 3U);
    EXPECT_EQ(phases[0]["name"], "phase 1 of 2");
    EXPECT_EQ(phases[0]["args"]["bytes"], 100);
    EXPECT_EQ(phases[1]["name"], "phase 2 of 2");
    EXPECT_EQ(phases[2]["name"], "between hosts");
    for (const nlohmann::json &phase : phases) {
        EXPECT_EQ(phase["tid"], 8);
        EXPECT_GE(phase["ts"].get<double>(), call["ts"].get<double>());
        EXPECT_LE(phase["ts"].get<double>() + phase["dur"].get<double>(),
                  call["ts"].get<double>() + call["dur"].get<double>() + 0.002);
    }
}

TEST(Trace, HasCallsWaitsAndLinks) {
    const Folder folder;
    {
        const auto writer = open(folder.file(), *process(0, 1, "here"));
        writer->communicator(3, 7, 1, 4, 2, 0xabc);
        writer->link_name(3, 0, "rail0", 1e9, 2e-6);
        writer->carried(3, 0, 1000, 1, true);
        call(*writer, 1, 1);
        writer->enter(2, now(), where(2, 3), allreduce(128, CallKind::non_blocking));
        writer->enter(3, now(), where(3, 3), allreduce(256));
        writer->leave(3, now(), FLX_ERR_PEER);
        writer->leave(2, now(), 0);
        const int64_t until = now_ns();
        writer->waited(3, until - 1000, until, 2);
        writer->carried(3, 0, 5000, 0.25, true);
        writer->carried(3, 0, 5000, 0.25, false);
        writer->enter(4, now(), where(4, 3), allreduce(512));
    }
    const nlohmann::json trace = read(folder.file());
    EXPECT_FALSE(std::filesystem::exists(folder.file() + ".parts"));
    EXPECT_EQ(trace["otherData"]["calls"], 4);
    EXPECT_EQ(trace["otherData"]["ranks"], 1);
    EXPECT_EQ(trace["otherData"]["links"][0]["rate_MBps"], 1000.0);
    const std::vector<nlohmann::json> calls = events(trace, "call");
    ASSERT_EQ(calls.size(), 3U);
    EXPECT_EQ(calls[0]["name"], "allreduce");
    EXPECT_EQ(calls[0]["tid"], 7);
    EXPECT_EQ(calls[0]["args"]["bytes"], 64);
    EXPECT_EQ(calls[0]["args"]["type"], "f32");
    EXPECT_EQ(calls[0]["args"]["reduction"], "sum");
    EXPECT_EQ(calls[0]["args"]["way"], "fused");
    EXPECT_GE(calls[0]["ts"].get<double>(), 0);
    EXPECT_EQ(calls[1]["args"]["error"], "FLX_ERR_PEER");
    EXPECT_TRUE(calls[2]["args"]["unfinished"]);
    const std::vector<nlohmann::json> overlapping = events(trace, "nonblocking");
    ASSERT_EQ(overlapping.size(), 2U);
    EXPECT_EQ(overlapping[0]["id"], overlapping[1]["id"]);
    const std::vector<nlohmann::json> waits = events(trace, "wait");
    ASSERT_EQ(waits.size(), 1U);
    EXPECT_EQ(waits[0]["args"]["peer"], 2);
    EXPECT_NEAR(waits[0]["dur"].get<double>(), 1, 0.5);
    const std::vector<nlohmann::json> links = events(trace, "link");
    ASSERT_EQ(links.size(), 2U);
    EXPECT_EQ(links[0]["args"]["bytes"], 4000);
    EXPECT_EQ(links[1]["name"], "rail0 carries nothing");
}

TEST(Trace, SaysWhoCarriesOutACall) {
    const Folder folder;
    {
        const auto writer = open(folder.file(), *process(0, 1, "here"));
        writer->communicator(3, 7, 1, 4, 1, 0xabc);
        writer->communicator(4, kMpiIds, 1, 4, 1, 0xabd);
        CallRecord record = std::bit_cast<CallRecord>(allreduce(64));
        record.dtype = CallRecord::kUntold;
        record.op = CallRecord::kUntold;
        writer->enter(1, now(), where(5, 4, Carrier::mpi), std::bit_cast<std::array<uint64_t, 4>>(record));
        writer->leave(1, now(), 0);
        writer->enter(2, now(), where(5, 3, Carrier::stream), allreduce(128));
        writer->leave(2, now(), 0);
    }
    const nlohmann::json trace = read(folder.file());
    const std::vector<nlohmann::json> calls = events(trace, "call");
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls[0]["tid"], kMpiIds);
    EXPECT_EQ(calls[0]["args"]["way"], "served by MPI");
    EXPECT_EQ(calls[0]["args"]["bytes"], 64);
    EXPECT_FALSE(calls[0]["args"].contains("type"));
    const std::vector<nlohmann::json> gpu = events(trace, "gpu");
    ASSERT_EQ(gpu.size(), 1U);
    EXPECT_EQ(gpu[0]["args"]["way"], "enqueued on a stream");
    EXPECT_EQ(gpu[0]["args"]["gpu_call"], 5);
    EXPECT_FALSE(gpu[0]["args"].contains("number")) << "which others would take for a call on host memory";
}

TEST(Trace, IsMadeByTheRankThatEndsLast) {
    const Folder folder;
    auto second = open(folder.file(), *process(1, 2, "here", "one", 1));
    {
        const auto first = open(folder.file(), *process(0, 2, "here", "one", 2));
        first->communicator(3, 7, 0, 2, 1, 1);
        call(*first, 1, 1);
    }
    EXPECT_FALSE(std::filesystem::exists(folder.file()));
    second.reset();
    EXPECT_EQ(read(folder.file())["otherData"]["ranks"], 2);
}

TEST(Trace, RanksOfWhichNoLauncherSpeaksAreThoseOfTheirFirstCommunicator) {
    const Folder folder;
    {
        const auto parent = process(-1, -1, "here", "", getppid());
        parent->started = usage_of(getppid()).started;
        const auto second = open(folder.file(), *parent);
        const auto first = open(folder.file(), *process(-1, -1, "here", ""));
        second->communicator(3, 1, 1, 2, 1, 7);
        first->communicator(3, 1, 0, 2, 1, 7);
        second->communicator(4, 2, 0, 1, 1, 8);
        call(*second, 1, 1);
    }
    const nlohmann::json trace = read(folder.file());
    EXPECT_EQ(trace["otherData"]["ranks"], 2);
    EXPECT_TRUE(events(trace, "call", 0).empty());
    EXPECT_EQ(events(trace, "call", 1).size(), 1U);
}

TEST(Trace, OfAnEarlierProgramIsNotMixedIn) {
    const Folder folder;
    {
        const auto killed = open(folder.file(), *process(0, 2, "here", "earlier", 999999));
        killed->communicator(3, 7, 0, 2, 1, 1);
        open(folder.file(), *process(2, 3, "here", "with another rank", 999998)).reset();
        open(folder.file(), *process(3, 5, "here", "still there", 999997)).reset();
    }
    auto there = open(folder.file(), *process(4, 5, "here", "still there"));
    auto second = open(folder.file(), *process(1, 2, "here", "later", 1));
    open(folder.file(), *process(0, 2, "here", "later", 2)).reset();
    second.reset();
    const nlohmann::json trace = read(folder.file());
    EXPECT_EQ(trace["otherData"]["job"], "later");
    EXPECT_EQ(trace["otherData"]["ranks"], 2);
    size_t left = 0;
    for ([[maybe_unused]] const auto &part : std::filesystem::directory_iterator(folder.file() + ".parts"))
        ++left;
    EXPECT_EQ(left, 2U) << "of the one that is still there; nobody asks for the others any more";
    there.reset();
}

TEST(Trace, OfAProcessThatWasKilledIsMadeOfItsPart) {
    const Folder folder;
    const pid_t child = fork();
    if (child == 0) {
        const auto writer = open(folder.file(), *process(0, 2, "here"));
        writer->communicator(3, 7, 0, 2, 1, 1);
        for (uint32_t number = 1; number <= 70'000; ++number)  // more than one chunk
            call(*writer, number, number);
        raise(SIGKILL);
    }
    int how = 0;
    waitpid(child, &how, 0);
    ASSERT_TRUE(WIFSIGNALED(how));
    EXPECT_FALSE(std::filesystem::exists(folder.file()));
    TraceMade made;
    const Status status = make_trace(folder.file(), made);
    ASSERT_TRUE(status.ok()) << status.sentence();
    EXPECT_EQ(made.calls, 70'000U);
    ASSERT_EQ(made.notes.size(), 2U);
    EXPECT_NE(made.notes[0].find("1 of 2 ranks"), std::string::npos) << made.notes[0];
    EXPECT_NE(made.notes[1].find("did not end"), std::string::npos) << made.notes[1];
    const nlohmann::json trace = read(folder.file());
    double last = 0;
    for (const nlohmann::json &event : events(trace, "call")) {
        EXPECT_GE(event["ts"].get<double>(), last);
        EXPECT_LT(event["ts"].get<double>(), 60e6);
        last = event["ts"];
    }
    EXPECT_FALSE(make_trace(folder.file(), made).ok());
}

TEST(Trace, OfOneThatRunsIsMadeAndItsPartStays) {
    const Folder folder;
    {
        const auto writer = open(folder.file(), *process(0, 1, "here", "one", getpid()));
        writer->communicator(3, 7, 0, 1, 1, 1);
        call(*writer, 1, 1);
        TraceMade made;
        // This process is the one that the part is of, as far as its start can be told.
        ASSERT_TRUE(make_trace(folder.file(), made).ok());
        ASSERT_FALSE(made.notes.empty());
        EXPECT_NE(made.notes.front().find("may still run"), std::string::npos) << made.notes.front();
        EXPECT_EQ(made.calls, 1U);
        call(*writer, 2, 2);
    }
    EXPECT_EQ(read(folder.file())["otherData"]["calls"], 2);
}

TEST(Trace, IsMadeThoughAnotherWasKilledAtIt) {
    const Folder folder;
    {
        const auto writer = open(folder.file(), *process(0, 1, "here"));
        std::ofstream(folder.file() + ".parts/lock") << "";
    }
    EXPECT_TRUE(std::filesystem::exists(folder.file()));
    EXPECT_FALSE(std::filesystem::exists(folder.file() + ".parts"));
}

TEST(Trace, TakesNothingThatOthersPutThere) {
    const Folder folder;
    std::filesystem::create_directory(folder.file() + ".parts");
    ASSERT_EQ(mkfifo((folder.file() + ".parts/rank-00000.here.1").c_str(), S_IRUSR | S_IWUSR), 0);
    std::ofstream(folder.file() + ".parts/rank-00000.here.2") << "no part";
    open(folder.file(), *process(0, 1, "here")).reset();
    EXPECT_EQ(read(folder.file())["otherData"]["ranks"], 1);
    std::filesystem::permissions(folder.file() + ".parts", std::filesystem::perms::all);
    std::unique_ptr<TraceWriter> writer;
    const Status status = TraceWriter::open(folder.file(), *process(0, 1, "here"), writer);
    EXPECT_NE(status.sentence().find("alone may write to"), std::string::npos) << status.sentence();
}

TEST(Trace, EndsCallsThatManyOthersWentAheadOf) {
    const Folder folder;
    constexpr uint32_t kOthers = 5000;
    {
        const auto writer = open(folder.file(), *process(0, 1, "here"));
        writer->communicator(3, 7, 0, 1, 1, 1);
        writer->enter(1, now(), where(1, 3), allreduce(8, CallKind::non_blocking));
        for (uint32_t number = 2; number < kOthers; ++number)
            call(*writer, number, number);
        writer->leave(1, now(), 0);
    }
    const std::vector<nlohmann::json> found = events(read(folder.file()), "nonblocking");
    ASSERT_EQ(found.size(), 2U);
    EXPECT_FALSE(found[0]["args"].contains("unfinished"));
}

TEST(Trace, OfSeveralHostsHasOneClock) {
    const Folder folder;
    constexpr int64_t kAheadNs = 5'000'000;
    {
        auto there = process(1, 2, "there", "one", 1);
        there->made_ns += kAheadNs;  // its clock is ahead, and its ticks are told by it
        auto second = open(folder.file(), *there);
        auto first = open(folder.file(), *process(0, 2, "here", "one", 2));
        for (TraceWriter *writer : {first.get(), second.get()})
            writer->communicator(3, 7, writer == first.get() ? 0 : 1, 2, 2, 1);
        first->clock(3, 0, 0);
        second->clock(3, kAheadNs, 7000);
        first->waited(3, now_ns(), now_ns() + 1000, 1);
        second->waited(3, now_ns() + kAheadNs, now_ns() + kAheadNs + 1000, 0);
    }
    const nlohmann::json trace = read(folder.file());
    const double here = events(trace, "wait", 0).at(0)["ts"], there = events(trace, "wait", 1).at(0)["ts"];
    EXPECT_NEAR(here, there, 1000);
    const nlohmann::json &clocks = trace["otherData"]["clocks"];
    ASSERT_EQ(clocks.size(), 2U);
    EXPECT_EQ(clocks[1]["host"], "there");
    EXPECT_EQ(clocks[1]["offset_us"], 5000.0);
    EXPECT_EQ(clocks[1]["error_us"], 7.0);
}

TEST(Trace, SaysWhereTheDiskIsFull) {
    const Folder folder;
    const std::string mount = "mount -t tmpfs -o size=6m none " + folder.path() + " 2>/dev/null";
    if (std::system(mount.c_str()) != 0)
        GTEST_SKIP() << "skipped: a small file system cannot be mounted here";
    {
        const auto writer = open(folder.file(), *process(0, 1, "here"));
        writer->communicator(3, 7, 0, 1, 1, 1);
        for (uint32_t number = 1; number <= 70'000; ++number)
            call(*writer, number, number);
    }
    // The trace did not fit either; what there is of it is in its part.
    EXPECT_FALSE(std::filesystem::exists(folder.file()));
    EXPECT_TRUE(std::filesystem::exists(folder.file() + ".parts"));
    EXPECT_EQ(std::system(("umount " + folder.path()).c_str()), 0);
}

TEST(Trace, CannotBeMade) {
    std::unique_ptr<TraceWriter> writer;
    EXPECT_FALSE(TraceWriter::open("/nowhere/at/all/out.json", *process(0, 1, "here"), writer).ok());
    TraceMade made;
    EXPECT_FALSE(make_trace("/nowhere/at/all/out.json", made).ok());
}

TEST(HostClock, IsALineThroughTheFirstAndTheLastSample) {
    constexpr int64_t kSecond = 1'000'000'000;
    const HostClock clock("x", {{10 * kSecond, 2000, 100}, {0, 1000, 50}}, 0);
    EXPECT_EQ(clock.common(0), -1000);
    EXPECT_EQ(clock.common(5 * kSecond), 5 * kSecond - 1500);
    EXPECT_EQ(clock.error_ns(), 100);
    // What is close together says nothing of drift: the better one counts.
    const HostClock close("x", {{1000, 2000, 100}, {0, 1000, 50}}, 0);
    EXPECT_EQ(close.common(5 * kSecond), 5 * kSecond - 1000);
    const HostClock unknown("x", {}, 77);
    EXPECT_EQ(unknown.common(100), 23);
    EXPECT_EQ(unknown.error_ns(), -1);
}

}  // namespace
}  // namespace flx::record
