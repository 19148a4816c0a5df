#include "tally.h"

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
size_t take_place() {
    uint32_t free = free_places().load(std::memory_order_relaxed);
    while (free != 0)
        if (free_places().compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire))
            return static_cast<size_t>(std::countr_zero(free));
    return Tally::kShared;
}

constexpr size_t kNone = Tally::kShared + 1;
// Apart from its owner, so that to look at it needs no check; at a fixed distance from the thread's own memory, where
// eight bytes are also left for a library that is loaded later.
[[gnu::tls_model("initial-exec")]] thread_local size_t place = kNone;

struct Owner {
    Owner() { place = take_place(); }
    ~Owner() {
        if (place != Tally::kShared)
            free_places().fetch_or(1U << place, std::memory_order_release);
        place = Tally::kShared;  // for what other objects of the thread still do
    }
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
};

}  // namespace

size_t Tally::place_of_thread() {
    if (place == kNone)
        thread_local const Owner owner;
    return place;
}

}  // namespace flx
