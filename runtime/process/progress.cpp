#include "runtime/process/progress.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "runtime/base/counters.h"
#include "runtime/base/own_thread.h"
#include "runtime/link/of_this_process.h"

namespace flx {

std::shared_ptr<ProgressThread> ProgressThread::shared() {
    struct Only {
        std::mutex mutex;
        std::weak_ptr<ProgressThread> thread;
    };
    auto &only = of_this_process<Only>();
    const std::lock_guard guard(only.mutex);
    std::shared_ptr<ProgressThread> thread = only.thread.lock();
    if (!thread) {
        thread = std::make_shared<ProgressThread>();
        only.thread = thread;
    }
    return thread;
}

/// The thread takes over the policy of who starts it.
ProgressThread::ProgressThread()
    : ordinary_(sched_getscheduler(0) == SCHED_OTHER), thread_(own_thread([this] { run(); })) {}

ProgressThread::~ProgressThread() {
    {
        const std::lock_guard guard(mutex_);
        ends_ = true;
    }
    woken_.notify_all();
    thread_.join();
}

void ProgressThread::add(Movable &comm) {
    const std::lock_guard guard(mutex_);
    comms_.push_back(&comm);
}

void ProgressThread::remove(Movable &comm) {
    const std::lock_guard guard(mutex_);
    std::erase(comms_, &comm);
}

/// What is under way was noted before. Both sides change `sleeps_`, one after the other: either this sees the thread
/// asleep, or the thread, whose change comes after, sees what is under way.
void ProgressThread::wake(bool large) {
    if (sleeps_.fetch_add(0, std::memory_order_acq_rel) == 0)
        return;
    const sched_param none{};
    if (large && ordinary_)  // one of SCHED_BATCH that wakes takes nobody's core
        pthread_setschedparam(thread_.native_handle(), SCHED_BATCH, &none);
    const auto guard = lock_counted(mutex_);
    woken_.notify_all();
}

bool ProgressThread::busy() const {
    return std::any_of(comms_.begin(), comms_.end(), [](const Movable *comm) { return comm->busy(); });
}

/// Where nothing moves it naps, at first for a moment: a rank that computes needs the core, and one that is at the end
/// of a fast link does not wait long.
void ProgressThread::run() {
    using std::chrono::microseconds;
    constexpr microseconds kShortest{20};
    constexpr microseconds kLongest{200};
    microseconds nap = kShortest;
    std::unique_lock lock(mutex_);
    while (!ends_) {
        sleeps_.exchange(1, std::memory_order_acq_rel);
        bool slept = false;
        while (!ends_ && !busy()) {
            slept = true;
            woken_.wait(lock);
        }
        sleeps_.store(0, std::memory_order_relaxed);
        if (slept && !ends_) {
            const sched_param none{};
            if (ordinary_)
                pthread_setschedparam(pthread_self(), SCHED_OTHER, &none);
            nap = kShortest;
        }
        bool moved = false;
        for (Movable *comm : comms_)
            if (comm->busy())
                moved |= comm->move_in_thread();
        nap = moved ? kShortest : std::min(2 * nap, kLongest);
        lock.unlock();
        if (moved)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(nap);
        lock.lock();
    }
}

}  // namespace flx
