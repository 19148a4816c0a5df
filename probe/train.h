/// \file train.h
/// One train of data chunks over one link, as its sender knows it. Pure state, no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx::probe {

class Train {
  public:
    /// Starts at `now`; everything should have arrived at `end`. `paced`: the link queues what it is given, so what is
    /// in flight must be limited here. Chunks have at most `largest` bytes.
    Train(int64_t now, int64_t end, bool paced, size_t largest);

    /// Bytes that the next chunk may have at `now`; 0: none at present. Multiples of kUnit.
    [[nodiscard]] size_t next_chunk(int64_t now) const;
    void sent(size_t bytes) { sent_ += bytes; }
    /// `bytes` had arrived at `time_ns` of the receiver's clock. Old and doubtful reports are ignored.
    void report(uint64_t bytes, int64_t time_ns);

    [[nodiscard]] uint64_t total_sent() const { return sent_; }
    [[nodiscard]] uint64_t total_reported() const { return curve_.empty() ? 0 : curve_.back().bytes; }
    [[nodiscard]] int64_t end() const { return end_; }
    /// Bytes per nanosecond over the later half of the time; 0: not known.
    [[nodiscard]] double rate() const;

    static constexpr size_t kUnit = 64;  ///< sizes are multiples of this
    static constexpr size_t kFirstFlight =
        65536;  ///< may be in flight before anything is known: 50 ms of a 10 Mbit/s rail

  private:
    struct Point {
        int64_t time_ns;
        uint64_t bytes;
    };
    int64_t end_;
    bool paced_;
    size_t largest_;
    uint64_t sent_ = 0;
    std::vector<Point> curve_;
};

}  // namespace flx::probe
