#include "apps/flx_report/data/series.h"

#include <algorithm>
#include <cmath>

namespace flx::report {

int64_t Series::index_of(double at_us) const {
    return static_cast<int64_t>(std::floor(at_us / step_us_));
}

void Series::halve() {
    const auto below = [](int64_t index) { return index >= 0 ? index / 2 : -((1 - index) / 2); };
    const int64_t first = below(first_);
    std::vector<double> halved;
    if (!amounts_.empty())
        halved.resize(static_cast<size_t>(below(first_ + static_cast<int64_t>(amounts_.size()) - 1) - first) + 1);
    for (size_t i = 0; i < amounts_.size(); ++i)
        halved[static_cast<size_t>(below(first_ + static_cast<int64_t>(i)) - first)] += amounts_[i];
    amounts_ = std::move(halved);
    first_ = first;
    step_us_ *= 2;
}

void Series::cover(int64_t index) {
    if (amounts_.empty()) {
        first_ = index;
        amounts_.assign(1, 0);
    } else if (index < first_) {
        amounts_.insert(amounts_.begin(), static_cast<size_t>(first_ - index), 0);
        first_ = index;
    } else if (index >= first_ + static_cast<int64_t>(amounts_.size())) {
        amounts_.resize(static_cast<size_t>(index - first_) + 1);
    }
}

void Series::add(double at_us, double for_us, double amount) {
    const double end_us = at_us + for_us;
    while (true) {
        const int64_t from = amounts_.empty() ? index_of(at_us) : std::min(first_, index_of(at_us));
        const int64_t to = amounts_.empty()
                               ? index_of(end_us)
                               : std::max(first_ + static_cast<int64_t>(amounts_.size()) - 1, index_of(end_us));
        if (to - from < static_cast<int64_t>(most_steps_))
            break;
        halve();
    }
    const int64_t from = index_of(at_us);
    const int64_t to = index_of(end_us);
    cover(from);
    cover(to);
    if (from == to) {
        amounts_[static_cast<size_t>(from - first_)] += amount;
        return;
    }
    for (int64_t index = from; index <= to; ++index) {
        const double begin = std::max(at_us, static_cast<double>(index) * step_us_);
        const double end = std::min(end_us, static_cast<double>(index + 1) * step_us_);
        amounts_[static_cast<size_t>(index - first_)] += amount * std::max(0.0, end - begin) / for_us;
    }
}

void Series::widen_to(double step_us) {
    while (step_us_ < step_us)
        halve();
}

double Series::at(double at_us) const {
    const int64_t place = index_of(at_us) - first_;
    return place < 0 || place >= static_cast<int64_t>(amounts_.size()) ? 0 : amounts_[static_cast<size_t>(place)];
}

std::vector<double> Series::resampled(double from_us, double to_us, size_t steps) const {
    std::vector<double> result(steps, 0);
    const double width = (to_us - from_us) / static_cast<double>(steps);
    if (!(width > 0))
        return result;
    for (size_t i = 0; i < amounts_.size(); ++i) {
        const double begin = static_cast<double>(first_ + static_cast<int64_t>(i)) * step_us_;
        const double end = begin + step_us_;
        // A step of this series may reach out of the time that is asked for; what it has belongs to the part within.
        const double inside = std::min(end, to_us) - std::max(begin, from_us);
        if (!(inside > 0))
            continue;
        const double low = (std::max(begin, from_us) - from_us) / width;
        const double high = (std::min(end, to_us) - from_us) / width;
        const auto last = static_cast<double>(steps - 1);
        for (auto step = static_cast<size_t>(std::min(low, last)); step <= static_cast<size_t>(std::min(high, last));
             ++step) {
            const double part =
                std::min(high, static_cast<double>(step + 1)) - std::max(low, static_cast<double>(step));
            result[step] += amounts_[i] * std::max(0.0, part) * width / inside;
        }
    }
    return result;
}

double Series::highest_per_us() const {
    return amounts_.empty() ? 0 : *std::max_element(amounts_.begin(), amounts_.end()) / step_us_;
}

void MeanSeries::add(double at_us, double value) {
    sums_.add(at_us, 0, value);
    counts_.add(at_us, 0, 1);
    sum_ += value;
    ++count_;
}

std::vector<double> MeanSeries::resampled(double from_us, double to_us, size_t steps) const {
    std::vector<double> sums = sums_.resampled(from_us, to_us, steps);
    const std::vector<double> counts = counts_.resampled(from_us, to_us, steps);
    double before = 0;
    for (size_t i = 0; i < steps; ++i)
        before = sums[i] = counts[i] > 0 ? sums[i] / counts[i] : before;
    return sums;
}

}  // namespace flx::report
