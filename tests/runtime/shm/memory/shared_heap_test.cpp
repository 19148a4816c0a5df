/// Memory of flx_malloc, peers' windows on it, and collectives of ranks that have mapped it, with ranks as threads.
#include "runtime/shm/memory/shared_heap.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory_resource>
#include <optional>

#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/peer_memory.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/shm/copies/late_engine.h"
#include "tests/runtime/shm/ways/shm_calls.h"

namespace flx::shm {
namespace {

using algorithms::Collective;
using testing::call_of;
using testing::kYield;
using testing::random_call;
using testing::result_of;
using testing::run_group;
using testing::TestBuffers;
using testing::TestCall;
using testing::TestWatch;

constexpr size_t kPage = 4096;
constexpr size_t kHuge = size_t{2} << 20;

SharedHeap &heap() {
    return SharedHeap::of_process();
}

std::byte *allocate(size_t bytes) {
    void *memory = nullptr;
    const Status status = heap().allocate(bytes, memory);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return static_cast<std::byte *>(memory);
}

class HeapResource final : public std::pmr::memory_resource {
    void *do_allocate(size_t bytes, size_t) override { return shm::allocate(bytes); }
    void do_deallocate(void *memory, size_t, size_t) override { EXPECT_TRUE(heap().free(memory).ok()); }
    [[nodiscard]] bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }
};

/// What `body` returns in a process of its own; 77: it could not be tried.
int in_child(const std::function<int()> &body) {
    const pid_t child = fork();
    if (child == 0)
        _exit(body());
    int ended = 0;
    if (child < 0 || waitpid(child, &ended, 0) != child || !WIFEXITED(ended))
        return -1;
    return WEXITSTATUS(ended);
}

/// From now on the kernel refuses that call.
bool refuse(int call) {
    sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{std::size(filter), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SharedHeapTest, GivesZeroedPagesAndTakesThemBack) {
    std::byte *small = allocate(1);
    std::byte *large = allocate(kHuge + 1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % kPage, 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % kHuge, 0U);
    EXPECT_EQ(heap().offset_of(large, 1) % kHuge, 0U);
    EXPECT_EQ(heap().offset_of(large + 5, kHuge), heap().offset_of(large, 1) + 5);
    EXPECT_EQ(heap().offset_of(large + 5, kHuge + kPage), SharedHeap::kNowhere) << "beyond its end";
    EXPECT_EQ(heap().offset_of(&heap(), 1), SharedHeap::kNowhere);
    const uint64_t offset = heap().offset_of(large, 1);
    std::memset(large, 7, kHuge + 1);
    const uint64_t version = heap().version();
    EXPECT_TRUE(heap().free(large).ok());
    EXPECT_NE(heap().version(), version);
    std::byte *again = allocate(kHuge);
    EXPECT_EQ(heap().offset_of(again, kHuge), offset) << "first fit";
    EXPECT_EQ(std::count(again, again + kHuge, std::byte{0}), static_cast<ptrdiff_t>(kHuge));
    EXPECT_TRUE(heap().free(again).ok());
    EXPECT_TRUE(heap().free(small).ok());
}

TEST(SharedHeapTest, SaysWhatCannotBeFreedOrGiven) {
    void *memory = &memory;
    EXPECT_TRUE(heap().allocate(0, memory).ok());
    EXPECT_EQ(memory, nullptr);
    EXPECT_TRUE(heap().free(nullptr).ok());
    std::byte *piece = allocate(3 * kPage);
    Status status = heap().free(piece + kPage);
    EXPECT_EQ(status.code(), FLX_ERR_ARGUMENT);
    EXPECT_NE(status.sentence().find("4096 bytes into memory of flx_malloc"), std::string::npos) << status.sentence();
    EXPECT_TRUE(heap().free(piece).ok());
    status = heap().free(piece);
    EXPECT_EQ(status.code(), FLX_ERR_ARGUMENT);
    EXPECT_NE(status.sentence().find("was freed before"), std::string::npos) << status.sentence();
    EXPECT_EQ(heap().free(&memory).code(), FLX_ERR_ARGUMENT);
    for (const size_t bytes : {SIZE_MAX, size_t{1} << 50}) {
        status = heap().allocate(bytes, memory);
        EXPECT_EQ(status.code(), FLX_ERR_SYSTEM);
        EXPECT_NE(status.sentence().find("this machine has"), std::string::npos) << status.sentence();
        EXPECT_EQ(memory, nullptr);
    }
}

/// Pieces that are live do not overlap in the file, whatever came and went before.
TEST(SharedHeapTest, PiecesKeepWhatIsWrittenWhileOthersComeAndGo) {
    struct Piece {
        std::byte *at;
        size_t bytes;
        std::byte mark;
    };
    std::vector<Piece> pieces;
    std::mt19937 random(3);
    for (int turn = 0; turn < 400; ++turn) {
        if (pieces.size() < 8 || random() % 2 == 0) {
            const size_t bytes = random() % 8 == 0 ? kHuge + random() % kHuge : 1 + random() % (9 * kPage);
            const auto mark = static_cast<std::byte>(turn);
            pieces.push_back({allocate(bytes), bytes, mark});
            std::memset(pieces.back().at, turn, bytes);
            continue;
        }
        const size_t which = random() % pieces.size();
        const Piece piece = pieces[which];
        ASSERT_EQ(std::count(piece.at, piece.at + piece.bytes, piece.mark), static_cast<ptrdiff_t>(piece.bytes));
        ASSERT_TRUE(heap().free(piece.at).ok());
        pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(which));
    }
    const uint64_t end = heap().end();
    for (const Piece &piece : pieces)
        ASSERT_TRUE(heap().free(piece.at).ok());
    std::byte *whole = allocate(kHuge);
    EXPECT_LE(heap().end(), std::max<uint64_t>(end, 2 * kHuge)) << "what was freed is joined and used again";
    EXPECT_TRUE(heap().free(whole).ok());
}

/// A child gives out nothing that its parent has, and frees what it inherited without taking it from its parent.
TEST(SharedHeapTest, ChildOfForkHasAHeapOfItsOwn) {
    std::byte *piece = allocate(kPage);
    std::memset(piece, 5, kPage);
    const int ended = in_child([&] {
        std::byte *own = allocate(kPage);
        std::memset(own, 6, kPage);
        if (heap().offset_of(piece, 1) != SharedHeap::kNowhere || heap().offset_of(own, 1) == SharedHeap::kNowhere)
            return 1;
        return heap().free(piece).ok() && heap().free(own).ok() ? 0 : 2;
    });
    EXPECT_EQ(ended, 0);
    EXPECT_EQ(std::count(piece, piece + kPage, std::byte{5}), static_cast<ptrdiff_t>(kPage));
    EXPECT_TRUE(heap().free(piece).ok());
}

/// No file in memory: it is memory all the same, ranks say why it is not mapped, and reach it by the kernel.
TEST(SharedHeapTest, WithoutAFileItIsMemoryLikeAnyOther) {
    const int ended = in_child([] {
        if (!refuse(SYS_memfd_create))
            return 77;
        std::byte *piece = allocate(kPage);
        std::memset(piece, 5, kPage);
        std::atomic<int> told{0};
        run_group(3, [&](Bootstrap &bootstrap) {
            std::unique_ptr<PeerMemory> peers;
            PeerMemory::Why why;
            const Status status = PeerMemory::make(bootstrap, std::vector<int>(3, getpid()), peers, why);
            if (status.ok() && peers != nullptr && peers->by_kernel() && !peers->maps() &&
                why.not_mapped.find("memfd_create failed: Operation not permitted") != std::string::npos)
                ++told;
        });
        return told == 3 && heap().offset_of(piece, 1) == SharedHeap::kNowhere && heap().free(piece).ok() ? 0 : 1;
    });
    if (ended == 77)
        GTEST_SKIP() << "skipped: no seccomp filters here";
    EXPECT_EQ(ended, 0);
}

/// Segment, fused collectives and peer memory of one rank.
struct Rank {
    Rank(Bootstrap &bootstrap, const std::atomic<int> &failed)
        : rank(bootstrap.rank()), ranks(bootstrap.size()), watch(failed) {
        EXPECT_TRUE(Segment::make(bootstrap, Fused::bytes(ranks, 64), segment).ok());
        fused.emplace(segment->base(), rank, ranks, 64);
        PeerMemory::Why why;
        EXPECT_TRUE(PeerMemory::make(bootstrap, std::vector<int>(ranks, getpid()), peers, why).ok());
        EXPECT_EQ(why.not_mapped, "");
    }
    Status allreduce(const std::byte *in, std::byte *out, size_t bytes, bool &served) {
        Waiter waiter(kYield, watch);
        return peers->run(call_of(Collective::allreduce, in, out, bytes, FLX_UINT8), *fused, waiter, served, false);
    }

    int rank;
    int ranks;
    TestWatch watch;
    std::unique_ptr<Segment> segment;
    std::optional<Fused> fused;
    std::unique_ptr<PeerMemory> peers;
};

class MappedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MappedRanks, ::testing::Range(1, 5));

/// Every collective with all buffers in the heap, which are freed and given out again from call to call; then with
/// some of them. Results do not depend on it, and neither does whether it is served, where the kernel may help.
TEST_P(MappedRanks, CallsInRandomOrder) {
    const int ranks = GetParam();
    constexpr size_t kMostBytes = 3'000'000;  // beyond which stores go past the cache
    constexpr size_t kCalls = 36;
    std::atomic<int> failed{0};
    HeapResource in_heap;
    run_group(ranks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        Rank mine(bootstrap, failed);
        ASSERT_NE(mine.peers, nullptr);
        std::mt19937 random(11);
        uint64_t mapped = 0;
        for (size_t number = 0; number < kCalls && failed == 0; ++number) {
            TestCall call = random_call(random, ranks, kMostBytes, false);
            if (number % 4 == 3) {
                call.collective = std::array{Collective::alltoall, Collective::gather, Collective::scatter}[number % 3];
                call.count = (call.count / ranks + 1) * ranks;
                call.in_place = call.in_place && call.collective != Collective::alltoall;
            }
            const bool all_in_heap = number % 3 != 2;
            const bool mine_in_heap = all_in_heap || (number + rank) % 2 == 0;
            const TestBuffers buffers(call, rank, mine_in_heap ? &in_heap : std::pmr::get_default_resource());
            Waiter waiter(kYield, mine.watch);
            bool served = false;
            const uint64_t mapped_before = mine.peers->mapped_calls();
            const Status status =
                mine.peers->run(call_of(call, buffers.in(), call.has_result(rank) ? buffers.out() : nullptr),
                                *mine.fused, waiter, served);
            const bool safe = call.collective != Collective::reduce_scatter_block || !call.in_place;
            const bool was_mapped = mine.peers->mapped_calls() != mapped_before;
            const bool right = status.ok() && served == safe && buffers.intact() &&
                               (!all_in_heap || was_mapped == safe) &&
                               (!served || buffers.result() == result_of(call, rank));
            mapped += was_mapped ? 1 : 0;
            if (!right)
                ++failed;
            ASSERT_TRUE(status.ok()) << call.text() << ": " << status.sentence();
            ASSERT_TRUE(right) << call.text() << ", call " << number << ", rank " << rank << ", mapped " << was_mapped;
        }
        EXPECT_GT(mapped, kCalls / 2);
    });
    EXPECT_EQ(failed, 0);
}

/// The heap grows beyond the first window while another communicator keeps that; both go on.
TEST_P(MappedRanks, WindowsGrowWithTheHeap) {
    const int ranks = GetParam();
    constexpr size_t kBeyond = size_t{1} << 30;
    constexpr size_t kBytes = 100'000;
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        Rank first(bootstrap, failed), second(bootstrap, failed);
        std::byte *in = allocate(kBytes), *out = allocate(kBytes);
        std::memset(in, 1, kBytes);
        const auto runs = [&](Rank &on, std::byte *to) {
            bool served = false;
            const Status status = on.allreduce(in, to, kBytes, served);
            const bool right = status.ok() && served &&
                               std::count(to, to + kBytes, static_cast<std::byte>(ranks)) == ptrdiff_t{kBytes};
            failed += right ? 0 : 1;
            return right;
        };
        EXPECT_TRUE(runs(first, out));
        void *far = nullptr;
        ASSERT_TRUE(heap().allocate(kBeyond, far).ok());  // not touched but for its end
        auto *end = static_cast<std::byte *>(far) + kBeyond - kBytes;
        EXPECT_TRUE(runs(second, end));
        EXPECT_TRUE(runs(first, end));
        std::memset(out, 0, kBytes);
        EXPECT_TRUE(runs(first, out));
        ASSERT_TRUE(bootstrap.barrier().ok());
        EXPECT_TRUE(heap().free(far).ok() && heap().free(in).ok() && heap().free(out).ok());
    });
    EXPECT_EQ(failed, 0);
}

/// Memory that a rank has freed while a peer still shows it holds nothing, and nobody is the worse for it.
TEST_P(MappedRanks, PeersSeeWhatWasGivenOutLast) {
    const int ranks = GetParam();
    constexpr size_t kBytes = 300'000;
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        Rank mine(bootstrap, failed);
        for (int turn = 1; turn <= 6 && failed == 0; ++turn) {
            std::byte *memory = allocate(kBytes);
            std::memset(memory, turn, kBytes);
            bool served = false;
            const Status status = mine.allreduce(memory, memory, kBytes, served);
            const auto sum = static_cast<std::byte>(turn * ranks);
            const bool right = status.ok() && served && std::count(memory, memory + kBytes, sum) == ptrdiff_t{kBytes};
            failed += right ? 0 : 1;
            EXPECT_TRUE(right) << status.sentence();
            EXPECT_TRUE(heap().free(memory).ok());
        }
    });
    EXPECT_EQ(failed, 0);
}

/// Collectives that only copy, again and again on the same memory, which between them goes back and comes again.
TEST_P(MappedRanks, ACopyEngineTakesItsPart) {
    const int ranks = GetParam();
    constexpr size_t kCalls = 14;
    const size_t words = EngineUse::kLeast / sizeof(uint32_t) / ranks * ranks + 64 * ranks;
    const size_t block = words / ranks;
    const int unpinned_before = testing::TestPins::all_unpinned;
    std::atomic<int> failed{0};
    std::map<Collective, std::atomic<uint64_t>> by_engines;
    for (const Collective collective :
         {Collective::allgather, Collective::alltoall, Collective::bcast, Collective::gather, Collective::scatter})
        by_engines[collective] = 0;
    run_group(ranks, [&](Bootstrap &bootstrap) {
        Rank mine(bootstrap, failed);
        const auto rank = static_cast<size_t>(bootstrap.rank());
        uint64_t engine_bytes = 0;
        mine.peers->use_engine([&](std::string &) { return std::make_unique<testing::LateEngine>(rank, 60, 0); });
        for (const Collective collective : {Collective::allgather, Collective::alltoall, Collective::bcast,
                                            Collective::gather, Collective::scatter}) {
            auto *in = reinterpret_cast<uint32_t *>(allocate(words * sizeof(uint32_t)));
            auto *out = reinterpret_cast<uint32_t *>(allocate(words * sizeof(uint32_t)));
            for (size_t call = 0; call < kCalls && failed == 0; ++call) {
                const auto value = [&](size_t of_rank, size_t at) {
                    return static_cast<uint32_t>((call * ranks + of_rank) * words + at);
                };
                const bool copies_in = collective == Collective::bcast && rank == 0;
                for (size_t i = 0; i < words; ++i) {
                    in[i] = value(rank, i);
                    out[i] = copies_in ? value(0, i) : 0;
                }
                Waiter waiter(kYield, mine.watch);
                bool served = false;
                const Status status =
                    mine.peers->run(call_of(collective, in, out, words, FLX_UINT32), *mine.fused, waiter, served);
                bool right = status.ok() && served;
                const auto expected = [&](size_t i) {
                    switch (collective) {
                        case Collective::alltoall:
                            return value(i / block, rank * block + i % block);
                        case Collective::bcast:
                            return value(0, i);
                        case Collective::scatter:
                            return i < block ? value(0, rank * block + i) : 0;
                        case Collective::gather:
                            return rank == 0 ? value(i / block, i % block) : 0;
                        default:
                            return value(i / block, i % block);
                    }
                };
                for (size_t i = 0; i < words && right; ++i)
                    right = out[i] == expected(i);
                failed += right ? 0 : 1;
                EXPECT_TRUE(right) << algorithms::name_of(collective) << ", call " << call << ", rank " << rank << ": "
                                   << status.sentence();
            }
            ASSERT_TRUE(bootstrap.barrier().ok());
            by_engines[collective] += mine.peers->copies().engine_bytes() - engine_bytes;
            engine_bytes = mine.peers->copies().engine_bytes();
            EXPECT_TRUE(heap().free(in).ok() && heap().free(out).ok());
        }
        ASSERT_TRUE(bootstrap.barrier().ok());
        // All are pinned once for each collective, and gone but for the last ones.
        EXPECT_GE(testing::TestPins::all_unpinned - unpinned_before, 4) << "what was given back stayed pinned";
        ASSERT_TRUE(bootstrap.barrier().ok());
    });
    EXPECT_EQ(failed, 0);
    for (const auto &[collective, bytes] : by_engines)
        EXPECT_TRUE(bytes > 0 || ranks == 1) << algorithms::name_of(collective);
}

/// One rank's buffer is not in the heap and the kernel is not asked: all ranks leave it to other ways.
TEST_P(MappedRanks, OneBufferElsewhereAndNoneIsServed) {
    const int ranks = GetParam();
    constexpr size_t kBytes = 70'000;
    std::atomic<int> failed{0};
    run_group(ranks, [&](Bootstrap &bootstrap) {
        Rank mine(bootstrap, failed);
        std::byte *in = allocate(kBytes), *out = allocate(kBytes);
        std::vector<std::byte> elsewhere(kBytes);
        const bool last = bootstrap.rank() == ranks - 1;
        bool served = true;
        EXPECT_TRUE(mine.allreduce(in, last ? elsewhere.data() : out, kBytes, served).ok());
        EXPECT_FALSE(served);
        EXPECT_TRUE(mine.allreduce(last ? elsewhere.data() : in, out, kBytes, served).ok());
        EXPECT_FALSE(served);
        EXPECT_TRUE(mine.allreduce(in, out, kBytes, served).ok());
        EXPECT_TRUE(served);
        ASSERT_TRUE(bootstrap.barrier().ok());
        EXPECT_TRUE(heap().free(in).ok() && heap().free(out).ok());
    });
    EXPECT_EQ(failed, 0);
}

/// A rank that was stopped for long goes on after the others gave up and took their buffers back.
TEST(MappedTest, WritesNothingToRanksThatGaveUp) {
    constexpr int kRanks = 2;
    constexpr size_t kCount = 300'000;
    Board board;
    board.write(fail(Fault::peer_died, "rank 1 has not answered"));
    for (const Collective collective :
         {Collective::allreduce, Collective::reduce, Collective::gather, Collective::bcast}) {
        std::atomic<int> failed{0};
        run_group(kRanks, [&](Bootstrap &bootstrap) {
            Rank mine(bootstrap, failed);
            mine.peers->obey(&board);
            Waiter waiter(kYield, mine.watch);
            std::byte *in = allocate(kCount), *out = allocate(kCount);
            std::memset(in, 1, kCount);
            std::memset(out, 77, kCount);
            bool served = false;
            const Status status =
                mine.peers->run(call_of(collective, in, out, kCount, FLX_UINT8), *mine.fused, waiter, served, false);
            failed += status.ok() ? 0 : 1;
            const bool bcast = collective == Collective::bcast;
            const bool writes = bcast ? mine.rank == 0 : collective != Collective::gather || mine.rank != 0;
            if (writes) {
                EXPECT_EQ(status.sentence(), "rank 1 has not answered [FLX-E601]") << name_of(collective);
            }
            ASSERT_TRUE(bootstrap.barrier().ok());
            // What the peer would write: of a reduction its half, of a gather its block, of a bcast the root's share.
            if ((mine.rank == 0) != bcast) {
                EXPECT_EQ(out[kCount - 1], std::byte{77}) << name_of(collective);
            }
            ASSERT_TRUE(bootstrap.barrier().ok());
            EXPECT_TRUE(heap().free(in).ok() && heap().free(out).ok());
        });
    }
}

/// No room for windows: all ranks learn of it in the same call, which is left to other ways, as are those after it.
TEST(MappedTest, WithoutRoomForWindowsAllRanksDoWithout) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "skipped: sanitizers take all addresses there are";
#endif
    const int ended = in_child([] {
        std::atomic<int> failed{0};
        std::atomic<int> told{0};
        run_group(3, [&](Bootstrap &bootstrap) {
            Rank mine(bootstrap, failed);
            std::byte *memory = allocate(kPage);
            if (!bootstrap.barrier().ok())
                return;
            // The whole process's; a window is of 1 GiB at least.
            constexpr size_t kRoom = size_t{700} << 20;
            size_t pages = 0;
            std::ifstream("/proc/self/statm") >> pages;
            const struct rlimit limit { pages *kPage + kRoom, RLIM_INFINITY };
            if (setrlimit(RLIMIT_AS, &limit) != 0 || !bootstrap.barrier().ok())
                return;
            for (int turn = 0; turn < 2; ++turn) {
                bool served = true;
                const Status status = mine.allreduce(memory, memory, kPage, served);
                if (status.ok() && !served && !mine.peers->maps() && !mine.peers->why_not_mapped().empty())
                    ++told;
            }
        });
        return told == 6 ? 0 : 1;
    });
    EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace flx::shm
