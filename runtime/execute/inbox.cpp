#include "runtime/execute/inbox.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/counters.h"
#include "runtime/execute/executor.h"
#include "runtime/link/trace.h"

namespace flx {

Inbox::Inbox(int size, int64_t patience_ns) : patience_ns_(patience_ns), received_(static_cast<size_t>(size)) {
    constexpr size_t kEarly = 256;
    constexpr size_t kRunning = 32;
    nodes_.reserve(kEarly);
    running_.reserve(kRunning);
}

Inbox::~Inbox() {
    for (const List &list : lists_)
        for (uint32_t node = list.first; node != kNone; node = nodes_[node].next)
            std::free(nodes_[node].early.aside);
}

void Inbox::keep(const Arrival &arrival, int link) {
    uint32_t node = free_;
    if (node != kNone) {
        free_ = nodes_[node].next;
    } else {
        if (nodes_.size() == nodes_.capacity())
            Telemetry::count(telemetry().allocations);
        node = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
    }
    nodes_[node] = {{arrival, link, nullptr}, kNone};
    const uint64_t sequence = arrival.header.sequence;
    List &list = lists_[(sequence & kPairwise) != 0 ? kOperations : sequence % kOperations];
    (list.last != kNone ? nodes_[list.last].next : list.first) = node;
    list.last = node;
    ++kept_;
}

/// `before`: the one before it in the list, or kNone.
void Inbox::drop(List &list, uint32_t before, uint32_t node) {
    (before != kNone ? nodes_[before].next : list.first) = nodes_[node].next;
    if (list.last == node)
        list.last = before;
    nodes_[node].next = free_;
    free_ = node;
    --kept_;
}

bool Inbox::set_aside_if_stuck(const std::vector<Link *> &links) {
    if (std::exchange(used_, false)) {
        stuck_since_ns_ = 0;
        return false;
    }
    bool holds = kept_ != 0;
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
    for (const List &list : lists_)
        for (uint32_t node = list.first; node != kNone; node = nodes_[node].next)
            copied |= set_aside(nodes_[node].early, several, links);
    return copied;
}

/// A peer that is ahead of this rank owes it nothing, unless it has several operations under way.
bool Inbox::set_aside(Early &early, bool several, const std::vector<Link *> &links) {
    bool wanted = several;
    for (const Executor *executor : running_)
        wanted = wanted || executor->awaits(early.arrival.peer);
    if (!wanted || early.aside != nullptr)
        return false;
    Telemetry::count(telemetry().allocations);
    early.aside = static_cast<std::byte *>(std::malloc(early.arrival.header.bytes));
    if (early.aside == nullptr)
        return false;
    if (early.arrival.data != nullptr) {
        std::memcpy(early.aside, early.arrival.data, early.arrival.header.bytes);
    } else if (!links[static_cast<size_t>(early.link)]
                    ->fetch(early.arrival, 0, early.aside, early.arrival.header.bytes)
                    .ok()) {
        // Its sender is gone or has given up: the waits find out, and say so.
        std::free(std::exchange(early.aside, nullptr));
        return false;
    }
    if (trace_ != nullptr && (early.arrival.header.sequence & kPairwise) == 0)
        trace_->note(TraceKind::keeps, early.link, early.arrival.peer, early.arrival.header);
    links[static_cast<size_t>(early.link)]->release(early.arrival);
    early.arrival.data = early.aside;
    return true;
}

}  // namespace flx
