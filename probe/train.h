/// \file train.h
/// One train of data chunks over one link, as its sender knows it. Pure state, no I/O.
///
/// A link shows its rate while something waits for it: before that a shaper's burst passes, or the sender's own start.
/// So a train first grows until its chunks begin to wait, and then sends as fast as they arrive, a little faster while
/// the queue is short and slower while it is long, so that it stays at about two milliseconds, or what kFirstFlight
/// takes (a set point for the delay as in LEDBAT, RFC 6817). Acknowledged windows would not do: what comes back waits
/// behind the data of the other direction, and where both directions bound what is unacknowledged, one fills its queue
/// and the other one starves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx::probe {

class Train {
  public:
    /// Starts at `now`; everything should have arrived at `end`. `paced`: the link queues what it is given, so what is
    /// in flight must be limited here. Chunks have at most `largest` bytes. `round_trip_ns` of an empty link; 0: short.
    Train(int64_t now, int64_t end, bool paced, size_t largest, int64_t round_trip_ns = 0);

    /// Bytes that the next chunk may have at `now`; 0: none at present. Multiples of kUnit.
    [[nodiscard]] size_t next_chunk(int64_t now);
    void sent(size_t bytes);
    /// `bytes` had arrived at `time_ns` of the receiver's clock, the last of them after waiting for `queue_ns` on their
    /// way. Old and doubtful reports are ignored.
    void report(uint64_t bytes, int64_t time_ns, int64_t queue_ns);

    [[nodiscard]] uint64_t total_sent() const { return sent_; }
    [[nodiscard]] uint64_t total_reported() const { return curve_.empty() ? 0 : curve_.back().bytes; }
    [[nodiscard]] int64_t end() const { return end_; }
    /// Bytes per nanosecond: what arrived while chunks waited, where that was long enough, else over the later half of
    /// the time; 0: not known.
    [[nodiscard]] double rate() const;

    static constexpr size_t kUnit = 64;  ///< sizes are multiples of this
    static constexpr size_t kFirstFlight =
        65536;  ///< may be in flight before anything is known: 50 ms of a 10 Mbit/s rail

  private:
    struct Point {
        int64_t time_ns;
        uint64_t bytes;
    };
    [[nodiscard]] double recent_rate() const;

    int64_t end_;
    bool paced_;
    size_t largest_;
    int64_t round_trip_ns_;
    uint64_t sent_ = 0;
    std::vector<Point> curve_;
    bool waited_ = false;  ///< chunks have begun to wait
    size_t burst_ = 0;     ///< points of the curve until then, less one
    /// What recent_rate() was at most since then: too much of it ends in the queue, which is seen; too little, because
    /// a sender had no core for a while, would not be.
    double fastest_ = 0;
    int64_t queue_ns_ = 0;  ///< as last reported
    double credit_ = 0;     ///< bytes that may be sent, once chunks have waited
    int64_t credited_ns_;   ///< until when there is credit
    int64_t backlogged_ns_ = 0;
    uint64_t backlogged_bytes_ = 0;
};

}  // namespace flx::probe
