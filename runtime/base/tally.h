/// \file tally.h
/// A count that threads add to on the path of every operation. A locked instruction there would wait until what was
/// just written for other cores has reached them, which takes longer than a small operation; so each thread has a place
/// of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flx {

class Tally {
  public:
    /// Any thread; wait-free, a few nanoseconds.
    void add(uint64_t number) {
        const size_t place = place_of_thread();
        std::atomic<uint64_t> &count = counts_[place].count;
        if (place == kShared)
            count.fetch_add(number, std::memory_order_relaxed);
        else
            count.store(count.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
    }
    /// Of all threads, also those that ended. Modulo 2^64.
    [[nodiscard]] uint64_t sum() const {
        uint64_t sum = 0;
        for (const Count &each : counts_)
            sum += each.count.load(std::memory_order_relaxed);
        return sum;
    }

    static constexpr size_t kOwn = 16;       ///< threads with a place of their own at a time,
    static constexpr size_t kShared = kOwn;  ///< and the place of all others

  private:
    struct alignas(64) Count {
        std::atomic<uint64_t> count{0};
    };

    /// This thread's, in every tally, until it ends.
    static size_t place_of_thread() { return place_ != kNone ? place_ : take_place(); }
    static size_t take_place();

    static constexpr size_t kNone = kShared + 1;
    struct Owner;
    // Apart from its owner, so that to look at it needs no check. Not at a fixed distance from the thread's own memory:
    // CUDA's runtime has a page for each thread, for which a library that is loaded late finds no room there.
    static constinit thread_local size_t place_;

    std::array<Count, kOwn + 1> counts_;
};

}  // namespace flx
