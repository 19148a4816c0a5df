#include "runtime/process/outside_waits.h"

#include <algorithm>

namespace flx {

OutsideWaits &OutsideWaits::of_process() {
    static auto *waits = new OutsideWaits;  // MPI may still call while the process ends
    return *waits;
}

void OutsideWaits::add(Board &board) {
    const std::lock_guard lock(mutex_);
    boards_.push_back(&board);
    turns_ += board.outside_turns();
}

void OutsideWaits::remove(const Board &board) {
    const std::lock_guard lock(mutex_);
    if (std::erase(boards_, &board) != 0)
        turns_ -= board.outside_turns();
}

void OutsideWaits::note() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    for (size_t i = 0; lock && i < std::min(kAtOnce, boards_.size()); ++i)
        boards_[next_++ % boards_.size()]->add_outside_turn();
}

bool OutsideWaits::seen(int64_t now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock)
        return seen_.load(std::memory_order_relaxed);
    if (now - asked_ns_ < kAskNs)
        return seen_.load(std::memory_order_relaxed);
    const bool first = now - asked_ns_ > kHoldNs;  // what came since it was last asked may be long ago
    asked_ns_ = now;
    uint64_t turns = 0;
    for (const Board *board : boards_)
        turns += board->outside_turns();
    if (turns != turns_ && !first)
        changed_ns_ = now;
    turns_ = turns;
    const bool lately = now - changed_ns_ < kHoldNs;
    seen_.store(lately, std::memory_order_relaxed);
    return lately;
}

}  // namespace flx
