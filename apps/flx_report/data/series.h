/// \file series.h
/// Something over time, in a bounded number of steps, whatever the trace's length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx::report {

/// Amounts in steps of equal width. Where they would be too many, the width doubles and neighbours are added up, so
/// nothing has to be known of the time that is covered. Copied and moved as a value.
class Series {
  public:
    Series() = default;
    explicit Series(size_t most_steps) : most_steps_(most_steps) {}

    /// Spreads `amount` evenly over the time from `at_us` on.
    void add(double at_us, double for_us, double amount);
    [[nodiscard]] bool empty() const { return amounts_.empty(); }
    [[nodiscard]] double step_us() const { return step_us_; }
    /// At least so wide, a power of two times the first width.
    void widen_to(double step_us);
    /// The amount in the step with `at_us` in it; 0 outside.
    [[nodiscard]] double at(double at_us) const;
    /// The amounts of `steps` equal parts of the time from `from_us` to `to_us`.
    [[nodiscard]] std::vector<double> resampled(double from_us, double to_us, size_t steps) const;
    /// The largest amount of a step, by the microsecond.
    [[nodiscard]] double highest_per_us() const;

  private:
    [[nodiscard]] int64_t index_of(double at_us) const;
    void cover(int64_t index);
    void halve();

    size_t most_steps_ = 4096;
    double step_us_ = 1;
    int64_t first_ = 0;  ///< index of amounts_[0]: its time is that, times the width
    std::vector<double> amounts_;
};

/// What was seen at points in time, as means over steps.
class MeanSeries {
  public:
    void add(double at_us, double value);
    /// Steps in which nothing was seen have the value of the step before, and 0 before the first.
    [[nodiscard]] std::vector<double> resampled(double from_us, double to_us, size_t steps) const;
    [[nodiscard]] double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

  private:
    Series sums_{1024};
    Series counts_{1024};
    double sum_ = 0;
    uint64_t count_ = 0;
};

}  // namespace flx::report
