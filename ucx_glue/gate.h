/// \file gate.h
/// Who is in the rails of this process: one thread at a time. Where calls may come from several threads it is a mutex.
/// Where the program has one thread, there is only the guard thread besides, which moves the rails while the program
/// computes: then it is one atomic exchange for a whole operation, and what the program calls in between costs nothing.
#pragma once

#include <sched.h>

#include <atomic>
#include <mutex>

#include "runtime/base/counters.h"

namespace flx::ucx {

class Gate {
  public:
    explicit Gate(bool threads) : threads_(threads) {}

    void lock() {
        if (threads_) {
            Telemetry::count(telemetry().locks);
            mutex_.lock();
        } else if (depth_++ == 0) {
            while (held_.exchange(true, std::memory_order_acquire))
                sched_yield();
        }
    }
    void unlock() {
        if (threads_)
            mutex_.unlock();
        else if (--depth_ == 0)
            held_.store(false, std::memory_order_release);
    }

    /// The program begins or ends an operation: with one thread, the rails are its own until then.
    void enter() {
        if (!threads_)
            lock();
    }
    void leave() {
        if (!threads_)
            unlock();
    }

    /// Enters the gate in the guard thread, which must not use lock(). Does not wait for an operation to end.
    bool enter_as_guard() {
        if (threads_) {
            mutex_.lock();
            return true;
        }
        return !held_.exchange(true, std::memory_order_acquire);
    }
    void leave_as_guard() {
        if (threads_)
            mutex_.unlock();
        else
            held_.store(false, std::memory_order_release);
    }

  private:
    const bool threads_;
    std::mutex mutex_;
    alignas(64) std::atomic<bool> held_{false};
    int depth_ = 0;  // of the program's one thread
};

}  // namespace flx::ucx
