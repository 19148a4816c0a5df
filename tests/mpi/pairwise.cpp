#include "tests/mpi/pairwise.h"

#include <cstddef>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

/// Which pairs of values no row has yet.
class Uncovered {
  public:
    explicit Uncovered(const std::vector<int> &levels) : levels_(levels) {
        for (const int count : levels) {
            first_.push_back(values_);
            values_ += count;
        }
        open_.assign(values_ * values_, false);
        for (size_t p = 0; p < levels.size(); ++p)
            for (size_t q = p + 1; q < levels.size(); ++q)
                for (int a = 0; a < levels[p]; ++a)
                    for (int b = 0; b < levels[q]; ++b, ++count_)
                        open_[place(p, a, q, b)] = true;
    }

    [[nodiscard]] size_t count() const { return count_; }

    [[nodiscard]] size_t gain(const std::vector<int> &row) const {
        size_t gain = 0;
        for (size_t p = 0; p < row.size(); ++p)
            for (size_t q = p + 1; q < row.size(); ++q)
                gain += open_[place(p, row[p], q, row[q])];
        return gain;
    }

    void cover(const std::vector<int> &row) {
        for (size_t p = 0; p < row.size(); ++p) {
            for (size_t q = p + 1; q < row.size(); ++q) {
                count_ -= open_[place(p, row[p], q, row[q])];
                open_[place(p, row[p], q, row[q])] = false;
            }
        }
    }

    /// Puts the first open pair at or after `start`, cyclically, into `row`.
    void put_open_pair(size_t start, std::vector<int> &row) const {
        size_t at = start % open_.size();
        while (!open_[at])
            at = (at + 1) % open_.size();
        for (const size_t value : {at / values_, at % values_}) {
            size_t p = levels_.size() - 1;
            while (first_[p] > value)
                --p;
            row[p] = static_cast<int>(value - first_[p]);
        }
    }

  private:
    [[nodiscard]] size_t place(size_t p, int a, size_t q, int b) const {
        return (first_[p] + a) * values_ + first_[q] + b;
    }

    const std::vector<int> &levels_;
    std::vector<size_t> first_;  // number of a parameter's first value, among all values
    size_t values_ = 0;
    std::vector<bool> open_;
    size_t count_ = 0;
};

}  // namespace

std::vector<std::vector<int>> pairwise(const std::vector<int> &levels, uint64_t seed) {
    constexpr int kCandidates = 30;
    Random random(seed);
    Uncovered uncovered(levels);
    std::vector<std::vector<int>> rows;
    while (uncovered.count() != 0) {
        std::vector<int> best;
        size_t best_gain = 0;
        for (int candidate = 0; candidate < kCandidates; ++candidate) {
            std::vector<int> row;
            for (const int level : levels)
                row.push_back(static_cast<int>(random.below(level)));
            uncovered.put_open_pair(random.next(), row);
            if (const size_t gain = uncovered.gain(row); gain > best_gain) {
                best_gain = gain;
                best = row;
            }
        }
        uncovered.cover(best);
        rows.push_back(best);
    }
    return rows;
}

std::vector<std::vector<int>> product(const std::vector<int> &levels) {
    std::vector<std::vector<int>> rows(1);
    for (const int level : levels) {
        std::vector<std::vector<int>> longer;
        for (const std::vector<int> &row : rows) {
            for (int value = 0; value < level; ++value) {
                longer.push_back(row);
                longer.back().push_back(value);
            }
        }
        rows = std::move(longer);
    }
    return rows;
}

}  // namespace flx::test
