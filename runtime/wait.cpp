#include "wait.h"

#include <ctime>

namespace flx {

Status Waiter::pause_long() {
    constexpr int kTurnsPerProgress = 16;
    const int turn = turns_ - policy_.spins;
    if (turn == 1)
        began_ns_ = 0;
    sched_yield();
    if (turn % kTurnsPerProgress != 0)
        return {};
    watch_.progress();
    const int64_t now = now_ns();
    if (began_ns_ == 0) {
        began_ns_ = now;
        checked_ns_ = now;
    }
    const int64_t waited = now - began_ns_;
    if (waited > policy_.sleep_after_ns) {
        const timespec nap{0, policy_.sleep_ns};
        nanosleep(&nap, nullptr);
        --turns_;  // Asleep, every turn is worth a look at the program's traffic.
    }
    if (now - checked_ns_ < policy_.check_ns)
        return {};
    checked_ns_ = now;
    return watch_.check(waited);
}

}  // namespace flx
