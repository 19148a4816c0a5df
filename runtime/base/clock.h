/// \file clock.h
/// The clock of everything that waits, measures or gives up. The same for all processes of a host.
#pragma once

#include <cstdint>
#include <ctime>

namespace flx {

/// A millisecond in nanoseconds.
inline constexpr int64_t kMs = 1'000'000;

/// CLOCK_MONOTONIC in nanoseconds.
inline int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

}  // namespace flx
