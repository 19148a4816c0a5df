/// Allocations that ranks show each other: which are opened, found again, and let go of.
#include "runtime/cuda/memory/shown_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace flx::cuda {
namespace {

/// Allocations of one rank, by address; peers that open one are counted.
class Heap final : public MemoryAccess {
  public:
    explicit Heap(int rank) : next_(reinterpret_cast<char *>((rank + 1) * (uint64_t{1} << 40))) {}
    char *allocate(uint64_t bytes) {
        char *base = next_;
        next_ += (bytes + kPage) / kPage * kPage;
        blocks_[base] = {++names_, base, bytes};
        return base;
    }
    /// The same address again, as another allocation.
    void allocate_again(char *base, uint64_t bytes) { blocks_[base] = {++names_, base, bytes}; }
    void free(char *base) { blocks_.erase(base); }

    unsigned long long name_of(const void *memory) override {
        Allocation found;
        return find(memory, found) ? found.name : 0;
    }
    bool find(const void *memory, Allocation &found) override {
        auto *at = static_cast<char *>(const_cast<void *>(memory));
        const auto after = blocks_.upper_bound(at);
        if (after == blocks_.begin() || at >= std::prev(after)->second.base + std::prev(after)->second.bytes)
            return false;
        found = std::prev(after)->second;
        return true;
    }
    Status offer(const Allocation &allocation, MemoryOffer &offer) override {
        ++offers;
        if (!closed)
            offer.file = ++open_files;
        offer.allocation_bytes = allocation.bytes;
        offer.base = allocation.base;
        return closed ? fail(Fault::no_gpu, "closed") : Status();
    }
    void withdraw(MemoryOffer &offer) override {
        open_files -= offer.file >= 0 ? 1 : 0;
        offer.file = -1;
    }
    Status open(const MemoryOffer & /*offer*/, OpenedMemory & /*opened*/) override {
        ++opens;
        return blind ? fail(Fault::no_memory, "blind") : Status();
    }
    int offers = 0;
    int opens = 0;
    int open_files = 0;
    bool closed = false;
    bool blind = false;

  private:
    std::map<char *, Allocation> blocks_;
    unsigned long long names_ = 0;
    char *next_;
};

/// Two ranks that come to calls together.
struct Pair {
    std::array<Heap, 2> heaps{Heap(0), Heap(1)};
    std::array<ShownMemory, 2> ranks{ShownMemory(heaps[0], 0, 2), ShownMemory(heaps[1], 1, 2)};
    std::array<Showing, 2> shown;

    /// Whether both may write to each other's outputs in the end.
    bool call(char *first, char *second, uint64_t bytes, std::array<bool, 2> frozen = {}) {
        ranks[0].show(first, bytes, frozen[0], shown[0]);
        ranks[1].show(second, bytes, frozen[1], shown[1]);
        if (!ShownMemory::writable(shown))
            return false;
        if (!ShownMemory::must_open(shown))
            return true;
        const bool opened = ranks[0].open(shown).ok() & ranks[1].open(shown).ok();
        ranks[0].settle(shown, opened);
        ranks[1].settle(shown, opened);
        return opened;
    }
    [[nodiscard]] int opens() const { return heaps[0].opens + heaps[1].opens; }
};

TEST(ShownMemory, IsOpenedOnceAndFoundAgain) {
    Pair pair;
    char *a = pair.heaps[0].allocate(1000);
    char *b = pair.heaps[1].allocate(1000);
    EXPECT_TRUE(pair.call(a, b, 100));
    EXPECT_TRUE(pair.call(a + 16, b + 32, 100));
    EXPECT_EQ(pair.shown[1].offset, 32U);
    EXPECT_EQ(pair.opens(), 2);
    // One of them uses other memory now.
    char *c = pair.heaps[1].allocate(1000);
    EXPECT_TRUE(pair.call(a, c, 1000));
    EXPECT_TRUE(pair.call(a, b, 1000));
    EXPECT_EQ(pair.opens(), 3);
}

TEST(ShownMemory, WhatCannotBeWrittenIsNot) {
    Pair pair;
    char *a = pair.heaps[0].allocate(1000);
    char *b = pair.heaps[1].allocate(1000);
    EXPECT_FALSE(pair.call(a, nullptr, 10));           // no GPU's memory
    EXPECT_FALSE(pair.call(a + 8, b, 10));             // stores as wide as possible must fit both
    EXPECT_FALSE(pair.call(a, b + 16, 1000));          // past the end
    EXPECT_FALSE(pair.call(a, b, 10, {true, false}));  // while a graph is captured nothing is opened
    EXPECT_EQ(pair.opens(), 0);
    EXPECT_TRUE(pair.call(a + 8, b + 24, 10));
    EXPECT_TRUE(pair.call(a, b, 10, {true, true}));  // it is open
}

TEST(ShownMemory, WhatPeersCouldNotOpenIsNotTriedAgain) {
    Pair pair;
    char *a = pair.heaps[0].allocate(1000);
    char *b = pair.heaps[1].allocate(1000);
    pair.heaps[1].blind = true;
    EXPECT_FALSE(pair.call(a, b, 10));
    pair.heaps[1].blind = false;
    EXPECT_FALSE(pair.call(a, b, 10));
    EXPECT_EQ(pair.opens(), 2);
    char *c = pair.heaps[0].allocate(1000);
    char *d = pair.heaps[1].allocate(1000);
    EXPECT_TRUE(pair.call(c, d, 10));

    pair.heaps[0].closed = true;
    char *e = pair.heaps[0].allocate(1000);
    EXPECT_FALSE(pair.call(e, d, 10));
    EXPECT_FALSE(pair.call(e, d, 10));
    EXPECT_EQ(pair.heaps[0].offers, 3);
}

TEST(ShownMemory, AnAllocationInTheSamePlaceIsAnother) {
    Pair pair;
    char *a = pair.heaps[0].allocate(1000);
    char *b = pair.heaps[1].allocate(1000);
    EXPECT_TRUE(pair.call(a, b, 10));
    const uint32_t before = pair.shown[0].number;
    pair.heaps[0].free(a);
    pair.heaps[0].allocate_again(a, 500);
    EXPECT_TRUE(pair.call(a, b, 10));
    EXPECT_TRUE(pair.shown[0].fresh);
    EXPECT_EQ(pair.shown[0].gone, uint64_t{1} << before);
    EXPECT_EQ(pair.opens(), 3);
    EXPECT_FALSE(pair.call(a, b, 600));
}

/// Many allocations come and go: every answer is the same for both, numbers never run out for good, and what both show
/// is what they mean.
TEST(ShownMemory, NumbersAreUsedAgain) {
    std::mt19937 random(5);
    Pair pair;
    std::array<std::vector<char *>, 2> live;
    int written = 0;
    constexpr int kCalls = 3000;
    for (int call = 0; call < kCalls; ++call) {
        for (int rank = 0; rank < 2; ++rank) {
            auto &mine = live[rank];
            if (mine.empty() || (random() % 3 == 0 && mine.size() < 50))
                mine.push_back(pair.heaps[rank].allocate(1000));
            if (mine.size() > 5 && random() % 3 == 0) {
                const size_t which = random() % mine.size();
                pair.heaps[rank].free(mine[which]);
                mine.erase(mine.begin() + static_cast<long>(which));
            }
        }
        char *a = live[0][random() % live[0].size()];
        char *b = live[1][random() % live[1].size()];
        written += pair.call(a, b, 1000) ? 1 : 0;
    }
    EXPECT_GT(written, kCalls * 9 / 10);
    EXPECT_EQ(pair.heaps[0].open_files + pair.heaps[1].open_files, 0) << "what all have opened is offered no longer";
    EXPECT_LT(pair.opens(), kCalls);
}

}  // namespace
}  // namespace flx::cuda
