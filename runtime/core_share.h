/// \file core_share.h
/// Whether others want the core that a thread runs on: ranks of other jobs, other programs, hosts that are containers
/// on one machine. Which ranks share a host's cores is known beforehand (probe/cpus.h); this is seen at run time, from
/// how long the kernel let the thread wait for a core. Linux says so in /proc/thread-self/schedstat.
#pragma once

#include <cstdint>

namespace flx {

/// What to make of a thread's times, without a clock or file of its own. One thread.
class CoreShare {
  public:
    /// Totals of the thread so far, both of which only grow: it ran, and it could have run but waited for a core.
    /// Judged over stretches in which it wanted to run for kStretchNs, what it slept left out.
    void add(int64_t ran_ns, int64_t waited_ns);
    /// From the first stretch in which it waited for more than kShared of the time that it wanted to run, until
    /// kCalmStretches in a row in which it waited for less than kCalm.
    [[nodiscard]] bool shared() const { return shared_; }

    static constexpr int64_t kStretchNs = 20'000'000;
    static constexpr double kShared = 1.0 / 16;
    static constexpr double kCalm = 1.0 / 64;
    static constexpr int kCalmStretches = 16;

  private:
    bool begun_ = false;
    bool shared_ = false;
    int calm_ = 0;
    int64_t ran_ns_ = 0;
    int64_t waited_ns_ = 0;
};

/// Whether others want the calling thread's core, as of the last 10 ms or so. False where the kernel does not tell.
/// Reads the clock; every 10 ms also a file of /proc, for about a microsecond. Any thread, each for itself.
bool shares_core();

}  // namespace flx
