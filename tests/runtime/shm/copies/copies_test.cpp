/// Copies of host memory that the cores and a copy engine share, with engines that end when they like or fail, and what
/// of a mapping such an engine has pinned.
#include "runtime/shm/copies/copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "runtime/shm/copies/engine_use.h"
#include "tests/runtime/shm/copies/late_engine.h"

namespace flx::shm {
namespace {

using testing::LateEngine;
using testing::TestPins;

constexpr int kOwn = 0;
constexpr int kOther = 1;
constexpr size_t kSize = size_t{4} << 20;

class TestReach : public Reach {
  public:
    explicit TestReach(CopyEngine &engine) : engine_(&engine) {}
    CopyEngine *hold(const std::vector<Copy> &) override {
        holds_ += engine_ != nullptr ? 1 : 0;
        return engine_;
    }
    void release() override { --holds_; }
    [[nodiscard]] std::byte *place(int, const std::byte *at) override { return const_cast<std::byte *>(at); }
    void lost() override {
        EXPECT_NE(engine_, nullptr);
        engine_ = nullptr;
    }
    [[nodiscard]] bool is_lost() const { return engine_ == nullptr; }
    [[nodiscard]] int holds() const { return holds_; }

  private:
    CopyEngine *engine_;
    int holds_ = 0;
};

/// Blocks of random lengths from one memory to another, in another order there.
struct Blocks {
    Blocks(std::mt19937 &random, size_t bytes, int others_of_100) : from(bytes), to(bytes) {
        for (size_t at = 0; at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t)) {
            const auto word = static_cast<uint32_t>(random());
            std::memcpy(&from[at], &word, sizeof word);
        }
        std::vector<std::pair<size_t, size_t>> pieces;
        for (size_t at = 0; at < bytes;) {
            const size_t length = std::min<size_t>(bytes - at, 1 + random() % (bytes / 2));
            pieces.emplace_back(at, length);
            at += length;
        }
        std::ranges::shuffle(pieces, random);
        for (const auto &[at, length] : pieces)
            copies.push_back({to.data() + at, from.data() + at, length,
                              static_cast<int>(random() % 100) < others_of_100 ? kOther : kOwn, kOther});
    }
    void plan(Copies &plan) const {
        plan.clear();
        for (const Copy &copy : copies)
            plan.add(copy);
    }

    std::vector<std::byte> from, to;
    std::vector<Copy> copies;
};

TEST(Copies, EveryByteOnceWhateverTheEngineDoes) {
    std::mt19937 random(3);
    uint64_t by_engine = 0;
    int lost = 0;
    for (int round = 0; round < 60; ++round) {
        const size_t bytes = kSize / 2 + random() % (4 * kSize);
        const Blocks blocks(random, bytes, round % 3 * 50);
        LateEngine engine(round, 20 + round % 80, round % 2 == 0 ? 0 : 30);
        TestReach reach(engine);
        Copies copies(kOwn);
        blocks.plan(copies);
        ASSERT_TRUE(copies.run(round % 2 == 0, nullptr, &reach).ok());
        ASSERT_EQ(blocks.from, blocks.to) << round;
        ASSERT_EQ(reach.holds(), 0);
        ASSERT_EQ(reach.is_lost(), engine.failed());
        ASSERT_EQ(engine.stops(), engine.failed() ? 1 : 0);
        lost += engine.failed() ? 1 : 0;
        by_engine += copies.engine_bytes();
        if (!engine.failed()) {
            ASSERT_EQ(copies.engine_bytes() + copies.core_bytes(), bytes);
        }
    }
    EXPECT_GT(by_engine, 60U << 20);
    EXPECT_GT(lost, 5);
}

TEST(Copies, NothingForOthersOnceSomebodyGaveUp) {
    std::mt19937 random(4);
    Board board;
    board.write(fail(Fault::peer_died, "rank 1 has not answered"));
    for (const int others : {100, 0}) {
        const Blocks blocks(random, 2 * kSize, others);
        LateEngine engine(1, 50, 0);
        TestReach reach(engine);
        Copies copies(kOwn);
        blocks.plan(copies);
        const Status status = copies.run(false, &board, &reach);
        if (others == 0) {
            EXPECT_TRUE(status.ok());
            EXPECT_EQ(blocks.from, blocks.to);
        } else {
            EXPECT_EQ(status.sentence(), "rank 1 has not answered [FLX-E601]");
            EXPECT_EQ(engine.begun(), 0);
            EXPECT_TRUE(std::ranges::all_of(blocks.to, [](std::byte byte) { return byte == std::byte{0}; }));
        }
        EXPECT_EQ(reach.holds(), 0);
    }
}

/// Of what was under way when somebody gave up, no byte comes after the call; of what is this rank's own, all do.
TEST(Copies, SomebodyGivesUpMeanwhile) {
    std::mt19937 random(6);
    const Blocks blocks(random, 4 * kSize, 100);
    Board board;
    LateEngine engine(1, 50, 0);
    engine.at_begin = [&](int begun) {
        if (begun == 2)
            board.write(fail(Fault::peer_died, "rank 1 has not answered"));
    };
    TestReach reach(engine);
    Copies copies(kOwn);
    blocks.plan(copies);
    EXPECT_EQ(copies.run(false, &board, &reach).sentence(), "rank 1 has not answered [FLX-E601]");
    EXPECT_EQ(engine.begun(), 2);
    EXPECT_EQ(engine.under_way(), 0U);
    EXPECT_EQ(reach.holds(), 0);
    EXPECT_FALSE(reach.is_lost());
}

TEST(Copies, AnEngineThatWouldEndLastGetsNothing) {
    std::mt19937 random(5);
    const Blocks blocks(random, 2 * kSize, 0);
    LateEngine engine(1, 100, 0);
    engine.take_at_least(std::chrono::milliseconds(200));
    TestReach reach(engine);
    Copies copies(kOwn);
    for (int call = 0; call < 4; ++call) {
        blocks.plan(copies);
        ASSERT_TRUE(copies.run(false, nullptr, &reach).ok());
    }
    // The first call found out, with whatever it had under way.
    EXPECT_LE(engine.begun(), static_cast<int>(CopyEngine::kSlots));
    EXPECT_GE(engine.begun(), 1);
}

/// The calls of one collective and size, and how many of them an engine was to take part in.
int calls_with(EngineUse &use, int calls, int64_t with_ns, int64_t without_ns, bool there = true) {
    int with = 0;
    for (int call = 0; call < calls; ++call) {
        const bool uses = use.next(algorithms::Collective::allgather, EngineUse::kLeast);
        use.took(uses && there ? with_ns : without_ns, uses && there);
        with += uses ? 1 : 0;
    }
    return with;
}

TEST(EngineUse, TakesWhatIsQuicker) {
    EngineUse use;
    EXPECT_FALSE(use.next(algorithms::Collective::allgather, EngineUse::kLeast - 1));
    calls_with(use, 10, 400'000, 1'000'000);
    EXPECT_GT(calls_with(use, 1000, 400'000, 1'000'000), 980);
    // Somebody else needs it now.
    calls_with(use, 2000, 2'000'000, 1'000'000);
    EXPECT_LT(calls_with(use, 1000, 2'000'000, 1'000'000), 20);
    // And no longer.
    calls_with(use, 20'000, 400'000, 1'000'000);
    EXPECT_GT(calls_with(use, 1000, 400'000, 1'000'000), 980);
}

TEST(EngineUse, LooksSeldomAtWhatIsFarWorse) {
    EngineUse use;
    EXPECT_LE(calls_with(use, 10'000, 7'000'000, 1'000'000), 8);
}

TEST(EngineUse, NotForNothing) {
    EngineUse use;
    calls_with(use, 10, 980'000, 1'000'000);
    EXPECT_LT(calls_with(use, 1000, 980'000, 1'000'000), 20);
}

TEST(EngineUse, MissesNowAndThenAreNone) {
    EngineUse use;
    for (int turn = 0; turn < 20; ++turn) {
        calls_with(use, 200, 400'000, 1'000'000);
        calls_with(use, 3, 400'000, 1'000'000, false);
    }
    EXPECT_GT(calls_with(use, 1000, 400'000, 1'000'000), 980);
}

TEST(EngineUse, ForgetsOneThatIsNotThere) {
    EngineUse use;
    EXPECT_LE(calls_with(use, 5000, 400'000, 1'000'000, false), 64);
    // It may come later.
    calls_with(use, 20'000, 400'000, 1'000'000);
    EXPECT_GT(calls_with(use, 1000, 400'000, 1'000'000), 980);
}

bool held(Pins &pins, std::vector<Pins::Range> ranges, uint32_t freed = 0) {
    const bool done = pins.hold(ranges, freed);
    if (done)
        pins.release();
    return done;
}

/// As often as it takes.
bool asked(Pins &pins, const std::vector<Pins::Range> &ranges, uint32_t freed = 0) {
    for (int ask = 0; ask < Pins::kAsksBefore; ++ask)
        EXPECT_FALSE(pins.ask(ranges, freed));
    return pins.ask(ranges, freed) && held(pins, ranges, freed);
}

constexpr uint64_t kPage = 1 << 16;  // a multiple of every machine's

TEST(Pins, WholePagesThatOverlapBecomeOne) {
    TestPins pins;
    EXPECT_TRUE(asked(pins, {{100, kPage + 5}, {4 * kPage, 5 * kPage}}));
    EXPECT_EQ(pins.pinned.size(), 2U);
    EXPECT_TRUE(held(pins, {{200, 300}}));
    EXPECT_FALSE(held(pins, {{200, 300}, {3 * kPage, 5 * kPage}}));
    EXPECT_TRUE(asked(pins, {{kPage, 4 * kPage + 1}}));
    EXPECT_EQ(pins.pinned.size(), 1U);
    EXPECT_EQ(pins.pinned[0], (Pins::Range{0, 5 * kPage}));
    EXPECT_TRUE(held(pins, {{0, 5 * kPage}}));
}

TEST(Pins, GoWhenTheOwnerGaveSomethingBack) {
    TestPins pins;
    EXPECT_TRUE(asked(pins, {{0, 1000}}, 7));
    EXPECT_TRUE(held(pins, {{0, 1000}}, 6));  // an older word of the same heap
    pins.given_back(7);
    EXPECT_EQ(pins.pinned.size(), 1U);
    pins.given_back(8);
    EXPECT_TRUE(pins.pinned.empty());
    EXPECT_FALSE(held(pins, {{0, 1000}}, 8));
    EXPECT_TRUE(asked(pins, {{0, 1000}}, 8));
    EXPECT_FALSE(held(pins, {{0, 1000}}, 9));
    EXPECT_TRUE(pins.pinned.empty());
    EXPECT_EQ(pins.unpinned, 2);
    // The number wraps around.
    EXPECT_TRUE(asked(pins, {{0, 1000}}, UINT32_MAX - 1));
    EXPECT_TRUE(held(pins, {{0, 1000}}, UINT32_MAX - 1));
    EXPECT_FALSE(held(pins, {{0, 1000}}, 1));
}

TEST(Pins, WhatIsHeldStays) {
    TestPins pins;
    EXPECT_TRUE(asked(pins, {{0, 1000}}));
    const std::vector<Pins::Range> first{{0, 1000}};
    const std::vector<Pins::Range> longer{{0, 3 * kPage}};
    const std::vector<Pins::Range> apart{{1 << 20, 1 << 21}};
    ASSERT_TRUE(pins.hold(first, 0));
    for (int ask = 0; ask < 2 * Pins::kAsksBefore; ++ask)
        EXPECT_FALSE(pins.ask(longer, 0));
    EXPECT_FALSE(pins.hold(first, 1));
    pins.given_back(1);
    EXPECT_EQ(pins.unpinned, 0);
    EXPECT_TRUE(asked(pins, apart)) << "nobody holds any of that";
    EXPECT_TRUE(pins.hold(first, 0));
    pins.release();
    pins.release();
    EXPECT_EQ(pins.unpinned, 0);
    EXPECT_TRUE(asked(pins, longer));
    EXPECT_EQ(pins.unpinned, 1);
}

TEST(Pins, WhatCannotBePinnedIsNotTriedAgain) {
    TestPins pins;
    pins.works = false;
    EXPECT_FALSE(asked(pins, {{0, 1000}}));
    pins.works = true;
    EXPECT_FALSE(asked(pins, {{0, 1000}}));
    EXPECT_TRUE(pins.pinned.empty());
}

}  // namespace
}  // namespace flx::shm
