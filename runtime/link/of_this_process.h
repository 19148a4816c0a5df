/// \file of_this_process.h
/// What there is once in a process, and anew in a child that was forked: it has neither its parent's threads nor its
/// connections.
#pragma once

#include <unistd.h>

#include <atomic>

namespace flx {

/// Made when it is first asked for. It ends with the process, or when its library is unloaded; a child leaves its
/// parent's as it is.
template <typename Object>
Object &of_this_process() {
    struct Made {
        pid_t process = getpid();
        Object object;
    };
    static std::atomic<Made *> made = nullptr;
    static const struct End {
        ~End() {
            Made *const last = made.load();
            if (last != nullptr && last->process == getpid())
                delete last;
            made = nullptr;  // who comes later gets another
        }
    } end;
    Made *there = made.load();
    while (there == nullptr || there->process != getpid()) {
        auto *const mine = new Made;
        if (made.compare_exchange_strong(there, mine))
            return mine->object;
        delete mine;
    }
    return there->object;
}

}  // namespace flx
