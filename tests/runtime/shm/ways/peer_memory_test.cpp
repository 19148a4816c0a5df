/// Ranks that reach each other's buffers through the kernel, and the trial that chooses between ways, with ranks as
/// threads.
#include "runtime/shm/ways/peer_memory.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "runtime/base/clock.h"
#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/trial.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/plan/calls.h"
#include "tests/runtime/shm/ways/shm_calls.h"

namespace flx::shm {
namespace {

using algorithms::Collective;
using testing::call_of;
using testing::kYield;
using testing::random_call;
using testing::run_group;
using testing::TestBuffers;
using testing::TestCall;
using testing::TestWatch;

class Peers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Peers, ::testing::Range(2, 6));

/// Peer memory with the ranks of `bootstrap`, which are threads of this process.
std::shared_ptr<PeerMemory> peers_of(Bootstrap &bootstrap) {
    std::unique_ptr<PeerMemory> peers;
    PeerMemory::Why why;
    const Status status = PeerMemory::make(bootstrap, std::vector<int>(bootstrap.size(), getpid()), peers, why);
    EXPECT_TRUE(status.ok()) << status.sentence();
    EXPECT_EQ(why.not_by_kernel, "");
    EXPECT_EQ(why.not_mapped, "");
    return peers;
}

/// Every collective, in place and not, over several blocks; where it is not served, all ranks say so and nothing is
/// written.
TEST_P(Peers, FetchedCallsInRandomOrder) {
    const int ranks = GetParam();
    constexpr size_t kMostBytes = 700'000;
    std::atomic<int> failed{0};
    std::atomic<int> served_calls{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, Fused::bytes(ranks, 64), segment).ok());
        Fused fused(segment->base(), rank, ranks, 64);
        const auto peers = peers_of(bootstrap);
        ASSERT_NE(peers, nullptr);
        std::mt19937 random(7);
        TestWatch watch(failed);
        for (int number = 0; number < 60 && failed == 0; ++number) {
            const TestCall call = random_call(random, ranks, kMostBytes, false);
            const TestBuffers buffers(call, rank);
            Waiter waiter(kYield, watch);
            bool served = false;
            const bool is_result = call.has_result(rank);
            const Status status =
                peers->run(call_of(call, buffers.in(), is_result ? buffers.out() : nullptr), fused, waiter, served);
            const bool expected = call.collective != Collective::reduce_scatter_block || !call.in_place;
            const bool right = status.ok() && served == expected && buffers.intact() &&
                               (!served || buffers.result() == result_of(call, rank));
            served_calls += served ? 1 : 0;
            if (!right)
                ++failed;
            ASSERT_TRUE(status.ok()) << call.text() << ": " << status.sentence();
            ASSERT_TRUE(right) << call.text() << ", call " << number << ", rank " << rank;
        }
    });
    EXPECT_EQ(failed, 0);
    EXPECT_GT(served_calls, 30 * ranks);
}

/// A rank that was stopped for long goes on after the others gave up and took their buffers back.
TEST(PeerMemory, WritesNothingToRanksThatGaveUp) {
    constexpr int kRanks = 2;
    constexpr size_t kCount = 300'000;
    Board board;
    board.write(fail(Fault::peer_died, "rank 1 has not answered"));
    std::atomic<int> failed{0};
    run_group(kRanks, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, Fused::bytes(kRanks, 64), segment).ok());
        Fused fused(segment->base(), bootstrap.rank(), kRanks, 64);
        const auto peers = peers_of(bootstrap);
        ASSERT_NE(peers, nullptr);
        peers->obey(&board);
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        const std::vector<uint32_t> in(kCount, 1);
        std::vector<uint32_t> out(kCount, 77);
        bool served = false;
        const Status status = peers->run(call_of(Collective::allreduce, in.data(), out.data(), kCount, FLX_UINT32),
                                         fused, waiter, served);
        EXPECT_EQ(status.code(), FLX_ERR_PEER);
        EXPECT_EQ(status.sentence(), "rank 1 has not answered [FLX-E601]");
        ASSERT_TRUE(bootstrap.barrier().ok());
        const size_t others = bootstrap.rank() == 0 ? kCount / kRanks : 0;  // where the peer's sums belong
        EXPECT_TRUE(std::all_of(&out[others], &out[others + kCount / kRanks], [](uint32_t v) { return v == 77; }));
    });
}

TEST_P(Peers, FetchedAlltoall) {
    const int ranks = GetParam();
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        const auto rank = static_cast<uint32_t>(bootstrap.rank());
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, Fused::bytes(ranks, 64), segment).ok());
        Fused fused(segment->base(), bootstrap.rank(), ranks, 64);
        const auto peers = peers_of(bootstrap);
        ASSERT_NE(peers, nullptr);
        TestWatch watch(failed);
        for (const size_t block : {size_t{1}, size_t{1023}, size_t{400'001}}) {
            std::vector<uint32_t> in(block * ranks), out(block * ranks);
            for (size_t i = 0; i < in.size(); ++i)
                in[i] = static_cast<uint32_t>(i * ranks) + rank;
            Waiter waiter(kYield, watch);
            bool served = false;
            const Status status = peers->run(
                call_of(Collective::alltoall, in.data(), out.data(), in.size(), FLX_UINT32), fused, waiter, served);
            ASSERT_TRUE(status.ok()) << status.sentence();
            ASSERT_TRUE(served);
            for (size_t i = 0; i < out.size(); ++i)
                ASSERT_EQ(out[i], static_cast<uint32_t>((rank * block + i % block) * ranks + i / block));
        }
    });
}

TEST_P(Peers, FetchedScans) {
    const int ranks = GetParam();
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        const auto rank = static_cast<uint32_t>(bootstrap.rank());
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, Fused::bytes(ranks, 64), segment).ok());
        Fused fused(segment->base(), bootstrap.rank(), ranks, 64);
        const auto peers = peers_of(bootstrap);
        ASSERT_NE(peers, nullptr);
        TestWatch watch(failed);
        const auto value = [](uint32_t of_rank, size_t i) { return static_cast<uint32_t>(i * 2654435761U) ^ of_rank; };
        for (const size_t count : {size_t{1}, size_t{5000}, size_t{300'001}}) {
            for (const bool exclusive : {false, true}) {
                for (const bool in_place : {false, true}) {
                    std::vector<uint32_t> in(count), out(count, 7);
                    for (size_t i = 0; i < count; ++i)
                        in[i] = value(rank, i);
                    uint32_t *to = in_place ? in.data() : out.data();
                    Waiter waiter(kYield, watch);
                    bool served = false;
                    const Status status = peers->run(
                        call_of(exclusive ? Collective::exscan : Collective::scan, in.data(), to, count, FLX_UINT32),
                        fused, waiter, served);
                    ASSERT_TRUE(status.ok()) << status.sentence();
                    ASSERT_TRUE(served);
                    const uint32_t parts = exclusive ? rank : rank + 1;
                    for (size_t i = 0; i < count; ++i) {
                        uint32_t expected = parts != 0 ? 0 : in_place ? value(rank, i) : 7;
                        for (uint32_t part = 0; part < parts; ++part)
                            expected += value(part, i);
                        ASSERT_EQ(to[i], expected) << "element " << i << " of " << count;
                    }
                }
            }
        }
    });
}

/// The kernel does not let others reach memory without access; the last rank's is such, and no rank takes this way.
TEST_P(Peers, MemoryThatCannotBeReachedIsLeftToOtherWays) {
    const int ranks = GetParam();
    constexpr size_t kBytes = 65536;
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, Fused::bytes(ranks, 64), segment).ok());
        Fused fused(segment->base(), rank, ranks, 64);
        const auto peers = peers_of(bootstrap);
        ASSERT_NE(peers, nullptr);
        std::vector<std::byte> out(kBytes), in(kBytes);
        const int protection = rank == ranks - 1 ? PROT_NONE : PROT_READ;
        void *closed = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(closed, MAP_FAILED);
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        bool served = true;
        Status status =
            peers->run(call_of(Collective::allreduce, closed, out.data(), kBytes, FLX_UINT8), fused, waiter, served);
        EXPECT_TRUE(status.ok()) << status.sentence();
        EXPECT_FALSE(served);
        status =
            peers->run(call_of(Collective::allreduce, in.data(), out.data(), kBytes, FLX_UINT8), fused, waiter, served);
        EXPECT_TRUE(status.ok()) << status.sentence();
        EXPECT_TRUE(served);
        munmap(closed, kBytes);
    });
}

/// Whatever was measured, all ranks choose alike, and only ways that exist.
TEST_P(Peers, TrialsAgree) {
    const int ranks = GetParam();
    constexpr size_t kBudget = 100'000;
    constexpr size_t kPayload = 32768;
    for (const bool with_peers : {false, true}) {
        std::vector<Ways> chosen(ranks);
        Board board;
        std::atomic<int> failed{0};
        run_group(ranks, [&](Bootstrap &bootstrap) {
            const int rank = bootstrap.rank();
            std::unique_ptr<Segment> segment;
            const size_t fused_bytes = Fused::bytes(ranks, kPayload);
            ASSERT_TRUE(Segment::make(bootstrap, fused_bytes + Stream::bytes(ranks, kBudget), segment).ok());
            Fused fused(segment->base(), rank, ranks, kPayload);
            Stream stream(segment->base() + fused_bytes, rank, ranks, kBudget);
            const auto peers = with_peers ? peers_of(bootstrap) : nullptr;
            TestWatch watch(failed);
            Waiter waiter(kYield, watch);
            Ways &ways = chosen[rank];
            ways = Ways(with_peers);
            size_t tried = 0;
            const Status status =
                try_ways(bootstrap, board, fused, stream, peers.get(), waiter, 20'000'000, ways, tried);
            ASSERT_TRUE(status.ok()) << status.sentence();
            EXPECT_LT(tried, Ways::kSizes[Ways::kTried - 1]);  // that is for many ranks
        });
        for (const Ways &ways : chosen) {
            for (const algorithms::Traits &traits : algorithms::kTraits) {
                for (const size_t bytes : Ways::kSizes) {
                    const Way way = ways.at(traits.collective, bytes);
                    EXPECT_EQ(way, chosen[0].at(traits.collective, bytes));
                    EXPECT_TRUE(with_peers || way != Way::fetched);
                }
            }
        }
    }
}

/// Many ranks also try two steps; small inputs then stay fused, and right. And they try large vectors, if that takes
/// not too long.
TEST(Trial, ManyRanksAgreeOnTwoSteps) {
    constexpr int kRanks = TwoSteps::kLeastRanks + 1;
    constexpr size_t kPayload = 4096;
    const bool full = std::getenv("FLX_TEST_FULL") != nullptr;
    const int64_t budget_ns = full ? 60'000'000'000 : 50'000'000;
    std::vector<Ways> chosen(kRanks);
    Board board;
    std::atomic<int> failed{0};
    run_group(kRanks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        const size_t fused_bytes = Fused::bytes(kRanks, kPayload);
        ASSERT_TRUE(Segment::make(bootstrap, fused_bytes + Stream::bytes(kRanks, 1), segment).ok());
        Fused fused(segment->base(), rank, kRanks, kPayload);
        Stream stream(segment->base() + fused_bytes, rank, kRanks, 1);
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        size_t tried = 0;
        const auto peers = peers_of(bootstrap);
        const Status status =
            try_ways(bootstrap, board, fused, stream, peers.get(), waiter, budget_ns, chosen[rank], tried);
        ASSERT_TRUE(status.ok()) << status.sentence();
        EXPECT_TRUE(!full || tried == Ways::kSizes[Ways::kTried - 1]) << tried;
        std::vector<int> sum(100, rank);
        ASSERT_TRUE(fused.allreduce(sum.data(), sum.data(), sum.size(), FLX_INT32, FLX_SUM, 1, waiter).ok());
        EXPECT_EQ(sum, std::vector<int>(100, kRanks * (kRanks - 1) / 2));
    });
    for (const Ways &ways : chosen) {
        EXPECT_EQ(ways.two_steps.allreduce, chosen[0].two_steps.allreduce);
        EXPECT_EQ(ways.two_steps.allgather, chosen[0].two_steps.allgather);
        EXPECT_EQ(ways.two_steps.barrier, chosen[0].two_steps.barrier);
    }
}

/// Ends waits when something stands on a board. One that fails has no memory while it waits.
class BoardWatch final : public Watch {
  public:
    BoardWatch(const Board &board, bool fails) : board_(board), fails_(fails) {}
    void progress() override {}
    /// The first turn of a wait, so that the shortest one fails, too.
    void outlasted() override {
        if (fails_)
            throw std::bad_alloc();
    }
    Status check(int64_t waited_ns) override {
        return waited_ns > 10'000'000'000 ? fail(Fault::peer_died, "waited for 10 s") : Board::look(&board_);
    }

  private:
    const Board &board_;
    const bool fails_;
};

TEST(Trial, WhoFailsLeavesNobodyWaiting) {
    constexpr int kRanks = 3;
    constexpr size_t kPayload = 4096;
    Board board;
    run_group(kRanks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        const size_t fused_bytes = Fused::bytes(kRanks, kPayload);
        ASSERT_TRUE(Segment::make(bootstrap, fused_bytes + Stream::bytes(kRanks, 1), segment).ok());
        Fused fused(segment->base(), rank, kRanks, kPayload);
        Stream stream(segment->base() + fused_bytes, rank, kRanks, 1);
        BoardWatch watch(board, rank == 1);
        Waiter waiter(kYield, watch);
        Ways ways(false);
        size_t tried = 0;
        // Far more time than a rank needs to wait for once.
        const Status status = try_ways(bootstrap, board, fused, stream, nullptr, waiter, 60'000'000'000, ways, tried);
        ASSERT_FALSE(status.ok()) << "rank 1 never waited";
        EXPECT_EQ(status.fault(), Fault::no_memory) << status.sentence();
    });
}

TEST(WaysTest, TakeTheNearestSize) {
    Ways ways(true);
    ways.set(Collective::bcast, 4, Way::streamed);  // 256 KiB
    EXPECT_EQ(ways.at(Collective::bcast, 8), Way::fused);
    EXPECT_EQ(ways.at(Collective::bcast, 4096), Way::fused);
    EXPECT_EQ(ways.at(Collective::bcast, 100'000), Way::fetched) << "nearer to 64 KiB";
    EXPECT_EQ(ways.at(Collective::bcast, 150'000), Way::streamed);
    EXPECT_EQ(ways.at(Collective::bcast, 500'000), Way::streamed);
    EXPECT_EQ(ways.at(Collective::bcast, 600'000), Way::fetched) << "nearer to 1 MiB";
    EXPECT_EQ(ways.at(Collective::allreduce, 256U << 10), Way::fetched);
    EXPECT_EQ(ways.at(Collective::allreduce, size_t{16} << 20), Way::fetched);
    EXPECT_EQ(ways.at(Collective::allreduce, size_t{128} << 20), Way::streamed) << "larger than a cache";
    EXPECT_EQ(Ways(false).at(Collective::allreduce, 1U << 20), Way::streamed);
}

TEST(WaysTest, RanksThatShareCoresFetchOnlyWhatTheyWouldCopyTwice) {
    for (const size_t bytes : {size_t{64} << 10, size_t{256} << 10, size_t{4} << 20, size_t{16} << 20}) {
        EXPECT_EQ(Ways(true, true).at(Collective::allreduce, bytes), Way::streamed);
        EXPECT_EQ(Ways(true, true).at(Collective::alltoall, bytes),
                  bytes >= size_t{256} << 10 ? Way::fetched : Way::streamed);
        EXPECT_EQ(Ways(false, true).at(Collective::alltoall, bytes), Way::streamed);
    }
}

/// As where a container forbids it: all ranks learn why, and do without.
TEST(PeerMemory, SaysWhyTheKernelRefuses) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        const sock_fprog program{std::size(filter), filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
            _exit(77);
        std::atomic<int> told{0};
        run_group(3, [&](Bootstrap &bootstrap) {
            std::unique_ptr<PeerMemory> peers;
            PeerMemory::Why why;
            const Status status = PeerMemory::make(bootstrap, std::vector<int>(bootstrap.size(), getpid()), peers, why);
            if (status.ok() && peers != nullptr && !peers->by_kernel() && peers->maps() && why.not_mapped.empty() &&
                why.not_by_kernel.find("Operation not permitted") != std::string::npos &&
                why.not_by_kernel.find("reading memory of rank 0") != std::string::npos)
                ++told;
        });
        _exit(told == 3 ? 0 : 1);
    }
    int ended = 0;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    ASSERT_TRUE(WIFEXITED(ended));
    if (WEXITSTATUS(ended) == 77)
        GTEST_SKIP() << "skipped: no seccomp filters here";
    EXPECT_EQ(WEXITSTATUS(ended), 0);
}

// ---- sleeping

/// A Watch that sleeps on bells, as a communicator does.
class SleepyWatch final : public Watch {
  public:
    /// `slept`: the last round in which its rank did.
    SleepyWatch(Bells &bells, const std::atomic<int> &failed, std::atomic<int> &slept)
        : bells_(bells), failed_(failed), slept_(slept) {}
    void progress() override {}
    Status check(int64_t waited_ns) override { return TestWatch(failed_).check(waited_ns); }
    bool arm() override {
        bells_.arm();
        return true;
    }
    void disarm() override { bells_.disarm(); }
    void sleep(int64_t ns) override {
        slept_ = round;
        bells_.sleep(ns);
    }
    int round = 0;

  private:
    Bells &bells_;
    const std::atomic<int> &failed_;
    std::atomic<int> &slept_;
};

int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

/// Ranks that wait for one that is late sleep, and are woken by it long before their sleep would end.
TEST(Bells, WakeThoseWhoWait) {
    constexpr int kRanks = 3;
    constexpr int kRounds = 8;
    constexpr int64_t kLateNs = 60'000'000;
    // Were nobody woken, each round would take a sleep of two seconds.
    constexpr WaitPolicy kLongSleeps{
        .spins = 0, .sleep_after_ns = 1'000'000, .sleep_ns = 900'000'000, .most_sleep_ns = 2'000'000'000};
    std::atomic<int> failed{0};
    std::array<std::atomic<int>, kRanks> slept{};
    // A rank yields before it sleeps, and may not get its core back for long.
    const auto others_sleep = [&](int rank, int round) {
        return std::count(slept.begin(), slept.end(), round) == kRanks - 1 && slept[rank] != round;
    };
    std::vector<std::byte> owner(Bells::bytes(kRanks) + Fused::bytes(kRanks, 64) + Stream::bytes(kRanks, 1) + 128);
    auto *memory = owner.data() + (64 - reinterpret_cast<uintptr_t>(owner.data()) % 64) % 64;
    const int64_t began = now_ns();
    testing::run_ranks(kRanks, [&](int rank) {
        Bells bells(memory, rank, kRanks);
        Fused fused(memory + Bells::bytes(kRanks), rank, kRanks, 64, &bells);
        SleepyWatch watch(bells, failed, slept[rank]);
        const int64_t cpu_began = thread_cpu_ns();
        for (int round = 1; round <= kRounds; ++round) {
            watch.round = round;
            const int64_t late_until = now_ns() + kLateNs;
            while (rank == round % kRanks && failed == 0 && (now_ns() < late_until || !others_sleep(rank, round)))
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            Waiter waiter(kLongSleeps, watch);
            const Status status = fused.barrier(1, waiter);
            if (!status.ok())
                ++failed;
            ASSERT_TRUE(status.ok()) << status.sentence();
        }
        EXPECT_LT(thread_cpu_ns() - cpu_began, kRounds * kLateNs / 4) << "waiting takes no core";
    });
    EXPECT_LT(now_ns() - began, 4'000'000'000) << "nobody slept until its time was over";
}

/// What was shown between arm() and sleep() is not slept over; a bell that nobody waits for does nothing.
TEST(Bells, RingBeforeSleepIsNotLost) {
    std::vector<std::byte> owner(Bells::bytes(2) + 64);
    auto *memory = owner.data() + (64 - reinterpret_cast<uintptr_t>(owner.data()) % 64) % 64;
    Bells mine(memory, 0, 2), theirs(memory, 1, 2);
    theirs.ring();
    mine.arm();
    theirs.ring();
    const int64_t began = now_ns();
    mine.sleep(20'000'000'000);
    EXPECT_LT(now_ns() - began, 10'000'000'000);
    mine.arm();
    mine.disarm();
    mine.arm();
    mine.sleep(1'000'000);  // nobody rings
    theirs.ring();
}

}  // namespace
}  // namespace flx::shm
