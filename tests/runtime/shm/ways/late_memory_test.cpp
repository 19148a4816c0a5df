/// Memory that is reserved when it is first needed: nobody touches it before, rings become shorter where there is
/// little room, and where there is none all ranks say so.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "runtime/shm/ways/channel.h"
#include "runtime/shm/ways/fused.h"
#include "runtime/shm/ways/stream.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/plan/calls.h"
#include "tests/runtime/shm/ways/shm_calls.h"

namespace flx::shm {
namespace {

using testing::kYield;
using testing::random_call;
using testing::run_ranks;
using testing::TestBuffers;
using testing::TestCall;
using testing::TestWatch;

/// Memory in which touching a page that was not reserved ends the test.
class Guarded final : public LateMemory {
  public:
    /// Areas that are late are closed at first.
    Guarded(size_t bytes, int ranks, const std::vector<Area> &areas) : bytes_(to_page(bytes + kPage)) {
        base_ = static_cast<std::byte *>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        EXPECT_NE(base_, MAP_FAILED);
        for (const Area &area : areas) {
            const size_t begin = to_page(to_pair(base_) - base_ + area.offset);
            const size_t end = (area.offset + static_cast<size_t>(ranks) * area.stride) / kPage * kPage;
            if (area.late && begin < end) {
                EXPECT_EQ(mprotect(base_ + begin, end - begin, PROT_NONE), 0);
            }
        }
    }
    ~Guarded() override { munmap(base_, bytes_); }

    [[nodiscard]] std::byte *base() const { return base_; }
    /// Larger parts do not fit, for all ranks or for one.
    void limit(size_t most) { most_ = most; }
    void limit_this_thread(size_t most) { own_most_ = most; }
    [[nodiscard]] size_t reserved() const { return reserved_; }

    Status reserve(std::byte *memory, size_t bytes) override {
        const std::lock_guard guard(mutex_);
        if (bytes > std::min(most_, own_most_))
            return fail(Fault::shm_too_small, "no room for {} bytes in this test", bytes);
        const size_t begin = (memory - base_) / kPage * kPage;
        const size_t end = to_page(memory - base_ + bytes);
        if (mprotect(base_ + begin, end - begin, PROT_READ | PROT_WRITE) != 0)
            return fail(Fault::shm_refused, "mprotect failed");
        reserved_ += bytes;
        return {};
    }
    /// Closes it again. Later than others come to do theirs, which must not matter.
    void give_back(std::byte *memory, size_t bytes) override {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const std::lock_guard guard(mutex_);
        const size_t begin = to_page(memory - base_);
        const size_t end = (memory - base_ + bytes) / kPage * kPage;
        if (begin < end) {
            EXPECT_EQ(mprotect(base_ + begin, end - begin, PROT_NONE), 0);
        }
        reserved_ -= bytes;
    }
    void map_pages(std::byte *, size_t) override {}

  private:
    static constexpr size_t kPage = 4096;
    static size_t to_page(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
    size_t bytes_;
    std::byte *base_;
    std::mutex mutex_;
    size_t most_ = SIZE_MAX;
    static thread_local size_t own_most_;
    size_t reserved_ = 0;
};

thread_local size_t Guarded::own_most_ = SIZE_MAX;

class Late : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Late, ::testing::Range(1, 6));

constexpr size_t kPayload = 40'000;
constexpr size_t kBudget = size_t{1} << 20;
constexpr size_t kInline = Fused::kInlineBytes;

/// Runs random calls; each is to be right, or of more than `most` bytes and refused on all ranks, as the last. `poor`:
/// what fits for rank 0.
void run_calls(Guarded &memory, int ranks, uint32_t seed, size_t most, size_t most_bytes, size_t poor = SIZE_MAX) {
    std::atomic<int> failed{0};
    std::atomic<int> refused{0};
    run_ranks(ranks, [&](int rank) {
        memory.limit_this_thread(rank == 0 ? poor : SIZE_MAX);
        Fused fused(memory.base(), rank, ranks, kPayload, nullptr, kBudget);
        fused.reserve_late(&memory);
        std::mt19937 random(seed);
        TestWatch watch(failed);
        for (int number = 0; number < 300 && failed == 0; ++number) {
            const TestCall call = random_call(random, ranks, most_bytes, true);
            if (random() % (4 * ranks) == static_cast<uint32_t>(rank))
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            const TestBuffers buffers(call, rank);
            Call made = call_of(call, buffers.in(), buffers.out());
            made.operation.signature = call.seed;
            Waiter waiter(kYield, watch);
            const Status status = fused.run(made, waiter);
            if (call.count * call.element() > most && status.code() == FLX_ERR_SYSTEM) {
                ++refused;
                return;
            }
            const bool right = status.ok() && buffers.result() == result_of(call, rank) && buffers.intact();
            failed += right ? 0 : 1;
            ASSERT_TRUE(right) << call.text() << ", rank " << rank << ", seed " << seed << ": " << status.sentence();
        }
    });
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(refused == 0 || refused == ranks) << refused << " of " << ranks;
    EXPECT_EQ(refused != 0, most < most_bytes && ranks > 1);
}

TEST_P(Late, FusedCallsTouchWhatIsReserved) {
    const int ranks = GetParam();
    for (uint32_t seed = 1; seed <= 3; ++seed) {
        Guarded memory(Fused::bytes(ranks, kPayload, kBudget), ranks, Fused::areas(ranks, kPayload, kBudget, true));
        run_calls(memory, ranks, seed, kInline, kInline);
        EXPECT_EQ(memory.reserved(), 0U) << "short calls need no more than is there";
        Guarded other(Fused::bytes(ranks, kPayload, kBudget), ranks, Fused::areas(ranks, kPayload, kBudget, true));
        run_calls(other, ranks, seed, kPayload, kPayload);
        EXPECT_GT(other.reserved(), ranks * kBudget / 2);
    }
}

/// Rings become shorter, on all ranks alike, down to two places.
TEST_P(Late, FusedRingsFitIntoLittleRoom) {
    const int ranks = GetParam();
    Guarded memory(Fused::bytes(ranks, kPayload, kBudget), ranks, Fused::areas(ranks, kPayload, kBudget, true));
    run_calls(memory, ranks, 5, kPayload, kPayload, size_t{2} * 65'536);
    EXPECT_LE(memory.reserved(), ranks * size_t{200'000});
    Guarded other(Fused::bytes(ranks, kPayload, kBudget), ranks, Fused::areas(ranks, kPayload, kBudget, true));
    other.limit(size_t{2} * 65'536);
    run_calls(other, ranks, 6, kPayload, kPayload);
    EXPECT_EQ(other.reserved(), memory.reserved());
}

/// No rank waits for one that has no room.
TEST_P(Late, WhereThereIsNoRoomAllRanksSaySo) {
    const int ranks = GetParam();
    for (const auto &[limit, works] : {std::pair<size_t, size_t>{20'000, 4096}, {1000, kInline}}) {
        Guarded memory(Fused::bytes(ranks, kPayload, kBudget), ranks, Fused::areas(ranks, kPayload, kBudget, true));
        run_calls(memory, ranks, 3, works, works, limit);
        if (ranks > 1)
            run_calls(memory, ranks, 3, works, kPayload, limit);
    }
}

/// What ranks tell each other when they reserve memory needs none, however many they are and however they gather.
TEST(LateFused, ManyRanksInTwoSteps) {
    constexpr int kRanks = 120;
    Guarded memory(Fused::bytes(kRanks, 1000), kRanks, Fused::areas(kRanks, 1000, 0, true));
    std::atomic<int> failed{0};
    run_ranks(kRanks, [&](int rank) {
        Fused fused(memory.base(), rank, kRanks, 1000);
        fused.reserve_late(&memory);
        fused.set_two_steps({0, 0, true, 0});
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        std::vector<std::byte> all(kRanks);
        const auto mine = static_cast<std::byte>(rank);
        const Status status = fused.allgather(&mine, all.data(), 1, 7, waiter);
        failed += status.ok() ? 0 : 1;
        ASSERT_TRUE(status.ok()) << status.sentence();
        for (int other = 0; other < kRanks; ++other)
            ASSERT_EQ(all[other], static_cast<std::byte>(other));
    });
}

/// As where there was room for a part of the ring alone: the rest of each rank's place is not touched.
TEST_P(Late, ShortenedStreamsStayInTheirPart) {
    const int ranks = GetParam();
    constexpr size_t kLess = kBudget / 8;
    const Area whole = Stream::area(ranks, kBudget, true);
    Guarded memory(Stream::bytes(ranks, kBudget), ranks, {whole});
    std::atomic<int> failed{0};
    run_ranks(ranks, [&](int rank) {
        failed +=
            memory.reserve(memory.base() + whole.offset + rank * whole.stride, Stream::area(ranks, kLess).stride).ok()
                ? 0
                : 1;
    });
    run_ranks(ranks, [&](int rank) {
        Stream stream(memory.base(), rank, ranks, kBudget);
        stream.shorten(kLess);
        std::mt19937 random(11);
        TestWatch watch(failed);
        for (int number = 0; number < 60 && failed == 0; ++number) {
            const TestCall call = random_call(random, ranks, 300'000, false);
            const TestBuffers buffers(call, rank);
            Call made = call_of(call, buffers.in(), buffers.out());
            made.operation.signature = call.seed;
            Waiter waiter(kYield, watch);
            const Status status = stream.run(made, waiter);
            const bool right = status.ok() && buffers.result() == result_of(call, rank) && buffers.intact();
            failed += right ? 0 : 1;
            ASSERT_TRUE(right) << call.text() << ", rank " << rank << ": " << status.sentence();
        }
    });
    EXPECT_EQ(failed, 0);
}

TEST(LateChannel, RingsAreThereWhenTheyAreUsed) {
    constexpr int kRanks = 3;
    const ChannelShape shape{kRanks, 2, kMaxCellBytes};
    Guarded memory(shape.bytes(), kRanks, {shape.area(true)});
    std::vector<std::unique_ptr<Channel>> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
        ranks.push_back(std::make_unique<Channel>(memory.base(), shape, rank, std::vector<int>{0, 1, 2}, &memory));
    const auto polls = [&] {
        int arrived = 0;
        Arrival arrival;
        for (int to = 0; to < kRanks; ++to)
            for (int from = 0; from < kRanks; ++from)
                arrived += from != to && ranks[to]->receive(from, arrival) ? 1 : 0;
        return arrived;
    };
    EXPECT_EQ(polls(), 0);
    EXPECT_EQ(memory.reserved(), 0U);
    const std::vector<std::byte> data(kMaxCellBytes, std::byte{5});
    const auto send = [&](int from, int to, uint32_t bytes) {
        return ranks[from]->send(to, {1, 7, 0, 0, 0, 0, 1, bytes, 0}, data.data());
    };
    EXPECT_EQ(send(0, 2, 8), SendResult::copied);
    EXPECT_EQ(memory.reserved(), shape.shorts_bytes());
    EXPECT_EQ(polls(), 1);
    EXPECT_EQ(send(0, 2, 5000), SendResult::copied);
    EXPECT_EQ(send(2, 1, 5000), SendResult::copied) << "the first of this pair is a long one";
    EXPECT_EQ(memory.reserved(), shape.ring_bytes() + shape.ring_bytes() - shape.shorts_bytes());
    EXPECT_EQ(polls(), 2);
    EXPECT_EQ(send(0, 2, 8), SendResult::copied);
    EXPECT_EQ(polls(), 1);
    EXPECT_TRUE(ranks[0]->error(2).ok());

    memory.limit(shape.shorts_bytes());
    EXPECT_EQ(send(1, 0, 8), SendResult::copied);
    EXPECT_EQ(send(1, 0, 5000), SendResult::failed);
    EXPECT_EQ(ranks[1]->error(0).number(), 802);
    EXPECT_TRUE(ranks[0]->error(1).ok());
    EXPECT_EQ(polls(), 1);
}

}  // namespace
}  // namespace flx::shm
