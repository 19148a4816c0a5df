#include "runtime/record/trace_clocks.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flx::record {

/// A line through the first and the last one if they are so far apart that what both may be off makes little drift.
HostClock::HostClock(std::string host, std::vector<ClockSample> samples, int64_t by_date_ns) : host_(std::move(host)) {
    constexpr double kMostOff = 5e-6;
    constexpr double kMost = 200e-6;  // clocks of computers drift by less
    if (samples.empty()) {
        offset_ns_ = by_date_ns;
        error_ns_ = -1;
        return;
    }
    std::sort(samples.begin(), samples.end(),
              [](const ClockSample &a, const ClockSample &b) { return a.at_ns < b.at_ns; });
    const auto least = std::min_element(samples.begin(), samples.end(), [](const ClockSample &a, const ClockSample &b) {
        return a.error_ns < b.error_ns;
    });
    const ClockSample &first = samples.front(), &last = samples.back();
    const auto apart = static_cast<double>(last.at_ns - first.at_ns);
    const bool drifts = apart > 0 && static_cast<double>(first.error_ns + last.error_ns) / apart <= kMostOff;
    const ClockSample &base = drifts ? first : *least;
    at_ns_ = base.at_ns;
    offset_ns_ = base.offset_ns;
    error_ns_ = static_cast<double>(drifts ? std::max(first.error_ns, last.error_ns) : base.error_ns);
    if (drifts)
        drift_ = std::clamp(static_cast<double>(last.offset_ns - first.offset_ns) / apart, -kMost, kMost);
}

int64_t HostClock::common(int64_t ns) const {
    return ns - offset_ns_ - std::llround(drift_ * static_cast<double>(ns - at_ns_));
}

}  // namespace flx::record
