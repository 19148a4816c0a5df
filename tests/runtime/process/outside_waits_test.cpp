#include "runtime/process/outside_waits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

namespace flx {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(OutsideWaits, NobodyWaitsAtFirst) {
    Board board;
    board.add_outside_turn();  // before this rank came
    OutsideWaits waits;
    waits.add(board);
    EXPECT_FALSE(waits.seen(kMs));
    EXPECT_FALSE(waits.seen(100 * kMs));
}

TEST(OutsideWaits, AnotherRanksTurnHoldsForAWhile) {
    Board board;
    OutsideWaits here;
    OutsideWaits there;
    here.add(board);
    there.add(board);
    ASSERT_FALSE(here.seen(10 * kMs));
    there.note();
    EXPECT_TRUE(here.seen(11 * kMs));
    EXPECT_TRUE(here.seen(11 * kMs + OutsideWaits::kHoldNs / 2));
    EXPECT_FALSE(here.seen(11 * kMs + OutsideWaits::kHoldNs));
    there.note();
    EXPECT_TRUE(here.seen(17 * kMs));
}

/// A wait that begins long after the last one asked does not know when they came.
TEST(OutsideWaits, OldTurnsDoNotCount) {
    Board board;
    OutsideWaits here;
    here.add(board);
    ASSERT_FALSE(here.seen(10 * kMs));
    board.add_outside_turn();
    EXPECT_FALSE(here.seen(1000 * kMs));
    EXPECT_FALSE(here.seen(1001 * kMs));
    board.add_outside_turn();
    EXPECT_TRUE(here.seen(1002 * kMs));
}

/// A rank that waits on one communicator sees who is in another with it; all of many are told in a few turns.
TEST(OutsideWaits, AnyBoardWillDo) {
    std::deque<Board> boards(20);
    OutsideWaits there;
    for (Board &board : boards)
        there.add(board);
    for (int turn = 0; turn < 3; ++turn)
        there.note();
    for (Board &board : boards)
        EXPECT_GT(board.outside_turns(), 0U);
    OutsideWaits here;
    here.add(boards[3]);
    here.add(boards[17]);
    ASSERT_FALSE(here.seen(10 * kMs));
    boards[17].add_outside_turn();
    EXPECT_TRUE(here.seen(11 * kMs));
}

TEST(OutsideWaits, ABoardThatGoesIsNoTurn) {
    Board kept;
    Board goes;
    goes.add_outside_turn();
    OutsideWaits waits;
    waits.add(kept);
    waits.add(goes);
    ASSERT_FALSE(waits.seen(10 * kMs));
    waits.remove(goes);
    goes.add_outside_turn();
    EXPECT_FALSE(waits.seen(11 * kMs));
    waits.remove(goes);
    kept.add_outside_turn();
    EXPECT_TRUE(waits.seen(12 * kMs));
}

/// MPI tells in whichever thread, while communicators come and go.
TEST(OutsideWaits, Threads) {
    OutsideWaits waits;
    std::atomic<bool> ends{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            for (int64_t now = 0; !ends; now += OutsideWaits::kHoldNs) {
                waits.note();
                (void)waits.seen(now);
            }
        });
    for (int round = 0; round < 1000; ++round) {
        Board board;
        waits.add(board);
        waits.note();
        waits.remove(board);
    }
    ends = true;
    for (std::thread &thread : threads)
        thread.join();
}

}  // namespace
}  // namespace flx
