/// \file pace.h
/// How fast a rail delivers to one peer, from its acknowledgements. Plain arithmetic, no clock of its own.
///
/// Acknowledgements are counted over a few milliseconds at a time. A stretch in which the rail ran out of chunks says
/// only that it is at least so fast (as in BBR: Cardwell et al., ACM Queue 14(5), 2016). Transports and processes that
/// have no core for a moment make single stretches differ by factors, nearly always downwards: the mean is a long one
/// that rises faster than it falls, and is replaced where a short one stays far from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/link/link.h"

namespace flx::ucx {

class PaceMeter {
  public:
    /// A chunk was sent, and nothing was under way before.
    void begun(int64_t now_ns) {
        last_ = now_ns;
        first_ = true;
    }

    /// `bytes` were acknowledged; `left` are still under way.
    void delivered(size_t bytes, int64_t now_ns, size_t left) {
        // Acknowledgements come in bunches, as processes get a core. A stretch goes from the end of one to the end of
        // another: what was on its way then was not counted in the first and is in the second. The first bunch itself
        // shows the latency and not the rate.
        const int64_t gap = now_ns - last_;
        if (first_ && (round_trip_ == 0 || static_cast<double>(gap) < round_trip_))
            round_trip_ = static_cast<double>(gap);
        if (first_ || (opening_ && gap < kBunchNs)) {
            opening_ = true;
            first_ = false;
            begin_stretch(now_ns);
        } else {
            opening_ = false;
            if (gap >= kBunchNs && last_ - since_ >= kStretchNs && bytes_ >= kLeastBytes)
                end_stretch();
            bytes_ += bytes;
            idle_ = idle_ || low_;
        }
        last_ = now_ns;
        low_ = static_cast<double>(left) < rate_ * kEnoughNs;
        if (left == 0 && last_ - since_ >= kStretchNs && bytes_ >= kLeastBytes)
            end_stretch();
    }

    /// Bytes per ns, a mean of late; 0: not known.
    [[nodiscard]] double rate() const { return rate_; }
    [[nodiscard]] double round_trip_ns() const { return round_trip_; }

    /// While `left` bytes in `chunks` chunks are under way, and acknowledgements were last looked for at `now_ns`: what
    /// has not come for long lowers the rate before it comes.
    [[nodiscard]] Pace at(int64_t now_ns, size_t left, uint32_t chunks) const {
        Pace pace{rate_, round_trip_};
        const auto waited = static_cast<double>(now_ns - last_) - round_trip_;
        pace.late = chunks != 0 && waited > kLateNs;
        if (pace.late)
            pace.bytes_per_ns = std::min(rate_, static_cast<double>(left) / chunks / (waited - kLateNs / 2));
        return pace;
    }

  private:
    void begin_stretch(int64_t now_ns) {
        since_ = now_ns;
        bytes_ = 0;
        idle_ = false;
    }

    void end_stretch() {
        const auto elapsed = static_cast<double>(last_ - since_);
        double seen = static_cast<double>(bytes_) / elapsed;
        // A shaper's or a switch's buffer swallows the first bytes after a pause at any speed.
        if (rate_ > 0)
            seen = std::min(seen, 2 * rate_);
        if (rate_ <= 0)
            rate_ = lately_ = seen;
        if (!idle_ || seen > rate_) {
            known_ns_ = std::min(known_ns_ + elapsed, kMemoryNs);
            const double memory = std::min(known_ns_, seen > rate_ ? kUpMemoryNs : kMemoryNs);
            rate_ += std::min(1.0, elapsed / memory) * (seen - rate_);
            lately_ += std::min(kMostWeight, elapsed / kShortMemoryNs) * (seen - lately_);
            changed_ns_ = lately_ > kChange * rate_ || rate_ > kChange * lately_ ? changed_ns_ + elapsed : 0;
            if (changed_ns_ > kBelieveNs) {
                rate_ = lately_;
                known_ns_ = kShortMemoryNs;
                changed_ns_ = 0;
            }
        }
        begin_stretch(last_);
    }

    static constexpr size_t kLeastBytes = 32 << 10;
    static constexpr int64_t kBunchNs = 100'000;
    static constexpr int64_t kStretchNs = 2'000'000;
    static constexpr double kMemoryNs = 400e6;
    static constexpr double kUpMemoryNs = 100e6;
    static constexpr double kShortMemoryNs = 20e6;
    static constexpr double kChange = 1.6;
    static constexpr double kBelieveNs = 40e6;
    static constexpr double kMostWeight = 0.5;
    static constexpr double kEnoughNs = 0.25e6;
    static constexpr double kLateNs = 30e6;

    double rate_ = 0;
    double known_ns_ = 0;  // time that the mean stands for
    double lately_ = 0;
    double changed_ns_ = 0;  // for so long it has been far from the mean
    double round_trip_ = 0;
    int64_t since_ = 0;     // the stretch's beginning
    int64_t last_ = 0;      // the last acknowledgement, or the first send
    size_t bytes_ = 0;      // acknowledged in the stretch
    bool idle_ = false;     // it had too little to do in it
    bool low_ = false;      // it has, since the last acknowledgement
    bool first_ = false;    // the next acknowledgement is the first of those under way
    bool opening_ = false;  // and its bunch goes on
};

}  // namespace flx::ucx
