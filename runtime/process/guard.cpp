#include "runtime/process/guard.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "runtime/base/own_thread.h"

namespace flx {

namespace {

constexpr int kNapMs = 50;  // after a call that says nothing else

}  // namespace

Status Guard::start(ucx::Rails &rails, std::unique_ptr<Guard> &result) {
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0)
        return fail(Fault::no_descriptor, "cannot open an event descriptor for the rails' guard: {}",
                    std::strerror(errno));
    std::unique_ptr<Guard> guard(new Guard(rails, event));
    guard->process_ = getpid();
    try {
        guard->thread_ = own_thread([self = guard.get()] { self->watch(); });
    } catch (const std::system_error &error) {
        return fail(Fault::no_thread, "cannot start the rails' guard thread: {}", error.what());
    }
    result = std::move(guard);
    return {};
}

Guard::~Guard() {
    if (thread_.joinable() && getpid() != process_) {  // a forked child has no such thread
        thread_.detach();
    } else if (thread_.joinable()) {
        ending_ = true;
        signal();
        thread_.join();
    }
    close(event_);
}

void Guard::signal() const {
    const uint64_t one = 1;
    while (write(event_, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void Guard::watch() {
    pthread_setname_np(pthread_self(), "flx-guard");
    int nap_ms = kNapMs;
    while (!ending_) {
        pollfd event{event_, POLLIN, 0};
        const int ready = poll(&event, 1, up_ ? nap_ms : -1);
        uint64_t count = 0;
        if (ready > 0 && (event.revents & POLLIN) != 0 && read(event_, &count, sizeof count) < 0)
            continue;
        if (ending_)
            return;
        if (ready > 0 && !hurry_.exchange(false))
            continue;  // to be up: the program may do what there is to do during the nap
        // What comes between the last look and lying down would find the guard up and not signal: look again.
        nap_ms = rails_.guard();
        if (nap_ms == 0) {
            up_ = false;
            nap_ms = rails_.guard();
            if (nap_ms != 0)
                up_ = true;
        }
        if (nap_ms == 0)
            nap_ms = kNapMs;
    }
}

}  // namespace flx
