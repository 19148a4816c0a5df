/// \file progress.h
/// The optional thread that moves non-blocking operations while the program computes (FLX_PROGRESS_THREAD). One for the
/// process; it sleeps while no communicator has anything under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/process/movable.h"

namespace flx {

class ProgressThread {
  public:
    /// The process's one: started by the first that asks, ends with the last that keeps it. Thread-safe.
    static std::shared_ptr<ProgressThread> shared();
    ProgressThread();
    ~ProgressThread();
    ProgressThread(const ProgressThread &) = delete;
    ProgressThread &operator=(const ProgressThread &) = delete;

    void add(Movable &comm);
    /// The thread does not touch it any more. Not while its lock is held.
    void remove(Movable &comm);
    /// Something is under way on one of them. A few nanoseconds where the thread is awake. `large`: to begin it takes
    /// long, so the thread does not take the core of who calls this, but waits for another one, or for its turn.
    void wake(bool large);

  private:
    void run();
    [[nodiscard]] bool busy() const;

    std::mutex mutex_;  ///< of the list; held during a turn
    std::condition_variable woken_;
    std::vector<Movable *> comms_;
    bool ends_ = false;
    std::atomic<int> sleeps_{0};
    const bool ordinary_;  ///< scheduled as most threads are: only then does a large operation change how
    std::thread thread_;
};

}  // namespace flx
