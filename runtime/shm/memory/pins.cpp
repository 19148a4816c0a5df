#include "runtime/shm/memory/pins.h"

#include <algorithm>

#include "runtime/base/counters.h"
#include "runtime/base/pages.h"

namespace flx::shm {

bool Pins::covers(std::span<const Range> ranges) const {
    return std::ranges::all_of(ranges, [&](const Range &range) {
        return std::ranges::any_of(
            pinned_, [&](const Range &pinned) { return pinned.begin <= range.begin && range.end <= pinned.end; });
    });
}

void Pins::drop() {
    for (const Range &pinned : pinned_)
        unpin(pinned);
    pinned_.clear();
}

/// False: some of what is pinned may be others' by now, and is held.
bool Pins::renew(uint32_t freed) {
    if (pinned_.empty()) {
        freed_ = freed;
        return true;
    }
    if (static_cast<int32_t>(freed - freed_) <= 0)
        return true;
    if (users_ != 0)
        return false;
    drop();
    freed_ = freed;
    return true;
}

/// Together with what it overlaps, which no two pins may have in common; not if that is held.
void Pins::cover(const Range &range) {
    const uint64_t page = page_bytes();
    Range whole{range.begin / page * page, (range.end + page - 1) / page * page};
    const auto touches = [&](const Range &pinned) { return pinned.begin <= whole.end && whole.begin <= pinned.end; };
    while (true) {
        const auto pinned = std::ranges::find_if(pinned_, touches);
        if (pinned == pinned_.end())
            break;
        if (users_ != 0)
            return;
        whole = {std::min(whole.begin, pinned->begin), std::max(whole.end, pinned->end)};
        unpin(*pinned);
        pinned_.erase(pinned);
    }
    Telemetry::count(telemetry().registrations);
    if (pin(whole))
        pinned_.push_back(whole);
    else
        refused_ = true;
}

bool Pins::ask(std::span<const Range> ranges, uint32_t freed) {
    const auto guard = lock_counted(mutex_);
    if (refused_ || !renew(freed))
        return false;
    if (covers(ranges))
        return true;
    if (++asked_ < kAsksBefore)
        return false;
    asked_ = 0;
    for (const Range &range : ranges)
        if (!refused_ && !covers({&range, 1}))
            cover(range);
    return false;
}

bool Pins::hold(std::span<const Range> ranges, uint32_t freed) {
    const auto guard = lock_counted(mutex_);
    if (refused_ || !renew(freed) || !covers(ranges))
        return false;
    ++users_;
    return true;
}

void Pins::release() {
    const auto guard = lock_counted(mutex_);
    --users_;
}

void Pins::given_back(uint32_t freed) {
    const auto guard = lock_counted(mutex_);
    renew(freed);
}

}  // namespace flx::shm
