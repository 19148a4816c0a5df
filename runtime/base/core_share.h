/// \file core_share.h
/// Whether others want the core that a thread runs on: ranks of other jobs, other programs, hosts that are containers
/// on one machine. Which ranks share a host's cores is known beforehand (probe/cpus.h); this is seen at run time, from
/// how long the kernel let the thread wait for a core. Linux says so in /proc/thread-self/schedstat.
///
/// Who they are makes a difference to a wait of microseconds. Ranks that wait, too, give the core back in a moment: to
/// spin keeps them from what this rank waits for. A program that computes keeps it for as long as the kernel lets it,
/// some milliseconds: a rank that yields to it at every wait would lose as much each time.
#pragma once

#include <cstdint>

namespace flx {

enum class CoreUse {
    alone,
    in_turns,  ///< others want the core, and give it back in a moment
    contested  ///< others want it, and keep it
};

/// What to make of a thread's times, without a clock or file of its own. One thread.
class CoreShare {
  public:
    /// Totals of the thread so far, all of which only grow: it ran, it could have run but waited for a core, and how
    /// often it was given one. Judged over stretches in which it wanted to run for kStretchNs, what it slept left out.
    void add(int64_t ran_ns, int64_t waited_ns, int64_t turns);
    /// Not alone from the first stretch in which it waited for more than kShared of the time that it wanted to run,
    /// until kCalmStretches in a row in which it waited for less than kCalm. In turns from one in which it waited for
    /// more than kInTurns, and for less than kMomentNs each time, to one in which it waited for less than kShared, or
    /// longer each time: who yields at every wait, and should not, loses more than who does not, and should.
    [[nodiscard]] CoreUse use() const {
        return !shared_ ? CoreUse::alone : in_turns_ ? CoreUse::in_turns : CoreUse::contested;
    }

    static constexpr int64_t kStretchNs = 20'000'000;
    static constexpr double kShared = 1.0 / 16;
    static constexpr double kInTurns = 1.0 / 4;
    static constexpr double kCalm = 1.0 / 64;
    static constexpr int kCalmStretches = 16;
    static constexpr int64_t kMomentNs = 1'000'000;  ///< schedulers let who computes run for longer, mostly

  private:
    bool begun_ = false;
    bool shared_ = false;
    bool in_turns_ = false;
    int calm_ = 0;
    int64_t ran_ns_ = 0;
    int64_t waited_ns_ = 0;
    int64_t turns_ = 0;
};

/// Whether others want the calling thread's core, as of the last 10 ms or so. Alone where the kernel does not tell.
/// Reads the clock; every 10 ms also a file of /proc, for about a microsecond. Any thread, each for itself.
CoreUse core_use();

}  // namespace flx
