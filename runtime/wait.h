/// \file wait.h
/// How a rank waits: it spins for a moment where it has a core to itself, then yields, then sleeps a little; and it
/// looks up now and then whether what it waits for can still come.
#pragma once

#include <sched.h>

#include <cstdint>

#include "status.h"
#include "telemetry.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flx {

inline void cpu_relax() {
#if defined(__x86_64__)
    _mm_pause();
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
    /// Lets the program's own traffic move. Called often.
    virtual void progress() = 0;
    /// Called every few milliseconds of a long wait, `waited_ns` after its beginning: may the wait go on?
    virtual Status check(int64_t waited_ns) = 0;
};

struct WaitPolicy {
    int spins = 2000;  ///< pauses before the first yield; 0 where ranks share cores
    int64_t sleep_after_ns = 5'000'000;
    int64_t sleep_ns = 50'000;
    int64_t check_ns = 5'000'000;
};

/// One wait. `pause()` each time that a look found nothing; `moved()` when something came.
class Waiter {
  public:
    Waiter(const WaitPolicy &policy, Watch &watch) : policy_(policy), watch_(watch) {}

    void moved() { turns_ = 0; }

    /// Like pause(), where what is awaited takes milliseconds at least: naps after a few turns, since on a busy machine
    /// one that sleeps gets a core when it wakes, and one that yields does not when it needs it.
    Status pause_at_ease() {
        constexpr int kTurns = 4;
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
    Status nap();
    Status look_up();

    const WaitPolicy &policy_;
    Watch &watch_;
    int turns_ = 0;
    int64_t began_ns_ = 0;
    int64_t checked_ns_ = 0;
};

}  // namespace flx
