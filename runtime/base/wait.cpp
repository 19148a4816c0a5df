#include "runtime/base/wait.h"

#include <algorithm>
#include <ctime>

#include "runtime/base/clock.h"

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
    return look_up(true);
}

/// The first turns are for what comes at once. After that each turn looks at the program's traffic, for which a rank
/// may wait that is not in FLX, as often as MPI would itself.
Status Waiter::pause_long() {
    constexpr int kFirstTurns = 15;
    constexpr int kTurnsPerRound = 16;
    constexpr int kTurnsPerYield = 8;  // where the core is this rank's
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
        return look_up(true);
    }
    if (turn <= kFirstTurns) {
        sched_yield();
        return {};
    }
    if (began_ns_ != 0 && seen_ns_ - began_ns_ > policy_.sleep_after_ns && !watch_.awaited_outside(seen_ns_)) {
        --turns_;
        armed_ = watch_.arm();
        if (armed_)
            return {};
        const timespec nap{0, policy_.sleep_ns};
        nanosleep(&nap, nullptr);
        return look_up(true);
    }
    if (!policy_.alone || turn % kTurnsPerYield == 0)
        sched_yield();
    const bool all = turn == kFirstTurns + 1;
    if (turn >= kFirstTurns + kTurnsPerRound)
        turns_ = policy_.spins + kFirstTurns;
    return look_up(all);
}

void Waiter::disarm() {
    armed_ = false;
    watch_.disarm();
}

/// Lets the program's traffic move, and `all` else, and asks now and then whether the wait may go on.
Status Waiter::look_up(bool all) {
    // Where the core is this rank's, MPI itself would do nothing else. But a look takes a microsecond, and what a short
    // wait is for would lie that long, times the looks.
    constexpr int kLooks = 8;
    constexpr int64_t kShortNs = 200'000;
    const bool often = policy_.alone && began_ns_ != 0 && seen_ns_ - began_ns_ > kShortNs;
    if (all)
        watch_.progress();
    for (int look = 0; !all && look < (often ? kLooks : 1); ++look)
        watch_.progress_outside();
    const int64_t now = now_ns();
    seen_ns_ = now;
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
