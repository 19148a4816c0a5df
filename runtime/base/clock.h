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

/// The millisecond of a time, to be sent to another process and back.
inline uint32_t stamp_of(int64_t ns) {
    return static_cast<uint32_t>(ns / kMs);
}
/// The beginning of the millisecond that has this stamp, the last one before `now`.
inline int64_t time_of(uint32_t stamp, int64_t now) {
    return (now / kMs - static_cast<uint32_t>(stamp_of(now) - stamp)) * kMs;
}

}  // namespace flx
