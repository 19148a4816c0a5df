#include "train.h"

#include <algorithm>

namespace flx::probe {
namespace {

constexpr size_t kSmallestChunk = 4096;

}  // namespace

Train::Train(int64_t now, int64_t end, bool paced, size_t largest)
    : end_(std::max(now, end)), paced_(paced), largest_(std::max(kUnit, largest / kUnit * kUnit)) {
    curve_.reserve(256);
}

size_t Train::next_chunk(int64_t now) const {
    if (now >= end_)
        return 0;
    if (!paced_)
        return largest_;
    const uint64_t reported = total_reported();
    const uint64_t in_flight = sent_ - reported;
    // Small chunks at first, so that a slow link shows its rate early.
    const size_t wish = std::min<size_t>(largest_, std::max<size_t>(kSmallestChunk, reported / 8 / kUnit * kUnit));
    double allowed = static_cast<double>(std::max<uint64_t>(kFirstFlight, 2 * reported));
    if (const double known = rate(); known > 0)
        allowed = std::min(allowed, known * static_cast<double>(end_ - now));
    return static_cast<double>(in_flight + wish) <= allowed ? wish : 0;
}

void Train::report(uint64_t bytes, int64_t time_ns) {
    if (bytes > sent_ || (!curve_.empty() && (bytes <= curve_.back().bytes || time_ns < curve_.back().time_ns)))
        return;
    curve_.push_back({time_ns, bytes});
}

double Train::rate() const {
    if (curve_.size() < 2)
        return 0;
    const Point &last = curve_.back();
    const int64_t middle = curve_.front().time_ns + (last.time_ns - curve_.front().time_ns) / 2;
    // The last point of the earlier half, so that a curve of two points has a slope too.
    auto from = std::upper_bound(curve_.begin(), curve_.end() - 1, middle,
                                 [](int64_t time, const Point &point) { return time < point.time_ns; });
    if (from != curve_.begin())
        --from;
    const int64_t span = last.time_ns - from->time_ns;
    return span > 0 ? static_cast<double>(last.bytes - from->bytes) / static_cast<double>(span) : 0;
}

}  // namespace flx::probe
