#include "runtime/base/tally.h"

namespace flx {

constinit std::array<std::atomic<uintptr_t>, Tally::kOwn> Tally::owners_{};

namespace {

constinit thread_local bool ended = false;

}  // namespace

/// A place's owner gives it back when its thread ends. The order says that what it added comes before what the next one
/// does. What other objects of the thread still add after that goes to the shared place.
struct Tally::Owner {
    Owner() = default;
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    ~Owner() {
        ended = true;
        if (place != kShared)
            owners_[place].store(0, std::memory_order_release);
    }
    size_t place = kShared;
};

bool Tally::claim(size_t place, uintptr_t self) {
    uintptr_t nobody = 0;
    if (ended || owners_[place].load(std::memory_order_relaxed) != nobody)
        return false;
    thread_local Owner owner;
    if (!owners_[place].compare_exchange_strong(nobody, self, std::memory_order_acquire))
        return false;
    owner.place = place;
    return true;
}

void Tally::add_first(size_t place, uintptr_t self, uint64_t number) {
    counts_[claim(place, self) ? place : kShared].count.fetch_add(number, std::memory_order_relaxed);
}

}  // namespace flx
