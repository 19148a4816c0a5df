/// \file meetings.h
/// Puts the calls of several ranks together that are one call of their communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace flx::report {

/// One rank's part in a call.
struct Arrival {
    int32_t rank = 0;  ///< an index that the caller gives
    double entered_us = 0;
    double left_us = 0;
};

/// One call on one communicator.
struct Meeting {
    uint32_t communicator = 0;
    uint64_t number = 0;
    size_t call_class = 0;
    double bytes = 0;
    std::vector<Arrival> arrivals;
};

/// What follows from who came when.
struct Imbalance {
    double first_us = 0;    ///< the first entry
    double spread_us = 0;   ///< from the first entry to the last
    double after_us = 0;    ///< from the last entry to the last return
    double longest_us = 0;  ///< that a rank was in the call
    int32_t last_rank = 0;  ///< that entered
    double early_us = 0;    ///< that the others were in the call before that, added up
};

[[nodiscard]] Imbalance imbalance_of(const Meeting &meeting);
/// How long a rank was in a call before the one that entered it last, at `last_us`; a rank need not wait for that.
[[nodiscard]] double early_us(const Arrival &arrival, double last_us);

class Meetings {
  public:
    using Take = std::function<void(const Meeting &)>;

    /// Calls are handed to `take` when all ranks are there. Of those that wait for ranks at most `most` arrivals are
    /// kept: before there are more, each second call is dropped, by its number, and so on.
    Meetings(size_t most, Take take) : most_(most), take_(std::move(take)) {}

    /// A communicator of `size` ranks; 0: it is not known, and the call is kept until finish().
    void add(uint32_t communicator, uint64_t number, size_t size, size_t call_class, double bytes, Arrival arrival);
    /// Hands out those whose number of ranks is not known and that at least two ranks made. Those that miss ranks go to
    /// `leave`.
    void finish(const Take &leave);
    /// Only calls whose numbers are multiples of this were put together: a power of two.
    [[nodiscard]] uint64_t stride() const { return stride_; }

  private:
    struct Key {
        uint32_t communicator;
        uint64_t number;
        bool operator==(const Key &) const = default;
    };
    struct Hash {
        size_t operator()(const Key &key) const {
            // The multiplier of Fibonacci hashing spreads numbers that follow each other.
            return static_cast<size_t>((key.number ^ (uint64_t{key.communicator} << 40)) * 0x9E3779B97F4A7C15ULL);
        }
    };
    struct Open {
        Meeting meeting;
        size_t size = 0;
    };
    void thin_out();

    size_t most_;
    Take take_;
    std::unordered_map<Key, Open, Hash> open_;
    size_t arrivals_ = 0;
    uint64_t stride_ = 1;
};

}  // namespace flx::report
