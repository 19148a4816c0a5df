/// Collectives and the link of one host, with ranks as threads: fused and streamed calls in random order against a
/// serial reference, rings that wrap, and segments that leave nothing behind.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "runtime/shm/memory/cache_share.h"
#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/fused.h"
#include "runtime/shm/ways/stream.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/plan/calls.h"
#include "tests/runtime/shm/ways/shm_calls.h"

namespace flx::shm {
namespace {

using algorithms::Collective;
using testing::kYield;
using testing::random_call;
using testing::run_group;
using testing::run_ranks;
using testing::TestBuffers;
using testing::TestCall;
using testing::TestWatch;

class Shm : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Shm, ::testing::Range(1, 6));

using Caller = std::function<Status(const TestCall &, const TestBuffers &, uint32_t signature, Waiter &)>;

/// Runs `calls` random calls on each rank. One of the ranks, not always the same, comes late now and then.
void run_random_calls(int ranks, uint32_t seed, int calls, size_t most_bytes, bool barrier,
                      const std::function<Caller(std::byte *, int rank)> &make, size_t memory_bytes) {
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        const Status made = Segment::make(bootstrap, memory_bytes, segment);
        ASSERT_TRUE(made.ok()) << made.sentence();
        const Caller caller = make(segment->base(), rank);
        std::mt19937 random(seed);
        TestWatch watch(failed);
        for (int number = 0; number < calls && failed == 0; ++number) {
            const TestCall call = random_call(random, ranks, most_bytes, barrier);
            const uint32_t late = random() % (4 * ranks);
            if (late == static_cast<uint32_t>(rank))
                std::this_thread::sleep_for(std::chrono::microseconds(300));
            const TestBuffers buffers(call, rank);
            Waiter waiter(kYield, watch);
            const Status status = caller(call, buffers, call.seed, waiter);
            // Equal to one reference on every rank, so equal on all of them.
            const bool right = status.ok() && buffers.result() == result_of(call, rank) && buffers.intact();
            if (!right)
                ++failed;
            ASSERT_TRUE(status.ok()) << call.text() << ": " << status.sentence();
            ASSERT_TRUE(right) << call.text() << ", call " << number << ", rank " << rank << ", seed " << seed
                               << (buffers.intact() ? "" : ": wrote elsewhere");
        }
    });
    EXPECT_EQ(failed, 0);
}

/// Three packages of two caches, ranks dealt out in turn.
std::vector<probe::Place> made_up_places(int ranks) {
    std::vector<probe::Place> places;
    for (int rank = 0; rank < ranks; ++rank)
        places.push_back({rank % 3, rank % 6});
    return places;
}

/// `two_steps`: most calls that can go in steps do, some of them along a tree.
Caller fused_caller(std::byte *memory, int rank, int ranks, size_t payload, bool two_steps = false) {
    const auto fused = std::make_shared<Fused>(memory, rank, ranks, payload);
    return [fused, ranks, two_steps](const TestCall &call, const TestBuffers &buffers, uint32_t signature,
                                     Waiter &waiter) {
        if (two_steps) {
            fused->set_two_steps({call.seed % 5 == 0 ? TwoSteps::kNever : call.seed % 100,
                                  call.seed % 3 == 0 ? TwoSteps::kNever : call.seed % 30, call.seed % 2 == 0,
                                  call.seed % 7 == 0 ? TwoSteps::kNever : call.seed % 50});
            fused->set_tree(call.seed % 4 < 2 ? Tree(made_up_places(ranks)) : Tree(ranks));
        }
        switch (call.collective) {
            case Collective::allreduce:
                return fused->allreduce(buffers.in(), buffers.out(), call.count, call.dtype, call.op, signature,
                                        waiter);
            case Collective::reduce:
                return fused->reduce(buffers.in(), buffers.out(), call.count, call.dtype, call.op, call.root, signature,
                                     waiter);
            case Collective::reduce_scatter_block:
                return fused->reduce_scatter_block(buffers.in(), buffers.out(), call.block(), call.dtype, call.op,
                                                   signature, waiter);
            case Collective::allgather:
                return fused->allgather(buffers.in(), buffers.out(), call.block() * call.element(), signature, waiter);
            case Collective::bcast:
                return fused->bcast(buffers.out(), call.count * call.element(), call.root, signature, waiter);
            default:  // barrier; random_call() makes no others: tests/mpi/exchanges_test.cpp and ways_test.cpp do
                break;
        }
        return fused->barrier(signature, waiter);
    };
}

Caller stream_caller(std::byte *memory, int rank, int ranks, size_t budget, size_t cache_share = 0) {
    const auto stream = std::make_shared<Stream>(memory, rank, ranks, budget, nullptr, cache_share);
    return [stream](const TestCall &call, const TestBuffers &buffers, uint32_t signature, Waiter &waiter) {
        Call streamed = call_of(call, buffers.in(), buffers.out());
        streamed.operation.signature = signature;
        return stream->run(streamed, waiter);
    };
}

TEST(Pairs, BeginAtTheLineOrTheNext) {
    alignas(kPair) std::byte memory[4 * kPair];
    for (size_t line = 0; line < 4; ++line)
        EXPECT_EQ(to_pair(memory + line * kPair / 2) - memory, (line + 1) / 2 * kPair) << line;
}

TEST_P(Shm, FusedCallsInRandomOrder) {
    const int ranks = GetParam();
    // The first is not a multiple of a cache line; of the second, places of all sizes share a ring.
    for (const size_t payload : {size_t{1000}, size_t{40'000}})
        for (uint32_t seed = 1; seed <= 3; ++seed)
            run_random_calls(
                ranks, seed, 400, payload, true,
                [&](std::byte *memory, int rank) { return fused_caller(memory, rank, ranks, payload); },
                Fused::bytes(ranks, payload));
}

TEST_P(Shm, FusedCallsInTwoSteps) {
    const int ranks = GetParam();
    constexpr size_t kPayload = 1000;
    for (uint32_t seed = 1; seed <= 3; ++seed)
        run_random_calls(
            ranks, seed, 400, kPayload, true,
            [&](std::byte *memory, int rank) { return fused_caller(memory, rank, ranks, kPayload, true); },
            Fused::bytes(ranks, kPayload));
}

TEST(FusedTwoSteps, ManyRanks) {
    constexpr int kRanks = 11;
    run_random_calls(
        kRanks, 7, 40, 4096, true,
        [&](std::byte *memory, int rank) { return fused_caller(memory, rank, kRanks, 4096, true); },
        Fused::bytes(kRanks, 4096));
}

/// A rank that only sends must not write over what slow readers have not read.
TEST_P(Shm, FusedRootsDoNotOvertakeReaders) {
    const int ranks = GetParam();
    constexpr size_t kPayload = 40'000;
    // A page, two places in the ring, four: they lie over each other.
    constexpr std::array<size_t, 4> kCounts = {512, 1500, 600, 4000};
    std::atomic<int> failed{0};
    std::vector<std::byte> memory_owner(Fused::bytes(ranks, kPayload) + 64);
    auto *memory = memory_owner.data() + (64 - reinterpret_cast<uintptr_t>(memory_owner.data()) % 64) % 64;
    run_ranks(ranks, [&](int rank) {
        const Caller caller = fused_caller(memory, rank, ranks, kPayload);
        TestWatch watch(failed);
        for (uint32_t number = 0; number < 60; ++number) {
            const Collective collective = number / 20 % 2 == 0 ? Collective::bcast : Collective::reduce;
            const TestCall call{collective, FLX_INT64, FLX_SUM, ranks, 0, kCounts[number % kCounts.size()],
                                false,      number};
            if ((rank == 0) == (collective == Collective::reduce) && number % 3 == 0)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            const TestBuffers buffers(call, rank);
            Waiter waiter(kYield, watch);
            const Status status = caller(call, buffers, number, waiter);
            ASSERT_TRUE(status.ok()) << status.sentence();
            ASSERT_TRUE(buffers.result() == result_of(call, rank)) << call.text() << ", call " << number;
        }
    });
}

TEST_P(Shm, StreamedCallsInRandomOrder) {
    const int ranks = GetParam();
    // The first gives the smallest blocks there are; with the last, one vector takes a few blocks. And with a small
    // cache calls go round more or less of the ring, by their blocks.
    for (const size_t budget : {size_t{1}, size_t{200'000}}) {
        for (const size_t cache_share : {size_t{0}, size_t{80'000}}) {
            const uint32_t seed = static_cast<uint32_t>(budget % 97);
            run_random_calls(
                ranks, seed, 60, 300'000, false,
                [&](std::byte *memory, int rank) { return stream_caller(memory, rank, ranks, budget, cache_share); },
                Stream::bytes(ranks, budget));
        }
    }
}

/// Where all rings would take too much of the cache, short calls use the beginning of each, and use it again.
TEST_P(Shm, ShortStreamsStayInTheCache) {
    const int ranks = GetParam();
    constexpr size_t kBudget = size_t{2} << 20;
    constexpr size_t kShare = size_t{4} << 20;  // an eighth of it for a ring
    const Area rings = Stream::area(ranks, kBudget);
    const auto farthest = [&](size_t cache_share) {
        std::atomic<int> failed{0};
        std::vector<std::byte> owner(Stream::bytes(ranks, kBudget) + 64);
        auto *memory = owner.data() + (64 - reinterpret_cast<uintptr_t>(owner.data()) % 64) % 64;
        run_ranks(ranks, [&](int rank) {
            const Caller caller = stream_caller(memory, rank, ranks, kBudget, cache_share);
            TestWatch watch(failed);
            for (uint32_t number = 0; number < 400; ++number) {
                const TestCall call{Collective::allreduce, FLX_INT64, FLX_SUM, ranks, 0, 2000, false, number + 1};
                const TestBuffers buffers(call, rank);
                Waiter waiter(kYield, watch);
                const Status status = caller(call, buffers, number, waiter);
                ASSERT_TRUE(status.ok()) << status.sentence();
                ASSERT_TRUE(buffers.result() == result_of(call, rank)) << "call " << number;
            }
        });
        const std::byte *ring = memory + rings.offset;
        size_t used = rings.stride;
        while (used > 0 && ring[used - 1] == std::byte{0})
            --used;
        return used;
    };
    if (ranks == 1)
        return;
    EXPECT_LE(farthest(kShare), kShare / 8);
    EXPECT_GT(farthest(kShare), kShare / 16);
    EXPECT_GT(farthest(0), kBudget / 2);
}

TEST(CacheShare, WhatGoesPastTheCache) {
    constexpr size_t kMiB = size_t{1} << 20;
    EXPECT_EQ(past_cache_from(0), 8 * kMiB) << "not known";
    EXPECT_EQ(past_cache_from(16 * kMiB), 6 * kMiB);
    EXPECT_EQ(past_cache_from(150 * kMiB), 8 * kMiB);
    EXPECT_EQ(past_cache_from(kMiB / 2), kMiB);
    EXPECT_EQ(long_ring(0, 2 * kMiB), 2 * kMiB);
    EXPECT_EQ(long_ring(8 * kMiB, 2 * kMiB), kMiB);
    EXPECT_EQ(long_ring(150 * kMiB, 2 * kMiB), 2 * kMiB);
}

/// Rank 0 may run far ahead while it only sends; what is behind it must stay as it was until the slowest has read it.
void root_runs_ahead(int ranks, uint32_t calls, size_t count) {
    constexpr size_t kPayload = 4096;
    std::atomic<int> failed{0};
    std::atomic<bool> root_done{ranks == 1};
    std::vector<std::byte> memory_owner(Fused::bytes(ranks, kPayload) + 64);
    auto *memory = memory_owner.data() + (64 - reinterpret_cast<uintptr_t>(memory_owner.data()) % 64) % 64;
    run_ranks(ranks, [&](int rank) {
        const Caller caller = fused_caller(memory, rank, ranks, kPayload);
        TestWatch watch(failed);
        // Readers begin when the root has ended its last call: it must not need them for so many short ones.
        while (rank != 0 && !root_done)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        for (uint32_t number = 0; number < calls; ++number) {
            const TestCall call{Collective::bcast, FLX_INT64, FLX_SUM, ranks, 0, count, false, number};
            const TestBuffers buffers(call, rank);
            Waiter waiter(kYield, watch);
            const Status status = caller(call, buffers, number, waiter);
            ASSERT_TRUE(status.ok()) << status.sentence();
            ASSERT_TRUE(buffers.result() == result_of(call, rank)) << call.text() << ", call " << number;
        }
        root_done = root_done || rank == 0;
    });
}

TEST_P(Shm, FusedRootRunsAhead) {
    root_runs_ahead(GetParam(), 60, 4);   // in boards
    root_runs_ahead(GetParam(), 30, 32);  // 256 bytes: the longest short payload
}

/// What readers have read is theirs no more, whether they call again or not, so that the root can go on to payloads of
/// which few fit.
TEST(FusedRings, RootGoesOnWhileReadersAreAway) {
    constexpr size_t kPayload = 4096;
    std::atomic<int> failed{1};  // ends waits at once: nothing can come here
    TestWatch watch(failed);
    const WaitPolicy impatient{.spins = 0, .check_ns = 0};
    std::vector<std::byte> data(kPayload);
    for (const size_t bytes : {8, 200, 1000}) {
        std::vector<std::byte> memory_owner(Fused::bytes(2, kPayload) + 64);
        auto *memory = memory_owner.data() + (64 - reinterpret_cast<uintptr_t>(memory_owner.data()) % 64) % 64;
        Fused root(memory, 0, 2, kPayload), reader(memory, 1, 2, kPayload);
        const auto bcast = [&](Fused &rank, size_t length) {
            Waiter waiter(impatient, watch);
            return rank.bcast(data.data(), length, 0, 7, waiter).ok();
        };
        for (int number = 0; number < 21; ++number)
            ASSERT_TRUE(bcast(root, bytes) && bcast(reader, bytes)) << bytes << " B, call " << number;
        for (int number = 0; number < 4; ++number)
            ASSERT_TRUE(bcast(root, kPayload)) << "payload " << number << " after " << bytes << " B";
        EXPECT_FALSE(bcast(root, kPayload)) << "nobody has read the first of them";
    }
}

/// A root that is ahead shows a ragged call's input where nobody reads any more, however long the other ranks' inputs
/// are.
TEST(FusedRings, RaggedInputsWaitForTheirOwnPlaces) {
    constexpr size_t kPayload = 40'000;
    std::atomic<int> failed{1};  // ends waits at once
    TestWatch watch(failed);
    const WaitPolicy impatient{.spins = 0, .check_ns = 0};
    std::vector<std::byte> memory_owner(Fused::bytes(2, kPayload) + 64);
    auto *memory = memory_owner.data() + (64 - reinterpret_cast<uintptr_t>(memory_owner.data()) % 64) % 64;
    std::vector<std::byte> read(kPayload), all(2 * kPayload);
    const std::vector<std::byte> first(kPayload, std::byte{1}), later(kPayload, std::byte{2});
    for (const size_t own : {100, 200, 1000, 6000}) {
        for (const size_t longest : {200, 1000, 6000, 12'000, 40'000}) {
            for (int calls_between = 0; calls_between < 70; ++calls_between) {
                std::ranges::fill(memory_owner, std::byte{0});
                Fused root(memory, 0, 2, kPayload), reader(memory, 1, 2, kPayload);
                read = first;
                bool shown = true;
                for (int call = 0; call <= calls_between && shown; ++call) {
                    Waiter waiter(impatient, watch);
                    shown = root.bcast(read.data(), call == 0 ? own : 8, 0, 7, waiter).ok();
                }
                const std::array<size_t, 2> counts = {own, longest}, places = {0, kPayload};
                Waiter waiter(impatient, watch);
                // The reader's input has not come, so this does not end.
                ASSERT_FALSE(
                    shown &&
                    root.allgatherv(later.data(), all.data(), counts.data(), places.data(), 1, 7, waiter).ok());
                std::ranges::fill(read, std::byte{0});
                ASSERT_TRUE(reader.bcast(read.data(), own, 0, 7, waiter).ok());
                ASSERT_TRUE(std::equal(first.begin(), first.begin() + own, read.begin()))
                    << own << " of " << longest << " B after " << calls_between << " calls";
            }
        }
    }
}

/// So large that results are written past the cache, over blocks that wrap hundreds of times.
TEST_P(Shm, StreamedLargeVector) {
    const int ranks = GetParam();
    std::atomic<int> failed{0};
    std::vector<std::byte> memory_owner(Stream::bytes(ranks, 1) + 64);
    auto *memory = memory_owner.data() + (64 - reinterpret_cast<uintptr_t>(memory_owner.data()) % 64) % 64;
    run_ranks(ranks, [&](int rank) {
        const Caller caller = stream_caller(memory, rank, ranks, 1);
        TestWatch watch(failed);
        for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
            const TestCall call{collective, FLX_UINT64, FLX_SUM, ranks, ranks - 1, (9U << 20) / 8 + 3, false, 5};
            const TestBuffers buffers(call, rank);
            Waiter waiter(kYield, watch);
            const Status status = caller(call, buffers, 1, waiter);
            ASSERT_TRUE(status.ok()) << status.sentence();
            ASSERT_TRUE(buffers.result() == result_of(call, rank)) << call.text();
            ASSERT_TRUE(buffers.intact());
        }
    });
}

/// After a few calls that agree, the last rank calls with another signature: whoever reads it says so, and no rank
/// returns as if nothing were wrong where all ranks read each other.
void expect_mismatch(int ranks, const std::vector<Collective> &collectives, size_t memory_bytes,
                     const std::function<Caller(std::byte *, int rank)> &make) {
    for (const Collective collective : collectives) {
        std::atomic<int> failed{0}, mismatches{0}, successes{0};
        std::barrier agreed(ranks);  // a rank that is still in the calls before must not hear of the failure
        std::vector<std::byte> memory_owner(memory_bytes + 64);
        auto *memory = memory_owner.data() + (64 - reinterpret_cast<uintptr_t>(memory_owner.data()) % 64) % 64;
        run_ranks(ranks, [&](int rank) {
            const Caller caller = make(memory, rank);
            TestWatch watch(failed);
            for (uint32_t number = 0; number <= 3; ++number) {
                const TestCall call{collective, FLX_INT32, FLX_SUM, ranks, 0, static_cast<size_t>(60 * ranks),
                                    false,      number};
                const TestBuffers buffers(call, rank);
                Waiter waiter(kYield, watch);
                const bool wrong = number == 3 && rank == ranks - 1;
                if (number == 3)
                    agreed.arrive_and_wait();
                const Status status = caller(call, buffers, number + (wrong ? 1000 : 0), waiter);
                if (number < 3) {
                    ASSERT_TRUE(status.ok()) << status.sentence();
                    continue;
                }
                if (status.ok()) {
                    ++successes;
                    continue;
                }
                if (status.code() == FLX_ERR_MISMATCH) {
                    ++mismatches;
                    EXPECT_NE(status.sentence().find("all ranks must call alike"), std::string::npos);
                } else {
                    EXPECT_EQ(status.code(), FLX_ERR_COMM) << status.sentence();
                }
                ++failed;
            }
        });
        EXPECT_GE(mismatches, 1) << name_of(collective);
        if (collective == Collective::allreduce || collective == Collective::allgather ||
            collective == Collective::barrier) {
            EXPECT_EQ(successes, 0) << name_of(collective);
        }
    }
}

TEST_P(Shm, FusedMismatch) {
    const int ranks = GetParam();
    if (ranks == 1)
        return;
    using enum Collective;
    expect_mismatch(ranks, {allreduce, reduce, reduce_scatter_block, allgather, bcast, barrier},
                    Fused::bytes(ranks, 2048),
                    [&](std::byte *memory, int rank) { return fused_caller(memory, rank, ranks, 2048); });
}

TEST_P(Shm, StreamedMismatch) {
    const int ranks = GetParam();
    if (ranks == 1)
        return;
    using enum Collective;
    expect_mismatch(ranks, {allreduce, reduce, reduce_scatter_block, allgather, bcast}, Stream::bytes(ranks, 1),
                    [&](std::byte *memory, int rank) { return stream_caller(memory, rank, ranks, 1); });
}

// ---- segments

std::set<std::string> entries() {
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator("/dev/shm"))
        if (entry.path().filename().string().rfind("flx-", 0) == 0)
            names.insert(entry.path());
    return names;
}

/// Whether all entries that came since `before` go: those of other programs live for a moment too.
bool new_entries_go(const std::set<std::string> &before) {
    std::set<std::string> left = entries();
    std::erase_if(left, [&](const std::string &name) { return before.count(name) != 0; });
    for (int turn = 0; turn < 500 && !left.empty(); ++turn) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::erase_if(left, [](const std::string &name) { return !std::filesystem::exists(name); });
    }
    return left.empty();
}

TEST(Segment, IsZeroSharedAndWithoutName) {
    const std::set<std::string> before = entries();
    run_group(3, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        const Status status = Segment::make(bootstrap, 100'000, segment);
        ASSERT_TRUE(status.ok()) << status.sentence();
        ASSERT_EQ(segment->bytes(), 100'000U);
        if (bootstrap.rank() == 0) {
            EXPECT_TRUE(std::all_of(segment->base(), segment->base() + segment->bytes(),
                                    [](std::byte byte) { return byte == std::byte{0}; }));
            // The mapping has no name any more.
            std::ifstream maps("/proc/self/maps");
            std::string line, found;
            const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(segment->base()));
            while (std::getline(maps, line))
                if (line.rfind(begin, 0) == 0)
                    found = line;
            EXPECT_NE(found.find("/dev/shm/flx-"), std::string::npos) << found;
            EXPECT_NE(found.find("(deleted)"), std::string::npos) << found;
        }
        (void)bootstrap.barrier();
        segment->base()[bootstrap.rank()] = std::byte{7};
        (void)bootstrap.barrier();
        for (int rank = 0; rank < 3; ++rank)
            EXPECT_EQ(segment->base()[rank], std::byte{7});
        for (int rank = 0; rank < 3; ++rank)
            EXPECT_TRUE(rank == bootstrap.rank() || segment->alive(rank));
        (void)bootstrap.barrier();
        if (bootstrap.rank() == 2)
            segment.reset();
        (void)bootstrap.barrier();
        if (bootstrap.rank() == 0) {
            EXPECT_TRUE(segment->alive(1));
            EXPECT_FALSE(segment->alive(2)) << "gave its segment back";
        }
        (void)bootstrap.barrier();
    });
    EXPECT_TRUE(new_entries_go(before));
}

/// A file in /dev/shm whose name begins as those of segments do, last written `age_s` ago. Gone with this.
class Named {
  public:
    Named(const std::string &name, time_t age_s) : path_("/dev/shm/" + name) {
        fd_ = open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        const timespec then{time(nullptr) - age_s, 0};
        const timespec times[2] = {then, then};
        EXPECT_TRUE(fd_ >= 0 && futimens(fd_, times) == 0) << path_;
    }
    ~Named() {
        close(fd_);
        unlink(path_.c_str());
    }
    Named(const Named &) = delete;
    Named &operator=(const Named &) = delete;
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] bool exists() const { return access(path_.c_str(), F_OK) == 0; }

  private:
    std::string path_;
    int fd_;
};

/// What a rank leaves that was killed between making a segment and taking its name away goes with the next segment;
/// nothing else does.
/// What a rank writes is its own to reserve, and together they reserve all.
TEST(Segment, PartsAreTheOwnersAndWhole) {
    constexpr int kRanks = 3;
    constexpr size_t kBytes = 10'000;
    const std::vector<Area> areas = {{100, 1000}, {3100, 64}, {4000, 1500}};
    for (const std::span<const Area> some : {std::span<const Area>(areas), std::span<const Area>()}) {
        std::vector<int> owner(kBytes, -1);
        for (int rank = 0; rank < kRanks; ++rank) {
            for (const Range &part : parts_of(rank, kRanks, kBytes, some)) {
                ASSERT_LE(part.offset + part.bytes, kBytes);
                for (size_t byte = part.offset; byte < part.offset + part.bytes; ++byte)
                    EXPECT_EQ(std::exchange(owner[byte], rank), -1) << byte;
            }
        }
        EXPECT_EQ(std::ranges::count(owner, -1), 0);
        for (const Area &area : some)
            for (int rank = 0; rank < kRanks; ++rank)
                for (size_t byte = 0; byte < area.stride; ++byte)
                    EXPECT_EQ(owner[area.offset + rank * area.stride + byte], rank);
    }
}

/// What is late is nobody's at first.
TEST(Segment, LatePartsAreNotReserved) {
    constexpr int kRanks = 3;
    constexpr size_t kBytes = 10'000;
    const std::vector<Area> areas = {{100, 1000}, {3100, 64, true}, {4000, 1500, true}};
    std::vector<int> owner(kBytes, -1);
    for (int rank = 0; rank < kRanks; ++rank)
        for (const Range &part : parts_of(rank, kRanks, kBytes, areas))
            for (size_t byte = part.offset; byte < part.offset + part.bytes; ++byte)
                EXPECT_EQ(std::exchange(owner[byte], rank), -1) << byte;
    for (size_t byte = 0; byte < kBytes; ++byte) {
        const bool late = (byte >= 3100 && byte < 3100 + 3 * 64) || (byte >= 4000 && byte < 4000 + 3 * 1500);
        ASSERT_EQ(owner[byte] == -1, late) << byte;
    }
}

/// Bytes in memory of the one segment of that length that this process has open.
size_t reserved_of(size_t bytes) {
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;  // other threads' files come and go
        struct stat found {};
        if (std::filesystem::read_symlink(entry, gone).string().rfind("/dev/shm/flx-", 0) == 0 &&
            stat(entry.path().c_str(), &found) == 0 && found.st_size == static_cast<off_t>(bytes))
            return static_cast<size_t>(found.st_blocks) * 512;
    }
    return 0;
}

TEST(Segment, LatePartsAreReservedAndGivenBack) {
    constexpr size_t kBytes = 41 * 4096;
    run_group(2, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        const std::vector<Area> areas = {{4096, 20 * 4096, true}};
        ASSERT_TRUE(Segment::make(bootstrap, kBytes, segment, areas).ok());
        if (bootstrap.rank() == 0) {
            EXPECT_EQ(reserved_of(kBytes), 4096U);
            std::byte *own = segment->base() + 4096;
            ASSERT_TRUE(segment->reserve(own, 10'000).ok());
            EXPECT_EQ(reserved_of(kBytes), 4U * 4096);
            own[9999] = std::byte{1};
            segment->give_back(own, 10'000);
            EXPECT_EQ(reserved_of(kBytes), 2U * 4096) << "but for the page of which it had a part";
            EXPECT_EQ(own[9999], std::byte{0});
            const Status none = segment->reserve(own, size_t{1} << 60);
            EXPECT_EQ(none.number(), 802);
            EXPECT_NE(none.words().find("no room for 1152921504606846976 further bytes of shared memory"),
                      std::string::npos)
                << none.words();
        }
        (void)bootstrap.barrier();
    });
}

/// So that no rank is killed by a signal later.
TEST(Segment, IsReservedWholeByAllTogether) {
    constexpr size_t kBytes = 40 * 4096;
    std::atomic<size_t> reserved{0};
    run_group(3, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        const std::vector<Area> areas = {{5000, 20'000}, {70'000, 30'000}};
        ASSERT_TRUE(Segment::make(bootstrap, kBytes, segment, areas).ok());
        if (bootstrap.rank() == 0)
            reserved = reserved_of(kBytes);
    });
    EXPECT_EQ(reserved, kBytes);
}

/// A child that was forked, and did not start a program, has what its parent had; its parent's lock must not be in it.
TEST(Segment, AForkedChildDoesNotKeepItsParentAlive) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = -1;
    run_group(2, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, 4096, segment).ok());
        ASSERT_TRUE(bootstrap.barrier().ok());
        if (bootstrap.rank() == 1) {
            child = fork();
            if (child == 0) {
                close(ends[1]);
                char byte;
                static_cast<void>(read(ends[0], &byte, 1));  // until the parent closes its end
                _exit(0);
            }
            segment.reset();
        }
        ASSERT_TRUE(bootstrap.barrier().ok());
        // The child gives up what it inherited as soon as it runs.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (bootstrap.rank() == 0 && segment->alive(1) && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (bootstrap.rank() == 0) {
            EXPECT_FALSE(segment->alive(1));
        }
        ASSERT_TRUE(bootstrap.barrier().ok());
    });
    EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "it lives";
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(Segment, TakesAwayNamesThatWereLeft) {
    const std::string mine = fmt::format("test-{}-", getpid());
    constexpr time_t kOldS = 100;
    const Named left("flx-" + mine + "left", kOldS), fresh("flx-" + mine + "fresh", 0),
        held("flx-" + mine + "held", kOldS), other(mine + "other", kOldS);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    ASSERT_EQ(fcntl(held.fd(), F_OFD_SETLK, &lock), 0);
    const std::string link = "/dev/shm/flx-" + mine + "link";
    ASSERT_EQ(symlink("/dev/null", link.c_str()), 0);
    run_group(2, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, 4096, segment).ok());
    });
    EXPECT_FALSE(left.exists());
    EXPECT_TRUE(fresh.exists()) << "may be about to be locked";
    EXPECT_TRUE(held.exists()) << "its process lives";
    EXPECT_TRUE(other.exists());
    EXPECT_EQ(unlink(link.c_str()), 0) << "no segment";
}

/// Whether `tries`, as a user without rights, succeeds; nothing: this user cannot become one.
std::optional<bool> as_nobody(const std::function<bool()> &tries) {
    constexpr uid_t kNobody = 65534;
    constexpr int kCannot = 100;
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() != 0 || setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0)
            _exit(kCannot);
        _exit(tries() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == kCannot)
        return std::nullopt;
    return WEXITSTATUS(status) != 0;
}

/// While a segment has a name, nobody but its user can open it, and afterwards nobody finds it.
TEST(Segment, IsItsUsersAlone) {
    std::set<std::string> seen;
    std::optional<bool> opened;
    const pid_t owner = getpid();
    const auto opens = [](const std::string &path, int flags) { return open(path.c_str(), flags | O_CLOEXEC) >= 0; };
    mode_t modes = 0;
    // Looks between making and opening: rank 1 comes to the exchange of names after it has looked.
    class Looking final : public Bootstrap {
      public:
        Looking(Bootstrap &below, std::function<void()> look) : below_(below), look_(std::move(look)) {}
        [[nodiscard]] int rank() const override { return below_.rank(); }
        [[nodiscard]] int size() const override { return below_.size(); }
        Status allgather(const void *mine, size_t bytes, void *all) override {
            FLX_TRY(below_.allgather(mine, bytes, all));
            look_();
            return {};
        }
        Status barrier() override { return below_.barrier(); }
        void progress() override { below_.progress(); }
        Status split(int color, int key, std::unique_ptr<Bootstrap> &result) override {
            return below_.split(color, key, result);
        }
        Status dup(std::unique_ptr<Bootstrap> &result) override { return below_.dup(result); }

      private:
        Bootstrap &below_;
        std::function<void()> look_;
    };
    const std::set<std::string> before = entries();
    run_group(2, [&](Bootstrap &bootstrap) {
        Looking looking(bootstrap, [&] {
            if (bootstrap.rank() != 1)
                return;
            for (const std::string &name : entries()) {
                struct stat found {};
                if (before.count(name) == 0 && name.find("test") == std::string::npos &&
                    stat(name.c_str(), &found) == 0) {
                    if (seen.insert(name).second && seen.size() == 1)
                        opened = as_nobody([&] {
                            return opens(name, O_RDWR) || opens(name, O_RDONLY) || unlink(name.c_str()) == 0 ||
                                   opens(fmt::format("/proc/{}/mem", owner), O_RDONLY) ||
                                   opens(fmt::format("/proc/{}/maps", owner), O_RDONLY) ||
                                   opens(fmt::format("/proc/{}/fd", owner), O_RDONLY | O_DIRECTORY);
                        });
                    modes |= found.st_mode & 0777;
                }
            }
        });
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(looking, 4096, segment).ok());
    });
    EXPECT_FALSE(seen.empty());
    EXPECT_EQ(modes, mode_t{0600});
    EXPECT_NE(opened, true) << "by another user";
    if (!opened)
        std::cout << "only root can try as somebody else\n";
    for (const std::string &name : seen)
        EXPECT_EQ(std::filesystem::path(name).filename().string().size(), std::string("flx-").size() + 32)
            << "128 bits";
}

TEST(Segment, SaysWhyItCannotBeMade) {
    const std::set<std::string> before = entries();
    run_group(2, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Segment> segment;
        const Status status = Segment::make(bootstrap, size_t{1} << 60, segment);
        EXPECT_EQ(status.code(), FLX_ERR_SYSTEM);
        EXPECT_EQ(status.fault(), Fault::shm_too_small) << "on each rank";
        EXPECT_FALSE(segment);
        const std::string &sentence = status.sentence();
        EXPECT_NE(sentence.find("no room for a shared-memory segment of 1152921504606846976 bytes"), std::string::npos)
            << sentence;
        EXPECT_NE(sentence.find("--shm-size"), std::string::npos) << sentence;
        if (bootstrap.rank() == 1) {
            EXPECT_EQ(sentence.rfind("rank 0 of this host: ", 0), 0U) << sentence;
        }
    });
    EXPECT_TRUE(new_entries_go(before));
}

/// Two processes.
class SocketBootstrap final : public Bootstrap {
  public:
    SocketBootstrap(int fd, int rank) : fd_(fd), rank_(rank) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return 2; }
    Status allgather(const void *mine, size_t bytes, void *all) override {
        auto *to = static_cast<std::byte *>(all);
        std::memcpy(to + rank_ * bytes, mine, bytes);
        const bool sent = send(fd_, mine, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
        if (!sent ||
            (bytes != 0 && recv(fd_, to + (1 - rank_) * bytes, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)))
            return fail(Fault::peer_died, "the other process ended");
        return {};
    }
    Status barrier() override {
        char both[2];
        return allgather("b", 1, both);
    }
    void progress() override {}
    Status split(int, int, std::unique_ptr<Bootstrap> &) override { return fail(Fault::no_gpu, "no split"); }
    Status dup(std::unique_ptr<Bootstrap> &) override { return fail(Fault::no_gpu, "no dup"); }

  private:
    const int fd_;
    const int rank_;
};

/// No other thread runs here, so that the process may fork.
TEST(Segment, TellsThatAProcessWasKilled) {
    const std::set<std::string> before = entries();
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        SocketBootstrap bootstrap(fds[1], 1);
        std::unique_ptr<Segment> segment;
        if (!Segment::make(bootstrap, 4096, segment).ok())
            _exit(1);
        segment->base()[100] = std::byte{42};
        if (!bootstrap.barrier().ok())
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    SocketBootstrap bootstrap(fds[0], 0);
    std::unique_ptr<Segment> segment;
    const Status status = Segment::make(bootstrap, 4096, segment);
    EXPECT_TRUE(status.ok() && bootstrap.barrier().ok()) << status.sentence();
    if (segment) {
        EXPECT_EQ(segment->base()[100], std::byte{42}) << "the same memory";
        EXPECT_TRUE(segment->alive(1));
        kill(child, SIGSTOP);
        EXPECT_TRUE(segment->alive(1)) << "a process that was stopped is alive";
    }
    kill(child, SIGKILL);
    int ended = 0;
    EXPECT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_TRUE(WIFSIGNALED(ended));
    if (segment) {
        EXPECT_FALSE(segment->alive(1));
    }
    close(fds[0]);
    EXPECT_TRUE(new_entries_go(before));
}

}  // namespace
}  // namespace flx::shm
