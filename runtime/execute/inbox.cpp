#include "runtime/execute/inbox.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/counters.h"
#include "runtime/execute/executor.h"
#include "runtime/link/trace.h"

namespace flx {

Inbox::Inbox(int size, int64_t patience_ns)
    : patience_ns_(patience_ns), last_received_(static_cast<size_t>(size), kPairwise) {
    constexpr size_t kEarly = 256;
    constexpr size_t kRunning = 32;
    early_.reserve(kEarly);
    running_.reserve(kRunning);
}

Inbox::~Inbox() {
    for (const Early &early : early_)
        std::free(early.aside);
}

void Inbox::keep(const Arrival &arrival, int link) {
    if (early_.size() == early_.capacity())
        Telemetry::count(telemetry().allocations);
    early_.push_back({arrival, link, nullptr});
}

bool Inbox::set_aside_if_stuck(const std::vector<Link *> &links) {
    bool holds = !early_.empty();
    for (const Executor *executor : running_)
        holds = holds || executor->holds();
    if (!holds)
        return false;
    const int64_t now = now_ns();
    if (stuck_since_ns_ == 0)
        stuck_since_ns_ = now;
    if (now - stuck_since_ns_ < patience_ns_)
        return false;
    stuck_since_ns_ = 0;
    const bool several = running_.size() > 1;
    bool copied = false;
    for (Executor *executor : running_)
        copied |= executor->set_aside(several);
    for (Early &early : early_) {
        // A peer that is ahead of this rank owes it nothing, unless it has several operations under way.
        bool wanted = several;
        for (const Executor *executor : running_)
            wanted = wanted || executor->awaits(early.arrival.peer);
        if (!wanted || early.aside != nullptr)
            continue;
        Telemetry::count(telemetry().allocations);
        early.aside = static_cast<std::byte *>(std::malloc(early.arrival.header.bytes));
        if (early.aside == nullptr)
            return copied;
        if (early.arrival.data != nullptr) {
            std::memcpy(early.aside, early.arrival.data, early.arrival.header.bytes);
        } else if (!links[static_cast<size_t>(early.link)]
                        ->fetch(early.arrival, 0, early.aside, early.arrival.header.bytes)
                        .ok()) {
            // Its sender is gone or has given up: the waits find out, and say so.
            std::free(std::exchange(early.aside, nullptr));
            continue;
        }
        if (trace_ != nullptr && (early.arrival.header.sequence & kPairwise) == 0)
            trace_->note(TraceKind::keeps, early.link, early.arrival.peer, early.arrival.header);
        links[static_cast<size_t>(early.link)]->release(early.arrival);
        early.arrival.data = early.aside;
        copied = true;
    }
    return copied;
}

}  // namespace flx
