/// \file ticks.h
/// Clocks that take some nanoseconds to read, for what is noted at every call, the same for all processes of a host.
/// One is exact: the processor's own where that runs evenly, whatever the processor does, else CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <ctime>

#include "runtime/base/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace flx {

/// Whether ticks are the processor's.
inline bool ticks_are_tsc() {
#if defined(__x86_64__)
    static const bool even = [] {
        constexpr unsigned kPower = 0x80000007;
        constexpr unsigned kInvariant = 1U << 8;
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __get_cpuid(kPower, &a, &b, &c, &d) != 0 && (d & kInvariant) != 0;
    }();
    return even;
#else
    return false;
#endif
}

/// `tsc`: ticks_are_tsc(), which a caller keeps.
inline int64_t ticks(bool tsc) {
#if defined(__x86_64__)
    if (tsc)
        return static_cast<int64_t>(__builtin_ia32_rdtsc());
#endif
    return now_ns();
}

/// CLOCK_MONOTONIC as of the kernel's last tick, some milliseconds ago at most: a third of the time that ticks() takes.
inline int64_t last_tick_ns() {
    constexpr int64_t kNsPerS = 1'000'000'000;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * kNsPerS + now.tv_nsec;
}

/// One moment on both clocks.
struct Moment {
    int64_t ticks = 0;
    int64_t ns = 0;  ///< CLOCK_MONOTONIC
};

/// A thread may lose its core between two readings, so the closest of some count.
inline Moment moment(bool tsc) {
    constexpr int kTries = 5;
    Moment best;
    int64_t least = INT64_MAX;
    for (int i = 0; i < kTries; ++i) {
        const int64_t before = ticks(tsc);
        const int64_t ns = now_ns();
        const int64_t after = ticks(tsc);
        if (after - before < least) {
            least = after - before;
            best = {before + (after - before) / 2, ns};
        }
    }
    return best;
}

}  // namespace flx
