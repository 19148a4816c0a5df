#include "probe/train.h"

#include <algorithm>

namespace flx::probe {
namespace {

constexpr size_t kSmallestChunk = 4096;
constexpr double kChunkNs = 0.5e6;        ///< of a link's time, in one chunk
constexpr double kRecentNs = 3e6;         ///< what a rate is seen over
constexpr double kLeastNs = 1e6;          ///< least time that it is seen over, where there is no more
constexpr double kGrowth = 0.3;           ///< of what arrived, that may be in flight at first,
constexpr double kGrowthFar = 2;          ///< and where the way is long beside a queue
constexpr int64_t kWaitedNs = 1'000'000;  ///< a queue that is none of a scheduler's
constexpr double kQueueNs = 2e6;          ///< the queue that there shall be
constexpr double kFastest = 2.5;          ///< of the rate, while there is no queue
constexpr double kCreditNs = 4e6;         ///< a sender that had no core makes up for so much
constexpr int64_t kBacklogged = 500'000;  ///< least queue that cannot run empty between two reports
constexpr int64_t kEnoughNs = 4'000'000;  ///< of time with such a queue, for a rate

}  // namespace

Train::Train(int64_t now, int64_t end, bool paced, size_t largest, int64_t round_trip_ns)
    : end_(std::max(now, end)),
      paced_(paced),
      largest_(std::max(kUnit, largest / kUnit * kUnit)),
      round_trip_ns_(round_trip_ns),
      credited_ns_(now) {
    curve_.reserve(256);
}

size_t Train::next_chunk(int64_t now) {
    if (now >= end_)
        return 0;
    if (!paced_)
        return largest_;
    const auto reported = static_cast<double>(total_reported());
    const double recent = waited_ ? fastest_ : recent_rate();
    // Small chunks at first, so that a slow link shows its rate early.
    const auto share = static_cast<size_t>(std::min(reported / 8, recent * kChunkNs)) / kUnit * kUnit;
    const size_t wish = std::min(largest_, std::max(kSmallestChunk, share));
    const double in_flight = static_cast<double>(sent_ + wish) - reported;
    if (const double known = rate(); known > 0 && in_flight > known * static_cast<double>(end_ - now))
        return 0;
    if (!waited_) {
        credited_ns_ = now;
        // What is in flight when a burst ends becomes a queue, so growth is slow but for a long way.
        const double window = reported * (round_trip_ns_ > kWaitedNs ? kGrowthFar : kGrowth);
        return in_flight <= std::max<double>(kFirstFlight, window) ? wish : 0;
    }
    const double queue = static_cast<double>(queue_ns_) / kQueueNs;
    if (sent_ == total_reported() || (queue < 1 && in_flight <= kFirstFlight))
        return wish;  // or nothing would be reported any more
    const double pace = recent * (queue < 1 ? kFastest - (kFastest - 1) * queue : std::max(0.0, 1.5 - 0.5 * queue));
    credit_ = std::min(credit_ + pace * static_cast<double>(now - credited_ns_),
                       std::max(static_cast<double>(wish), pace * kCreditNs));
    credited_ns_ = now;
    return static_cast<double>(wish) <= credit_ ? wish : 0;
}

void Train::sent(size_t bytes) {
    sent_ += bytes;
    credit_ -= static_cast<double>(bytes);
}

void Train::report(uint64_t bytes, int64_t time_ns, int64_t queue_ns) {
    if (bytes > sent_ || (!curve_.empty() && (bytes <= curve_.back().bytes || time_ns < curve_.back().time_ns)))
        return;
    if (paced_ && !curve_.empty() && queue_ns_ >= kBacklogged && queue_ns >= kBacklogged) {
        backlogged_ns_ += time_ns - curve_.back().time_ns;
        backlogged_bytes_ += bytes - curve_.back().bytes;
    }
    curve_.push_back({time_ns, bytes});
    // Twice: once may have been the receiver, which had no core.
    if (!waited_ && queue_ns_ >= kWaitedNs && queue_ns >= kWaitedNs) {
        waited_ = true;
        burst_ = curve_.size() - 1;
        credit_ = 0;
    }
    if (waited_)
        fastest_ = std::max(fastest_, recent_rate());
    queue_ns_ = queue_ns;
}

/// Over the last milliseconds; once chunks wait, without what came before. A time that is shorter counts as so long.
double Train::recent_rate() const {
    if (curve_.empty())
        return 0;
    const Point &last = curve_.back();
    const Point first = waited_ ? curve_[burst_] : Point{curve_.front().time_ns, 0};
    for (auto from = curve_.rbegin() + 1; from != curve_.rend() && from->time_ns >= first.time_ns; ++from)
        if (const auto span = static_cast<double>(last.time_ns - from->time_ns); span >= kRecentNs)
            return static_cast<double>(last.bytes - from->bytes) / span;
    return static_cast<double>(last.bytes - first.bytes) /
           std::max(kLeastNs, static_cast<double>(last.time_ns - first.time_ns));
}

double Train::rate() const {
    if (backlogged_ns_ >= kEnoughNs)
        return static_cast<double>(backlogged_bytes_) / static_cast<double>(backlogged_ns_);
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
