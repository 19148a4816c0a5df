#include "wait.h"

#include <algorithm>
#include <ctime>

namespace flx {

Status Waiter::nap() {
    // One that is woken often need not look at the program's own traffic each time.
    constexpr int64_t kProgressNs = 500'000;
    const bool woken = watch_.doze();
    if (!woken) {
        const timespec time{0, policy_.sleep_ns};
        nanosleep(&time, nullptr);
    }
    if (turns_ <= policy_.spins) {  // the count stays where pause() would begin to yield
        turns_ = policy_.spins + 1;
        began_ns_ = 0;
    }
    if (woken) {
        const int64_t now = now_ns();
        if (now - looked_ns_ < kProgressNs)
            return {};
        looked_ns_ = now;
    }
    return look_up();
}

Status Waiter::pause_long() {
    constexpr int kTurnsPerProgress = 16;
    const int turn = turns_ - policy_.spins;
    if (turn == 1) {
        began_ns_ = 0;
        sleep_ns_ = policy_.sleep_ns;
        watch_.outlasted();
    }
    if (armed_) {  // and what is awaited was still not there
        armed_ = false;
        watch_.sleep(sleep_ns_);
        sleep_ns_ = std::min(2 * sleep_ns_, policy_.most_sleep_ns);
        --turns_;
        return look_up();
    }
    sched_yield();
    if (turn % kTurnsPerProgress != 0)
        return {};
    if (began_ns_ != 0 && now_ns() - began_ns_ > policy_.sleep_after_ns) {
        --turns_;  // Asleep, every turn is worth a look at the program's traffic.
        armed_ = watch_.arm();
        if (armed_)
            return {};
        const timespec nap{0, policy_.sleep_ns};
        nanosleep(&nap, nullptr);
    }
    return look_up();
}

void Waiter::disarm() {
    armed_ = false;
    watch_.disarm();
}

/// Lets the program's traffic move, and asks now and then whether the wait may go on.
Status Waiter::look_up() {
    watch_.progress();
    const int64_t now = now_ns();
    if (began_ns_ == 0) {
        began_ns_ = now;
        checked_ns_ = now;
    }
    const int64_t waited = now - began_ns_;
    if (now - checked_ns_ < policy_.check_ns)
        return {};
    checked_ns_ = now;
    return watch_.check(waited);
}

}  // namespace flx
