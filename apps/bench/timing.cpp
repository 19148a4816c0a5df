#include "apps/bench/timing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace flx::bench {

double Summary::spread() const {
    return median > 0 ? (high - low) / median : 0;
}

double quantile(const std::vector<double> &sorted, double part) {
    const double position = part * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    const double weight = position - static_cast<double>(below);
    return sorted[below] + weight * (sorted[above] - sorted[below]);
}

Summary summarise(std::vector<double> values) {
    if (values.empty()) {
        return {};
    }
    std::sort(values.begin(), values.end());
    return {quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9)};
}

std::vector<double> ratios(const std::vector<double> &a, const std::vector<double> &b) {
    std::vector<double> result;
    for (size_t i = 0; i < a.size(); ++i) {
        if (b[i] > 0) {
            result.push_back(a[i] / b[i]);
        }
    }
    return result;
}

double geometric_mean(const std::vector<double> &values) {
    double logs = 0;
    for (const double value : values) {
        logs += std::log(value);
    }
    return values.empty() ? 0 : std::exp(logs / static_cast<double>(values.size()));
}

std::vector<double> shares_of(const std::vector<uint64_t> &bytes) {
    const auto total = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
    std::vector<double> shares(bytes.size(), 0.0);
    if (total > 0) {
        std::transform(bytes.begin(), bytes.end(), shares.begin(),
                       [total](uint64_t part) { return static_cast<double>(part) / total; });
    }
    return shares;
}

int blocks_for(double seconds, int sides, double call_seconds) {
    constexpr double kShortest = 0.010;
    const double blocks = seconds / sides / std::max(call_seconds, kShortest);
    return static_cast<int>(std::clamp<double>(blocks, kFewestBlocks, kMostBlocks));
}

int64_t calls_for(double block_seconds, double call_seconds) {
    constexpr double kMost = 1e6;
    if (call_seconds * kMost <= block_seconds) {
        return static_cast<int64_t>(kMost);
    }
    return std::max<int64_t>(1, std::llround(block_seconds / call_seconds));
}

int side_in_turn(int block, int turn, int sides) {
    return (block + turn) % sides;
}

}  // namespace flx::bench
