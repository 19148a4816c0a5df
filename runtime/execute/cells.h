/// \file cells.h
/// Which cells of a step are done: a bit each, and how many lie without gap at the beginning.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace flx {

class Cells {
  public:
    static constexpr uint32_t words_for(uint32_t cells) { return (cells + 63) / 64; }

    /// `words`: words_for(cells) words, which this clears and uses until reset again.
    void reset(uint64_t *words, uint32_t cells) {
        words_ = words;
        cells_ = cells;
        done_ = 0;
        prefix_ = 0;
        std::fill_n(words, words_for(cells), 0);
    }

    [[nodiscard]] uint32_t size() const { return cells_; }
    [[nodiscard]] uint32_t done() const { return done_; }
    [[nodiscard]] bool complete() const { return done_ == cells_; }
    [[nodiscard]] bool test(uint32_t cell) const { return (words_[cell / 64] >> (cell % 64) & 1) != 0; }

    /// How many cells from `first`, at most `limit`, are done without gap. Cells past the end count as done: they are
    /// of a longer block than this one.
    [[nodiscard]] uint32_t run_done(uint32_t first, uint32_t limit) const {
        if (first + limit <= prefix_ || complete())
            return limit;
        uint32_t run = first < prefix_ ? prefix_ - first : 0;
        if (done_ == prefix_ && first + run < cells_)
            return run;
        while (run < limit && (first + run >= cells_ || test(first + run)))
            ++run;
        return run;
    }
    /// How many cells from `first` (< size()), at most `limit`, are not done.
    [[nodiscard]] uint32_t run_open(uint32_t first, uint32_t limit) const {
        limit = std::min(limit, cells_ - first);
        if (done_ == prefix_)
            return first >= prefix_ ? limit : 0;
        uint32_t run = 0;
        while (run < limit && !test(first + run))
            ++run;
        return run;
    }

    /// None of the cells first … first + count - 1 was done.
    void mark(uint32_t first, uint32_t count) {
        for (uint32_t cell = first, left = count; left != 0;) {
            const uint32_t bit = cell % 64;
            const uint32_t here = std::min(left, 64 - bit);
            const uint64_t mask = here == 64 ? ~uint64_t{0} : ((uint64_t{1} << here) - 1) << bit;
            words_[cell / 64] |= mask;
            cell += here;
            left -= here;
        }
        done_ += count;
        if (first != prefix_)
            return;
        prefix_ += count;
        while (prefix_ < done_ && test(prefix_))
            ++prefix_;
    }

  private:
    uint64_t *words_ = nullptr;
    uint32_t cells_ = 0;
    uint32_t done_ = 0;
    uint32_t prefix_ = 0;
};

}  // namespace flx
