/// \file link_cost.h
/// What a sample says of a link's rate, for the parts of the controller.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/shares/controller.h"

namespace flx {

inline constexpr uint64_t kLearnBytes = 64 << 10;  // a sample of so many bytes always counts
inline constexpr uint64_t kLeastBytes = 4 << 10;   // and one of fewer than these never
inline constexpr double kLearnLatencies = 4;       // between them: where busy for so many latencies

// Whatever is measured or told, sums and products of rates and times stay finite.
inline constexpr double kMostRate = 1e6, kLeastRate = 1e-6;  // bytes per ns

/// Whether it says anything of the rate.
inline bool shows_rate(const LinkSample &sample, double latency) {
    return sample.busy_ns != 0 && sample.bytes >= kLeastBytes &&
           (sample.bytes >= kLearnBytes || static_cast<double>(sample.busy_ns) >= kLearnLatencies * latency);
}

/// ns per byte beyond the latency, which would make a link with a small share look slow. Where latency is most of the
/// time, what is left is noise: a quarter of the time is the floor. Bytes and time are not 0.
inline double cost_of(const LinkSample &sample, double latency) {
    const auto busy = static_cast<double>(sample.busy_ns);
    const double cost = std::max(busy - latency, 0.25 * busy) / static_cast<double>(sample.bytes);
    return std::clamp(cost, 1 / kMostRate, 1 / kLeastRate);
}

}  // namespace flx
