/// \file guard.h
/// A thread that moves the rails while the program is not inside FLX, so that a peer which waits for an
/// acknowledgement, or sends again what a lost rail took, need not wait until this process calls FLX next. It sleeps;
/// only while something is unacknowledged or a rail is lost does it wake, 20 times a second, and when a peer's word
/// comes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <thread>

#include "runtime/base/status.h"
#include "ucx_glue/rails.h"

namespace flx {

class Guard {
  public:
    /// `rails` must outlive it.
    static Status start(ucx::Rails &rails, std::unique_ptr<Guard> &result);
    ~Guard();
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

    /// There is something to do if the program does not do it itself. A system call where the guard sleeps, else an
    /// atomic load. Any thread.
    void stay_up() {
        if (!up_.load(std::memory_order_relaxed) && !up_.exchange(true))
            signal();
    }
    /// A word came, which is not to wait.
    void hurry() {
        hurry_ = true;
        up_ = true;
        signal();
    }

  private:
    Guard(ucx::Rails &rails, int event) : rails_(rails), event_(event) {}
    void watch();
    void signal() const;

    ucx::Rails &rails_;
    const int event_;
    pid_t process_ = 0;
    std::atomic<bool> up_{false};  // does not sleep longer than a nap
    std::atomic<bool> hurry_{false};
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

}  // namespace flx
