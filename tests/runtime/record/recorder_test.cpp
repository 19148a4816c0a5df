#include "runtime/record/recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/record/hang_report.h"
#include "runtime/record/reader.h"

namespace flx::record {
namespace {

CallRecord allreduce(uint64_t bytes) {
    CallRecord record;
    record.collective = algorithms::Collective::allreduce;
    record.bytes = bytes;
    record.dtype = FLX_F32;
    record.op = FLX_SUM;
    record.signature = static_cast<uint32_t>(bytes) * 2654435761U;
    return record;
}

Recorder &recorder() {
    return Recorder::of_process({true, "", "here", false});
}

std::string own_file() {
    return file_of(getuid(), this_process());
}

std::string copy_of_own_file() {
    std::string text(sizeof(File), '\0');
    std::ifstream(own_file(), std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
}

ProcessSeen look() {
    ProcessSeen process;
    const Status status = Reader::read(own_file(), process);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return process;
}

const CommunicatorSeen *find(const ProcessSeen &process, uint32_t id) {
    for (const CommunicatorSeen &comm : process.communicators)
        if (comm.id == id)
            return &comm;
    return nullptr;
}

TEST(RecordFile, OfAnotherCopyOfFlxLeavesTheFirstOne) {
    RecordFile first;
    RecordFile second;
    ASSERT_TRUE(first.make({true, false, "first", ""}).ok());
    EXPECT_EQ(look().hostname, "first");
    EXPECT_FALSE(second.make({true, false, "second", ""}).ok());
    EXPECT_FALSE(second.seen());
    EXPECT_EQ(look().hostname, "first");
    second.remove();
    EXPECT_EQ(look().hostname, "first") << "its file is not the second one's to take away";
    first.remove();
}

TEST(RecordFile, HasThePlaceThatALauncherOfPyTorchSaysWithinATaskOfSlurms) {
    const std::vector<std::pair<const char *, const char *>> said = {
        {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}};
    for (const auto &[name, value] : said)
        setenv(name, value, 1);
    const auto place = [] {
        RecordFile file;
        EXPECT_TRUE(file.make({true, false, "here", ""}).ok());
        return std::pair(look().world_rank, look().world_size);
    };
    EXPECT_EQ(place(), std::pair(3, 4));
    setenv("RANK", "4", 1);  // somebody's own variable
    EXPECT_EQ(place(), std::pair(0, 1));
    for (const auto &[name, value] : said)
        unsetenv(name);
}

TEST(Recorder, SaysWhatWasCalledAndWhatIsUnderWay) {
    const uint32_t place = recorder().open({5, 2, 8, 2, 77, {{"shm"}, {"eth0", 1e8}}});
    ASSERT_NE(place, Recorder::kNowhere);
    const int64_t before = now_ns();
    const uint64_t first = recorder().enter(place, allreduce(8), 1, Way::fused);
    recorder().leave(first, {});
    const uint64_t second = recorder().enter(place, allreduce(64), 2, Way::scheduled);
    recorder().wait(place, second, {before, 6, 100, 20, {.steps_done = 3, .steps = 9, .part = Part::within_host}});
    recorder().carried(place, 1, {.sent = 4096, .share = 0.25, .is_on = true, .lost_to = 3, .bytes_per_s = 5e7});
    const ProcessSeen process = look();
    EXPECT_EQ(process.pid, getpid());
    EXPECT_EQ(process.life, Life::running);
    EXPECT_GE(process.begun, 2U);
    const CommunicatorSeen *comm = find(process, 5);
    ASSERT_NE(comm, nullptr);
    EXPECT_EQ(comm->rank, 2);
    EXPECT_EQ(comm->size, 8);
    EXPECT_EQ(comm->hosts, 2);
    EXPECT_EQ(comm->first_uid, 77U);
    EXPECT_EQ(comm->progress.steps_done, 3);
    EXPECT_EQ(comm->progress.steps, 9);
    EXPECT_EQ(comm->progress.part, Part::within_host);
    ASSERT_EQ(comm->last.size(), 2U);
    const CallSeen &done = comm->last[0], &open = comm->last[1];
    EXPECT_EQ(done.number, 1U);
    EXPECT_EQ(done.way, Way::fused);
    EXPECT_EQ(to_string(done.what), "allreduce of 8 B (f32, sum)");
    // The kernel's ticks are some milliseconds apart, and come late where a
    // virtual machine waits for its core.
    constexpr int64_t kApartNs = 200'000'000;
    EXPECT_GE(done.entered_ns, before - kApartNs);
    EXPECT_GE(done.left_ns, done.entered_ns);
    EXPECT_LE(done.left_ns, now_ns() + kApartNs);
    EXPECT_EQ(open.number, 2U);
    EXPECT_EQ(open.left_ns, 0);
    EXPECT_EQ(comm->calls, 2U);
    EXPECT_EQ(comm->waits_for, 6);
    EXPECT_EQ(comm->waits_since_ns, before);
    ASSERT_EQ(comm->links.size(), 2U);
    EXPECT_EQ(comm->links[1].name, "eth0");
    EXPECT_EQ(comm->links[1].sent, 4096U);
    EXPECT_EQ(comm->links[1].share, 0.25);
    EXPECT_TRUE(comm->links[1].is_on);
    EXPECT_EQ(comm->links[1].lost_to, 3);
    EXPECT_EQ(comm->links[1].usual_bytes_per_s, 1e8);
    EXPECT_EQ(comm->links[1].bytes_per_s, 5e7);

    recorder().leave(second, fail(Fault::peer_died, "rank 6 died"));
    recorder().broken(place, "rank 6 died");
    const ProcessSeen later = look();
    comm = find(later, 5);
    ASSERT_NE(comm, nullptr);
    EXPECT_TRUE(comm->broken);
    EXPECT_EQ(comm->why_broken, "rank 6 died");
    EXPECT_FALSE(comm->waits_for.has_value()) << "what has ended waits for nobody";
    EXPECT_EQ(comm->last.back().error, FLX_ERR_PEER);
    recorder().close(place);
    EXPECT_EQ(find(look(), 5), nullptr);
}

TEST(Recorder, KeepsTheLastCallsAlone) {
    const uint32_t place = recorder().open({6, 0, 2, 1, 1, {}});
    uint64_t late = recorder().enter(place, allreduce(4), 1, Way::fused);
    for (uint32_t number = 2; number <= 2 * kCalls; ++number)
        recorder().leave(recorder().enter(place, allreduce(8), number, Way::fused), {});
    recorder().leave(late, {});  // its place is another's: nothing is written there
    const ProcessSeen process = look();
    const CommunicatorSeen *comm = find(process, 6);
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(comm->last.size(), kCalls);
    for (size_t i = 0; i < kCalls; ++i)
        EXPECT_EQ(comm->last[i].number, kCalls + 1 + i);
    recorder().close(place);
}

TEST(Recorder, MoreCommunicatorsThanPlacesAreNotRecorded) {
    std::vector<uint32_t> places;
    for (uint32_t id = 100; id < 100 + kCommunicators; ++id)
        places.push_back(recorder().open({id, 0, 2, 1, id, {}}));
    EXPECT_EQ(recorder().open({999, 0, 2, 1, 999, {}}), Recorder::kNowhere);
    EXPECT_EQ(recorder().enter(Recorder::kNowhere, allreduce(4), 1, Way::fused), 0U);
    recorder().leave(0, {});
    recorder().close(places[3]);
    EXPECT_EQ(recorder().open({1000, 0, 2, 1, 1000, {}}), places[3]);
    places[3] = Recorder::kNowhere;
    for (const uint32_t place : places)
        recorder().close(place);
    recorder().close(Recorder::kNowhere);
}

TEST(Recorder, CallsAreNotThoseOfTheNextCommunicatorInTheirPlace) {
    const uint32_t place = recorder().open({20, 0, 2, 1, 1, {}});
    recorder().leave(recorder().enter(place, allreduce(4), 33, Way::fused), {});
    recorder().close(place);
    uint32_t next = Recorder::kNowhere;
    while (next != place) {
        recorder().close(next);
        next = recorder().open({21, 0, 2, 1, 1, {}});
        ASSERT_NE(next, Recorder::kNowhere);
    }
    const ProcessSeen process = look();
    const CommunicatorSeen *comm = find(process, 21);
    ASSERT_NE(comm, nullptr);
    EXPECT_TRUE(comm->last.empty());
    EXPECT_EQ(comm->calls, 0U);
    // Its own number is known, also when the call is not kept any more.
    recorder().leave(recorder().enter(place, allreduce(4), 7, Way::fused), {});
    for (size_t i = 0; i < kCalls; ++i)
        recorder().leave(recorder().enter(place, CallRecord(), 0, Way::exchanged), {});
    const ProcessSeen later = look();
    ASSERT_NE(find(later, 21), nullptr);
    EXPECT_EQ(find(later, 21)->calls, 7U);
    recorder().close(place);
}

/// A reader never sees parts of two calls as one.
TEST(Recorder, IsReadWhileItIsWritten) {
    const uint32_t place = recorder().open({7, 0, 2, 1, 1, {}});
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (uint32_t number = 1; !stop.load(); ++number)
            recorder().leave(recorder().enter(place, allreduce(number), number, Way::fused), {});
    });
    for (int look_at = 0; look_at < 300; ++look_at) {
        const ProcessSeen process = look();
        const CommunicatorSeen *comm = find(process, 7);
        ASSERT_NE(comm, nullptr);
        for (const CallSeen &call : comm->last) {
            ASSERT_EQ(call.what.bytes, call.number);
            ASSERT_EQ(call.what.signature, call.number * 2654435761U);
        }
    }
    stop.store(true);
    writer.join();
    recorder().close(place);
}

TEST(Recorder, IsReadableForItsUserAlone) {
    (void)recorder();
    EXPECT_TRUE(is_held(own_file()));
    struct stat info {};
    ASSERT_EQ(stat(own_file().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0400U);
    EXPECT_EQ(info.st_uid, getuid());
}

/// Anybody may put links there, to files of this user's.
TEST(RecordFile, OldOnesAreMarkedAndWhatIsBehindALinkIsNotTouched) {
    constexpr pid_t kNone = 2'000'000'000;
    const std::string old = file_of(getuid(), {kNone, 0}), link = file_of(getuid(), {kNone + 1, 0});
    const std::string other = testing::TempDir() + "flx-behind-a-link";
    const auto mode_of = [](const std::string &file) {
        struct stat info {};
        return stat(file.c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
    };
    for (const std::string &file : {old, other}) {
        std::ofstream(file) << "x";
        ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    }
    ASSERT_EQ(symlink(other.c_str(), link.c_str()), 0);
    remove_old_files();
    EXPECT_EQ(mode_of(old), 0500U);
    EXPECT_EQ(mode_of(other), 0600U);
    unlink(link.c_str());
    ASSERT_EQ(mkfifo(link.c_str(), 0600), 0);
    ProcessSeen process;
    EXPECT_EQ(Reader::read(link, process).fault(), Fault::not_read) << "and nobody waits for who would write to it";
    for (const std::string &file : {old, link, other})
        unlink(file.c_str());
}

/// Nobody here knows processes of other containers by their numbers.
TEST(RecordFile, OfAnotherContainerIsOldWhenNobodyHoldsIt) {
    const std::string file = file_of(getuid(), {1, 4242});
    EXPECT_TRUE(file.ends_with(".1-4242")) << file;
    const auto mode = [&] {
        struct stat info {};
        return stat(file.c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
    };
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    ASSERT_GE(fd, 0);
    ASSERT_TRUE(hold(fd));
    EXPECT_TRUE(is_held(file));
    remove_old_files();
    EXPECT_EQ(mode(), 0400U);
    ASSERT_EQ(chmod(file.c_str(), 0500), 0);  // looked at before it was held
    remove_old_files();
    EXPECT_EQ(mode(), 0400U);
    close(fd);
    EXPECT_FALSE(is_held(file));
    remove_old_files();
    EXPECT_EQ(mode(), 0500U);
    unlink(file.c_str());
    EXPECT_FALSE(is_held(file));
}

/// A copy of this process's record says that it is of a process of a namespace that is nowhere here.
TEST(Reader, SaysOfAProcessThatItCannotSeeOnlyThatItLives) {
    const uint32_t place = recorder().open({31, 0, 2, 1, 1, {}});
    recorder().leave(recorder().enter(place, allreduce(8), 1, Way::fused), {});
    std::string text = copy_of_own_file();
    reinterpret_cast<File *>(text.data())->pid_namespace = 4242;
    const std::string file = file_of(getuid(), {getpid(), 4242});
    std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    ProcessSeen process;
    EXPECT_TRUE(Reader::read(file, process).ok());
    EXPECT_EQ(process.life, Life::dead);
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_TRUE(hold(fd));
    EXPECT_TRUE(Reader::read(file, process).ok());
    EXPECT_EQ(process.life, Life::hidden);
    EXPECT_EQ(process.pid, 0);
    EXPECT_EQ(number_of(process), std::to_string(getpid()) + " in its container");
    EXPECT_EQ(process.id, (ProcessId{getpid(), 4242}));
    EXPECT_FALSE(is_same(process, look()));
    close(fd);
    unlink(file.c_str());
}

// What a child of the test is told to do.
constexpr const char *kIsKilled = "call-and-be-killed";
constexpr const char *kEnds = "call-and-end";

/// One that is killed leaves its file, one that ends does not, and one that was
/// forked takes nothing away.
TEST(Recorder, OutlivesAProcessThatIsKilled) {
    (void)recorder();
    for (const bool is_killed : {true, false}) {
        const pid_t child = fork();
        if (child == 0) {
            // The child's own recorder would be its parent's: a program is started in
            // its place.
            const std::string self = std::filesystem::read_symlink("/proc/self/exe");
            execl(self.c_str(), self.c_str(), is_killed ? kIsKilled : kEnds, nullptr);
            _exit(1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ProcessSeen process;
        const Status found = Reader::read(file_of(getuid(), {child, this_process().pid_namespace}), process);
        EXPECT_EQ(found.ok(), is_killed) << found.sentence();
        if (!found.ok())
            continue;
        EXPECT_EQ(process.life, Life::dead);
        EXPECT_FALSE(is_held(file_of(getuid(), {child, this_process().pid_namespace})));
        ASSERT_EQ(process.communicators.size(), 1U);
        EXPECT_EQ(process.communicators[0].last.back().number, 41U);
        unlink(file_of(getuid(), {child, this_process().pid_namespace}).c_str());
    }
    if (const pid_t forked = fork(); forked == 0)
        exit(0);
    else
        waitpid(forked, nullptr, 0);
    EXPECT_EQ(access(own_file().c_str(), F_OK), 0);
}

/// Whoever runs as root looks at files of others, too.
TEST(Reader, TakesNothingFromAnotherUsersFileThatFlxWouldNotWrite) {
    constexpr uid_t kOther = 65534;
    if (geteuid() != 0)
        GTEST_SKIP() << "skipped: only root has files of another user";
    const std::string file = file_of(kOther, {2'000'000'000, 0});
    const uint32_t place = recorder().open({30, 0, 2, 1, 1, {}});
    recorder().leave(recorder().enter(place, allreduce(8), 1, Way::fused), {});
    std::string text = copy_of_own_file();
    auto *const made_up = reinterpret_cast<File *>(text.data());
    const auto seen = [&](size_t bytes = sizeof(File)) {
        std::ofstream(file, std::ios::binary | std::ios::trunc).write(text.data(), static_cast<std::streamsize>(bytes));
        EXPECT_EQ(chown(file.c_str(), kOther, kOther), 0);
        const std::vector<ProcessSeen> all = Reader().look(kOther);
        return all.empty() || find(all[0], 30) == nullptr ? -1 : static_cast<int>(find(all[0], 30)->last.size());
    };
    EXPECT_EQ(seen(), 1);
    EXPECT_EQ(seen(sizeof(File) / 2), -1);
    for (Call &call : made_up->calls) {
        CallRecord what = allreduce(8);
        what.collective = static_cast<algorithms::Collective>(250);
        const auto words = std::bit_cast<CallWords>(what);
        for (size_t i = 0; i < words.size(); ++i)
            call.what[i].store(words[i]);
    }
    EXPECT_EQ(seen(), 0);
    for (Communicator &comm : made_up->communicators)
        comm.size = INT32_MAX;
    EXPECT_EQ(seen(), -1);
    unlink(file.c_str());
    recorder().close(place);
}

TEST(Reader, ReadsOfAJobItsOwnRecordsAlone) {
    const pid_t kOther = 1'000'000'000 + getpid();
    const std::string file = file_of(getuid(), {kOther, this_process().pid_namespace});
    const auto uid = static_cast<uint64_t>(kOther);
    const uint32_t place = recorder().open({31, 0, 2, 1, uid, {}});
    recorder().leave(recorder().enter(place, allreduce(8), 1, Way::fused), {});
    std::string text = copy_of_own_file();
    auto *const made_up = reinterpret_cast<File *>(text.data());
    made_up->pid = kOther;
    made_up->job = {"another"};
    for (Communicator &comm : made_up->communicators)
        comm.first_uid = uid + 1;
    std::ofstream(file, std::ios::binary).write(text.data(), sizeof(File));

    const std::vector<ProcessSeen> job = read_job(this_process(), getuid());
    const auto is_other = [&](const ProcessSeen &process) {
        EXPECT_TRUE(process.communicators.empty() || process.communicators[0].last.empty());
        return process.id.pid == kOther;
    };
    const std::vector<ProcessSeen> other = Reader().look(getuid(), kCalls, is_other);
    recorder().close(place);
    unlink(file.c_str());
    for (const auto *found : {&job, &other}) {
        ASSERT_EQ(found->size(), 1U);
        ASSERT_NE(find(found->front(), 31), nullptr);
        EXPECT_EQ(find(found->front(), 31)->last.size(), 1U);
    }
    EXPECT_EQ(job[0].id, this_process());
    EXPECT_EQ(other[0].id.pid, kOther);
}

TEST(Reader, RefusesWhatIsNoRecord) {
    const std::string file = "/dev/shm/calls-of-flx-test";
    ProcessSeen process;
    EXPECT_EQ(Reader::read(file + ".none", process).fault(), Fault::not_read);
    for (const size_t bytes : {size_t{0}, size_t{100}, sizeof(File)}) {
        std::ofstream(file, std::ios::trunc) << std::string(bytes, 'x');
        const Status status = Reader::read(file, process);
        EXPECT_EQ(status.code(), FLX_ERR_SYSTEM);
        EXPECT_NE(status.sentence().find("no record"), std::string::npos) << status.sentence();
    }
    unlink(file.c_str());
}

}  // namespace
}  // namespace flx::record

int main(int argc, char **argv) {
    using namespace flx;
    const std::string_view told = argc > 1 ? argv[1] : "";
    if (told == record::kIsKilled || told == record::kEnds) {
        const uint32_t place = record::recorder().open({9, 0, 2, 1, 1, {}});
        (void)record::recorder().enter(place, record::allreduce(4), 41, Way::fused);
        return told == record::kEnds ? 0 : kill(getpid(), SIGKILL);
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
