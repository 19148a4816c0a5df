#include "runtime/execute/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace flx {
namespace {

/// What Cells should say, from a plain list of flags.
struct Model {
    std::vector<bool> done;

    uint32_t run_done(uint32_t first, uint32_t limit) const {
        uint32_t run = 0;
        while (run < limit && (first + run >= done.size() || done[first + run]))
            ++run;
        return run;
    }
    uint32_t run_open(uint32_t first, uint32_t limit) const {
        uint32_t run = 0;
        while (run < limit && first + run < done.size() && !done[first + run])
            ++run;
        return run;
    }
};

/// Compares every question that can be asked about a small range, and random ones about a large one.
void compare(const Cells &cells, const Model &model, std::mt19937 &random) {
    const auto size = static_cast<uint32_t>(model.done.size());
    ASSERT_EQ(cells.size(), size);
    ASSERT_EQ(cells.done(), std::count(model.done.begin(), model.done.end(), true));
    ASSERT_EQ(cells.complete(), cells.done() == size);
    for (uint32_t cell = 0; cell < size; ++cell)
        ASSERT_EQ(cells.test(cell), model.done[cell]) << cell;
    for (int i = 0; i < 50; ++i) {
        const uint32_t first = random() % (size + 10);
        const uint32_t limit = random() % (size + 20);
        ASSERT_EQ(cells.run_done(first, limit), model.run_done(first, limit)) << first << "+" << limit;
        if (first < size) {
            ASSERT_EQ(cells.run_open(first, limit), model.run_open(first, limit)) << first << "+" << limit;
        }
    }
}

TEST(Cells, SayWhatAListOfFlagsSays) {
    std::mt19937 random(1);
    for (const uint32_t size : {1U, 2U, 63U, 64U, 65U, 127U, 128U, 129U, 300U}) {
        for (int round = 0; round < 20; ++round) {
            // Dirty words behind the used ones show whether reset and mark keep to their own.
            std::vector<uint64_t> words(Cells::words_for(size) + 1, 0x5555555555555555);
            Cells cells;
            cells.reset(words.data(), size);
            Model model{std::vector<bool>(size)};
            const bool in_order = round % 2 == 0;
            while (!cells.complete()) {
                ASSERT_NO_FATAL_FAILURE(compare(cells, model, random)) << "size " << size << " round " << round;
                uint32_t first = in_order ? cells.done() : random() % size;
                while (model.done[first])
                    first = (first + 1) % size;
                const uint32_t open = model.run_open(first, size);
                const uint32_t count = 1 + random() % std::min(open, 90U);
                cells.mark(first, count);
                std::fill_n(model.done.begin() + first, count, true);
            }
            compare(cells, model, random);
            EXPECT_EQ(words.back(), 0x5555555555555555);
        }
    }
}

TEST(Cells, PastTheEndCountAsDone) {
    uint64_t word = 0;
    Cells cells;
    cells.reset(&word, 3);
    EXPECT_EQ(cells.run_done(3, 5), 5U);
    EXPECT_EQ(cells.run_done(2, 5), 0U);
    cells.mark(2, 1);
    EXPECT_EQ(cells.run_done(2, 5), 5U);
    EXPECT_EQ(cells.run_done(0, 5), 0U);
    cells.mark(0, 2);
    EXPECT_EQ(cells.run_done(0, 5), 5U);
}

TEST(Cells, OfAnEmptyBlockAreComplete) {
    Cells cells;
    cells.reset(nullptr, 0);
    EXPECT_TRUE(cells.complete());
    EXPECT_EQ(Cells::words_for(0), 0U);
    EXPECT_EQ(cells.run_done(0, 7), 7U);
}

TEST(Cells, ForgetAtReset) {
    uint64_t words[2];
    Cells cells;
    cells.reset(words, 100);
    cells.mark(0, 100);
    cells.reset(words, 70);
    EXPECT_EQ(cells.done(), 0U);
    EXPECT_EQ(cells.run_done(0, 70), 0U);
    EXPECT_EQ(cells.run_open(0, 100), 70U);
}

}  // namespace
}  // namespace flx
