/// \file clock.h
/// The clock that programs time with.
#pragma once

#include <chrono>

namespace flx::apps {

/// Seconds since some moment; it never goes back.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace flx::apps
