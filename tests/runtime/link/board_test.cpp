#include "runtime/link/board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
#include <string>

#include "tests/runtime/link/ranks.h"

namespace flx {
namespace {

// As in a segment: memory that is zero, and no constructor has run.
struct Memory {
    alignas(Board) std::byte bytes[sizeof(Board)] = {};
    Board &board() { return *reinterpret_cast<Board *>(bytes); }
};

void put(Board &board, const std::string &why) {
    board.write(Status(Fault::peer_died, why));
}

/// Empty if nothing stands there.
std::string text_of(const Board &board) {
    Status why;
    return board.read(why) ? why.words() : "";
}

TEST(Board, IsEmptyWhereMemoryIsZero) {
    Memory memory;
    EXPECT_EQ(text_of(memory.board()), "");
}

TEST(Board, KeepsTheFirstSentence) {
    Memory memory;
    put(memory.board(), "rank 2 died");
    put(memory.board(), "rank 3 died too");
    EXPECT_EQ(text_of(memory.board()), "rank 2 died");
}

TEST(Board, CutsWhatDoesNotFit) {
    Memory memory;
    const std::string longer(3 * sizeof(Board), 'x');
    put(memory.board(), longer);
    const std::string text = text_of(memory.board());
    EXPECT_GT(text.size(), 400U);
    EXPECT_LT(text.size(), sizeof(Board));
    EXPECT_EQ(text, longer.substr(0, text.size()));
    Status why;
    EXPECT_TRUE(memory.board().read(why));
    EXPECT_EQ(why.sentence(), text + " [FLX-E601]") << "words are lost, and not the code";
}

/// A rank whose lock is gone, and which did not say so here, is dead.
TEST(Board, RanksLeaveOneByOne) {
    Memory memory;
    memory.board().leave(3);
    memory.board().leave(64);
    EXPECT_TRUE(memory.board().has_left(3));
    EXPECT_TRUE(memory.board().has_left(64));
    EXPECT_FALSE(memory.board().has_left(0));
    EXPECT_FALSE(memory.board().has_left(4));
    EXPECT_FALSE(memory.board().has_left(63));
    EXPECT_EQ(text_of(memory.board()), "");
    memory.board().leave(Board::kRanks - 1);
    EXPECT_TRUE(memory.board().has_left(Board::kRanks - 1));
    EXPECT_FALSE(memory.board().has_left(Board::kRanks - 2));
    memory.board().leave(1 << 20);
    EXPECT_FALSE(memory.board().has_left(1 << 20));
}

TEST(Board, CutsWhatDoesNotFitBesideThoseWhoLeft) {
    Memory memory;
    put(memory.board(), std::string(3 * sizeof(Board), 'x'));
    for (size_t rank = 0; rank < Board::kRanks; ++rank)
        EXPECT_FALSE(memory.board().has_left(rank)) << rank;
}

TEST(Board, ShowsOneWholeSentenceWhenManyWrite) {
    for (int round = 0; round < 200; ++round) {
        Memory memory;
        testing::run_ranks(4, [&](int rank) {
            if (rank < 3) {
                put(memory.board(), std::string(300, static_cast<char>('a' + rank)));
                return;
            }
            std::string text;
            while ((text = text_of(memory.board())).empty())
                sched_yield();
            EXPECT_EQ(text, std::string(300, text[0]));
        });
        const std::string text = text_of(memory.board());
        EXPECT_EQ(text, std::string(300, text[0]));
    }
}

}  // namespace
}  // namespace flx
