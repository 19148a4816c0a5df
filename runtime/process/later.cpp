#include "runtime/process/later.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <system_error>

#include "runtime/base/own_thread.h"

namespace flx {
namespace {

using Clock = std::chrono::steady_clock;

struct Body {
    std::function<bool()> done;
    Clock::time_point next;
    std::chrono::microseconds pause{1000};
};

// Never destroyed: the thread may outlive static objects.
struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Body> bodies;  ///< also the one that is asked right now
    bool has_thread = false;
    bool asks = false;    ///< the thread is in a body
    bool ending = false;  ///< the process
};
Queue *&only() {
    static auto *queue = new Queue;
    return queue;
}
Queue &queue() {
    return *only();
}

/// A child has neither the thread nor what bodies free, and whoever waited for the condition waits no more: it begins
/// with a new queue, and leaves the old one as it is, whose mutex it has.
void watch_forks() {
    pthread_atfork([] { queue().mutex.lock(); }, [] { queue().mutex.unlock(); }, [] { only() = new Queue; });
}

/// The thread runs code of this library, which may not be unloaded under it.
void keep_loaded() {
    Dl_info here{};
    if (dladdr(reinterpret_cast<void *>(&keep_loaded), &here) != 0 && here.dli_fname != nullptr)
        dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/// Bodies use libraries whose own handlers, which were there before, come after this one.
void end_with_process() {
    constexpr std::chrono::seconds kPatience(1);
    Queue &all = queue();
    std::unique_lock lock(all.mutex);
    all.ending = true;
    all.changed.notify_all();
    all.changed.wait_for(lock, kPatience, [&] { return !all.asks; });
}

bool ask(const std::function<bool()> &done) {
    try {
        return done();
    } catch (const std::exception &) {
        return true;
    }
}

void run() {
    constexpr std::chrono::microseconds kMost(50'000);
    Queue &all = queue();
    std::unique_lock lock(all.mutex);
    while (!all.bodies.empty() && !all.ending) {
        const auto first = std::min_element(all.bodies.begin(), all.bodies.end(),
                                            [](const Body &a, const Body &b) { return a.next < b.next; });
        if (first->next > Clock::now()) {
            all.changed.wait_until(lock, first->next);
            continue;
        }
        all.asks = true;
        lock.unlock();
        bool done = ask(first->done);
        if (done)
            first->done = nullptr;  // what it holds is freed without the lock
        lock.lock();
        all.asks = false;
        first->pause = std::min(first->pause * 5 / 4, kMost);
        first->next = Clock::now() + first->pause;
        if (done)
            all.bodies.erase(first);
        all.changed.notify_all();
    }
    all.has_thread = false;
}

}  // namespace

void do_later(std::function<bool()> done) {
    Queue &all = queue();
    const std::lock_guard lock(all.mutex);
    all.bodies.push_back({std::move(done), Clock::now()});
    all.changed.notify_all();
    if (all.has_thread)
        return;
    [[maybe_unused]] static const bool once = [] {
        keep_loaded();
        watch_forks();
        return std::atexit(end_with_process) == 0;
    }();
    try {
        own_thread(run).detach();
        all.has_thread = true;
    } catch (const std::system_error &) {
        // Threads are short: it waits for the next one that comes.
    }
}

}  // namespace flx
