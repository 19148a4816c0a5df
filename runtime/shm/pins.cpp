#include "pins.h"

#include <algorithm>

#include "pages.h"
#include "telemetry.h"

namespace flx::shm {

bool Pins::covers(const Range &range) const {
    return std::ranges::any_of(
        pinned_, [&](const Range &pinned) { return pinned.begin <= range.begin && range.end <= pinned.end; });
}

void Pins::drop() {
    for (const Range &pinned : pinned_)
        unpin(pinned);
    pinned_.clear();
}

/// Together with what it overlaps, which no two pins may have in common.
void Pins::cover(std::span<const Range> ranges) {
    const uint64_t page = page_bytes();
    for (const Range &range : ranges) {
        if (covers(range))
            continue;
        Range whole{range.begin / page * page, (range.end + page - 1) / page * page};
        for (auto pinned = pinned_.begin(); pinned != pinned_.end();) {
            if (pinned->end < whole.begin || whole.end < pinned->begin) {
                ++pinned;
                continue;
            }
            whole = {std::min(whole.begin, pinned->begin), std::max(whole.end, pinned->end)};
            unpin(*pinned);
            pinned_.erase(pinned);
            pinned = pinned_.begin();
        }
        Telemetry::count(telemetry().registrations);
        if (!pin(whole)) {
            refused_ = true;
            return;
        }
        pinned_.push_back(whole);
    }
}

bool Pins::hold(std::span<const Range> ranges, uint32_t freed) {
    const auto guard = lock_counted(mutex_);
    if (refused_)
        return false;
    if (static_cast<int32_t>(freed - freed_) > 0) {
        if (users_ != 0)
            return false;
        drop();
        freed_ = freed;
    }
    if (!std::ranges::all_of(ranges, [&](const Range &range) { return covers(range); })) {
        if (users_ != 0 || ++asked_ < kAsksBefore)
            return false;
        asked_ = 0;
        cover(ranges);
        return false;
    }
    ++users_;
    return true;
}

void Pins::release() {
    const auto guard = lock_counted(mutex_);
    --users_;
}

}  // namespace flx::shm
