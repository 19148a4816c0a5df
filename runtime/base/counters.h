/// \file counters.h
/// Process-wide counters of what the paths of collectives do besides moving data. Zero growth in the steady state.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/base/tally.h"

namespace flx {

struct Telemetry {
    Tally operations;
    std::atomic<uint64_t> allocations{0};    ///< growth of a buffer, table or pool
    std::atomic<uint64_t> registrations{0};  ///< of memory with a device, and mappings of what other ranks have
    Tally locks;                             ///< mutexes taken, by lock_counted()

    static void count(Tally &counter) { counter.add(1); }
    static void count(std::atomic<uint64_t> &counter) { counter.fetch_add(1, std::memory_order_relaxed); }
};

inline Telemetry &telemetry() {
    static Telemetry instance;
    return instance;
}

/// Counts where the vector grows.
template <typename T>
void append_counted(std::vector<T> &vector, const T &value) {
    if (vector.size() == vector.capacity())
        Telemetry::count(telemetry().allocations);
    vector.push_back(value);
}

/// Takes a mutex on the path of an operation, and counts that.
template <typename Mutex>
[[nodiscard]] std::unique_lock<Mutex> lock_counted(Mutex &mutex) {
    Telemetry::count(telemetry().locks);
    return std::unique_lock<Mutex>(mutex);
}

}  // namespace flx
