/// \file wait.h
/// How a rank waits: it spins for a moment where it has a core to itself, then yields, then sleeps, until it is woken
/// where it waits for ranks of its own host; and it looks up now and then whether what it waits for can still come.
/// The program's own traffic moves all the while, and nobody sleeps while a rank may wait for that.
#pragma once

#include <sched.h>

#include <cstdint>

#include "runtime/base/status.h"

namespace flx {

inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();  // <immintrin.h> is 57,000 lines for every file that waits
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// What a wait does besides passing time. Implemented by the communicator; one thread.
class Watch {
  public:
    Watch() = default;
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;
    virtual ~Watch() = default;
    /// Lets the program's own traffic move, and whatever else the process has under way. Called often.
    virtual void progress() = 0;
    /// Only the program's own traffic moves: once or several times at every turn of a wait that has lasted for a while.
    virtual void progress_outside() { progress(); }
    /// Whether ranks wait for the program's own traffic, as of `now`: they need this one awake.
    virtual bool awaited_outside(int64_t /*now*/) { return false; }
    /// The wait has lasted for longer than it may spin. Called once, before its first yield.
    virtual void outlasted() {}
    /// Called every few milliseconds of a long wait, `waited_ns` after its beginning: may the wait go on?
    virtual Status check(int64_t waited_ns) = 0;
    /// Prepares to be woken by what is awaited; false where nothing wakes. Then the wait looks once more whether it has
    /// come, and calls sleep() or disarm().
    virtual bool arm() { return false; }
    virtual void disarm() {}
    virtual void sleep(int64_t) {}
    /// Sleeps until something comes from another host, a moment at most; false: nothing wakes.
    virtual bool doze() { return false; }
};

struct WaitPolicy {
    int spins = 2000;   ///< pauses before the first yield; 0 where ranks share cores
    bool alone = true;  ///< on its core, as far as is known
    int64_t sleep_after_ns = 5'000'000;
    int64_t sleep_ns = 50'000;        ///< at first
    int64_t most_sleep_ns = 500'000;  ///< where something wakes; the program's own traffic waits for so long, too
    int64_t check_ns = 5'000'000;
};

/// One wait. `pause()` each time that a look found nothing; `moved()` when something came.
class Waiter {
  public:
    Waiter(const WaitPolicy &policy, Watch &watch) : policy_(policy), watch_(watch) {}
    ~Waiter() {
        if (armed_)
            watch_.disarm();
    }
    Waiter(const Waiter &) = delete;
    Waiter &operator=(const Waiter &) = delete;

    void moved() {
        turns_ = 0;
        if (armed_)
            disarm();
    }

    /// Like pause(), where what is awaited takes milliseconds at least: naps after a few turns, since on a busy machine
    /// one that sleeps gets a core when it wakes, and one that yields does not when it needs it.
    Status pause_at_ease() {
        constexpr int kTurns = 2;
        if (++turns_ <= kTurns) {
            cpu_relax();
            return {};
        }
        return nap();
    }

    Status pause() {
        ++turns_;
        if (turns_ <= policy_.spins) {
            cpu_relax();
            return {};
        }
        return pause_long();
    }

  private:
    Status pause_long();
    void disarm();
    Status nap();
    Status look_up(bool all);

    const WaitPolicy &policy_;
    Watch &watch_;
    int turns_ = 0;
    bool armed_ = false;
    int64_t sleep_ns_ = 0;  ///< the next sleep, where something wakes
    int64_t began_ns_ = 0;
    int64_t checked_ns_ = 0;
    int64_t seen_ns_ = 0;    ///< the time of the last look
    int64_t looked_ns_ = 0;  ///< after the last nap that something ended
};

}  // namespace flx
