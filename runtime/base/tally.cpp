#include "runtime/base/tally.h"

#include <bit>

namespace flx {

namespace {

constexpr uint32_t kAll = (1U << Tally::kOwn) - 1;

/// Places that no thread has.
std::atomic<uint32_t> &free_places() {
    static std::atomic<uint32_t> places{kAll};
    return places;
}

/// The order says that what the place's last owner added comes before what the next one does.
size_t claim_place() {
    uint32_t free = free_places().load(std::memory_order_relaxed);
    while (free != 0)
        if (free_places().compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire))
            return static_cast<size_t>(std::countr_zero(free));
    return Tally::kShared;
}

}  // namespace

constinit thread_local size_t Tally::place_ = Tally::kNone;

struct Tally::Owner {
    Owner() { place_ = claim_place(); }
    ~Owner() {
        if (place_ != kShared)
            free_places().fetch_or(1U << place_, std::memory_order_release);
        place_ = kShared;  // for what other objects of the thread still do
    }
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
};

size_t Tally::take_place() {
    thread_local const Owner owner;
    return place_;
}

}  // namespace flx
