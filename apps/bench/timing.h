/// \file timing.h
/// Statistics of repeated measurements, and how many calls a block takes. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace flx::bench {

/// Of one figure over the blocks.
struct Summary {
    double median = 0;
    double low = 0;   ///< 10th percentile
    double high = 0;  ///< 90th percentile

    /// (high - low) / median; 0 where the median is 0.
    [[nodiscard]] double spread() const;
};

/// The `part`-th quantile (0…1) of `sorted` (ascending, not empty), interpolated between neighbours.
[[nodiscard]] double quantile(const std::vector<double> &sorted, double part);
/// `values` need not be sorted; of none at all: zeros.
[[nodiscard]] Summary summarise(std::vector<double> values);
/// a[i] / b[i]; both have the same length. An element whose b is 0 is left out.
[[nodiscard]] std::vector<double> ratios(const std::vector<double> &a, const std::vector<double> &b);
/// 0 of none at all. All values are above 0.
[[nodiscard]] double geometric_mean(const std::vector<double> &values);

/// Each number's part of their sum; all zero where the sum is.
[[nodiscard]] std::vector<double> shares_of(const std::vector<uint64_t> &bytes);

/// Fewest blocks that a median is worth something with, and the most that are made unless asked for.
inline constexpr int kFewestBlocks = 7;
inline constexpr int kMostBlocks = 31;

/// Into how many blocks `seconds` of timed calls of each of `sides` are cut: as many as there can be blocks of 10 ms (a
/// few ticks of the scheduler) and of a whole call, within the limits above.
[[nodiscard]] int blocks_for(double seconds, int sides, double call_seconds);

/// Calls that take about `block_seconds` when one takes `call_seconds`: 1 to 10^6.
[[nodiscard]] int64_t calls_for(double block_seconds, double call_seconds);

/// Which of `sides` sides runs `turn`-th in block `block`: the order turns from block to block, so that no side always
/// follows the same other one.
[[nodiscard]] int side_in_turn(int block, int turn, int sides);

}  // namespace flx::bench
