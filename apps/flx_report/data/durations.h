/// \file durations.h
/// How long many things took, in memory that does not grow with their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx::report {

/// Exact while there are few. Of more than kExact it keeps how many fell between two powers of 2^(1/32), so a quantile
/// is off by 1.1 % at most. Copied and moved as a value.
class Durations {
  public:
    static constexpr size_t kExact = 2048;

    void add(double us);
    [[nodiscard]] uint64_t count() const { return count_; }
    [[nodiscard]] double sum() const { return sum_; }
    [[nodiscard]] double most() const { return most_; }
    [[nodiscard]] double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
    /// The smallest one that `part` of all are not longer than (nearest rank); 0 if there is none.
    [[nodiscard]] double quantile(double part) const;
    [[nodiscard]] double median() const { return quantile(0.5); }

  private:
    void count_in(double us);

    uint64_t count_ = 0;
    double sum_ = 0;
    double most_ = 0;
    std::vector<double> exact_;      ///< unless there are more
    std::vector<uint64_t> buckets_;  ///< then
};

}  // namespace flx::report
