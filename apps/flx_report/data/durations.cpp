#include "apps/flx_report/data/durations.h"

#include <algorithm>
#include <cmath>

namespace flx::report {
namespace {

constexpr double kPerDoubling = 32;
/// Of the first bucket, in microseconds: clocks tell no shorter times apart.
constexpr double kShortest = 1e-3;
/// Up to hours and on.
constexpr size_t kBuckets = 45 * 32;

size_t bucket_of(double us) {
    if (us <= kShortest)
        return 0;
    return std::min(kBuckets - 1, 1 + static_cast<size_t>(std::log2(us / kShortest) * kPerDoubling));
}

/// Its middle, as ratios go.
double middle_of(size_t bucket) {
    return bucket == 0 ? 0 : kShortest * std::exp2((static_cast<double>(bucket) - 0.5) / kPerDoubling);
}

}  // namespace

void Durations::count_in(double us) {
    ++buckets_[bucket_of(us)];
}

void Durations::add(double us) {
    us = std::max(0.0, us);
    ++count_;
    sum_ += us;
    most_ = std::max(most_, us);
    if (!buckets_.empty()) {
        count_in(us);
    } else if (exact_.size() < kExact) {
        exact_.push_back(us);
    } else {
        buckets_.resize(kBuckets);
        for (const double earlier : exact_)
            count_in(earlier);
        count_in(us);
        exact_ = {};
    }
}

double Durations::quantile(double part) const {
    if (count_ == 0)
        return 0;
    const auto rank = static_cast<uint64_t>(std::ceil(part * static_cast<double>(count_)));
    const uint64_t place = std::clamp<uint64_t>(rank, 1, count_) - 1;
    if (buckets_.empty()) {
        std::vector<double> sorted = exact_;
        const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(place);
        std::nth_element(sorted.begin(), at, sorted.end());
        return *at;
    }
    uint64_t before = 0;
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        before += buckets_[bucket];
        if (before > place)
            return std::min(middle_of(bucket), most_);
    }
    return most_;
}

}  // namespace flx::report
