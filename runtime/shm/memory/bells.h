/// \file bells.h
/// Sleep and wake-up between ranks of one host, by futexes in shared memory. Whoever has waited for long sleeps;
/// whoever shows others something rings, which is one load while nobody sleeps.
///
/// Between showing and that load there is no fence, as it would cost more than the showing: a rank that falls asleep in
/// the same few nanoseconds may miss the bell, and sleeps for its time. So times are short.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flx::shm {

class Bells {
  public:
    static size_t bytes(int ranks);

    /// `memory`: bytes(ranks) of the segment, zeroed, aligned to a cache line; the same on all ranks.
    Bells(std::byte *memory, int rank, int ranks);

    /// Wakes all who sleep; after something was shown.
    void ring() {
        if (sleepers_->load(std::memory_order_relaxed) != 0)
            wake();
    }

    // One after the other: arm, look whether what is awaited is there, then sleep or disarm.
    void arm();
    void disarm();
    /// Sleeps until a ring since arm(), or for `ns`.
    void sleep(int64_t ns);

  private:
    struct Bell;
    [[nodiscard]] Bell &bell(int rank) const;
    void wake();
    /// Whether it was asleep: whoever sees that counts it out.
    bool end_sleep(Bell &bell);

    std::byte *memory_;
    std::atomic<uint32_t> *sleepers_;
    int rank_;
    int ranks_;
    uint32_t armed_at_ = 0;
};

}  // namespace flx::shm
