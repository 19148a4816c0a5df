/// \file own_thread.h
/// Threads of FLX's own in somebody else's program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace flx {

/// All signals of the calling thread are blocked while it lives.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

  private:
    sigset_t before_;
};

/// Starts a thread in which the program's signal handlers never run, and that takes none that it waits for: it inherits
/// a mask that blocks every signal. Throws std::system_error where threads are short.
template <typename Body>
std::thread own_thread(Body &&body) {
    const SignalsBlocked blocked;
    return std::thread(std::forward<Body>(body));
}

}  // namespace flx
