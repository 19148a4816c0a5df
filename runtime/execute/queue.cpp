#include "runtime/execute/queue.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/base/counters.h"
#include "runtime/elements/dtype.h"

namespace flx {

void Queue::start(uint32_t comm) {
    comm_ = comm;
    for (const LinkSlot &slot : links_)
        executor_links_.push_back(slot.link.get());
    message_counts_ = MessageCounts(layout_.size);
    inbox_ = std::make_unique<Inbox>(layout_.size);
    constexpr size_t kUsual = 16;  // under way; more is possible, and counted as an allocation
    for (auto *list : {&idle_pendings_, &waiting_, &running_})
        list->reserve(kUsual);
    idle_executors_.reserve(kUsual);
    idle_executors_.push_back(&idle_executor());
    recycle(acquire());
}

void Queue::allow_eager(uint32_t comm, Link &link) {
    eager_ = std::make_unique<Eager>(comm, link, 0, *inbox_, layout_.size);
}

Pending &Queue::acquire() {
    if (idle_pendings_.empty()) {
        Telemetry::count(telemetry().allocations);
        pendings_.push_back(std::make_unique<Pending>(layout_.rank, layout_.size, message_counts_));
        idle_pendings_.reserve(pendings_.size());
        waiting_.reserve(pendings_.size());
        running_.reserve(pendings_.size());
        return *pendings_.back();
    }
    Pending &pending = *idle_pendings_.back();
    idle_pendings_.pop_back();
    return pending;
}

void Queue::recycle(Pending &pending) {
    pending.clear();
    idle_pendings_.push_back(&pending);
}

void Queue::time_phases() {
    times_phases_ = true;
    for (const auto &executor : executors_)
        executor->time_phases();
}

Executor &Queue::idle_executor() {
    if (idle_executors_.empty()) {
        if (!executors_.empty())
            Telemetry::count(telemetry().allocations);
        executors_.push_back(
            std::make_unique<Executor>(layout_.rank, layout_.size, comm_, executor_links_, routes_, *inbox_));
        if (times_phases_)
            executors_.back()->time_phases();
        idle_executors_.reserve(executors_.size());
        idle_executors_.push_back(executors_.back().get());
    }
    Executor &executor = *idle_executors_.back();
    idle_executors_.pop_back();
    return executor;
}

/// Whether the first of the queue may run beside what runs.
bool Queue::may_begin(const Pending &pending) const {
    if (pending.operation.sequence == 0)
        return true;
    size_t collectives = 0;
    size_t bytes = pending.bytes;
    for (const Pending *other : running_) {
        if (other->operation.sequence == 0)
            continue;
        if (collectives++ != 0)  // the oldest may be of any size
            bytes += other->bytes;
    }
    return collectives == 0 || (bytes <= kBriefBytes && collectives < kMostSideBySide);
}

Status Queue::begin_ready(bool &moved) {
    size_t kept = 0;
    bool blocked = false;  // a collective waits: those after it do, too
    for (Pending *waiting : waiting_) {
        Pending &pending = *waiting;
        const bool collective = pending.operation.sequence != 0;
        if ((collective && blocked) || !may_begin(pending)) {
            blocked = blocked || collective;
            waiting_[kept++] = &pending;
            continue;
        }
        moved = true;
        if (over_rails_)
            routes_.begin(pending.plan != nullptr ? pending.plan->peers() : pending.exchange.peers());
        pending.executor = &idle_executor();
        running_.push_back(&pending);
        for (Pending *each : running_)
            each->alone = each->alone && running_.size() == 1;
        if (pending.plan != nullptr)
            FLX_TRY(pending.executor->start(pending.operation, *pending.plan, pending.blocks));
        else
            FLX_TRY(begin_exchange(pending));
        // Nothing is learnt from the time of brief ones, and a clock takes them some of it.
        pending.began_ns = routes_.learns() && pending.executor->shows_rates() ? now_ns() : 0;
    }
    waiting_.resize(kept);
    return {};
}

/// Routes are asked from within start().
Status Queue::begin_exchange(Pending &pending) {
    const bool alike = pending.operation.collective == algorithms::Collective::alltoall;
    pending.lends =
        routes_.open_exchange(routes_.lends() ? for_other_hosts(pending.exchange) : Routes::Outward(), alike);
    Status status = pending.executor->start(pending.operation, pending.exchange);
    routes_.exchange_opened();
    return status;
}

Routes::Outward Queue::for_other_hosts(const Exchange &exchange) const {
    Routes::Outward sent;
    for (uint32_t step = 0; step < exchange.steps().size(); ++step) {
        const algorithms::Step &each = exchange.steps()[step];
        if (each.kind == algorithms::StepKind::send && !layout_.near(each.peer)) {
            const size_t bytes = exchange.message(step).bytes;
            sent.even = sent.even && (sent.bytes == 0 || bytes == sent.longest);
            sent.longest = std::max(sent.longest, bytes);
            sent.bytes += bytes;
        }
    }
    return sent;
}

/// When the last exchange has ended, no rail is lent or borrowed.
void Queue::end_lending() {
    if (routes_.lends() && std::ranges::none_of(running_, [](const Pending *pending) { return pending->lends; }))
        routes_.end_exchanges();
}

Status Queue::turn(bool &moved) {
    if (!waiting_.empty())
        FLX_TRY(begin_ready(moved));
    for (Pending *pending : running_)
        if (!pending->executor->done())
            FLX_TRY(pending->executor->step(moved));
    for (size_t i = 0; i < running_.size();) {
        if (running_[i]->executor->done())
            complete(i);
        else
            ++i;
    }
    return {};
}

void Queue::complete(size_t index) {
    Pending &pending = *running_[index];
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
    const bool brief = pending.executor->brief();
    if (times_phases_) [[unlikely]]
        pending.executor->phases_done(pending.phases);
    pending.executor->finish();
    if (pending.lends)
        end_lending();
    idle_executors_.push_back(pending.executor);
    pending.executor = nullptr;
    if (pending.plan == nullptr)
        note_done(pending);
    say_ended(pending);
    if (pending.copy_bytes != 0)
        std::memcpy(pending.copy_to, pending.copy_from, pending.copy_bytes);
    if (routes_.learns()) {
        if (!pending.alone || (!brief && pending.began_ns == 0))
            routes_.forget();
        else if (!brief)
            learn(pending);
    }
    pending.done = true;
}

void Queue::learn(const Pending &pending) {
    const Operation &operation = pending.operation;
    const Plan *plan = pending.plan;
    const Ended ended{operation.sequence, now_ns() - pending.began_ns, plan != nullptr ? plan->schedule().phases : 1,
                      pending.lends};
    routes_.learn(ended, [&](const std::vector<int> &peers) {
        if (plan != nullptr)
            return pending.blocks.longest(operation.count, plan->schedule().blocks) * size_of(operation.dtype);
        size_t bytes = 0;
        for (const int peer : peers)
            bytes = std::max(bytes, pending.exchange.longest_to(peer));
        return bytes;
    });
}

void Queue::note_done(const Pending &pending) {
    for (uint64_t number = pending.call; number != 0 && number <= pending.last_call; ++number)
        calls_.note_done(number);
}

void Queue::done_at_once(const Pending &pending) {
    inbox_->begins(pending.operation.sequence);
    pending.exchange.for_each_awaited([&](int peer, uint64_t number) { inbox_->receives(peer, number); });
    note_done(pending);
}

/// Tells the links what can come only as a duplicate from now on. Operations of a group have ended together.
void Queue::say_ended(const Pending &pending) {
    if (!over_rails_)
        return;
    // Numbers below that of the oldest that has not completed; those after the last begun cannot have come in vain.
    uint64_t oldest = sequence_ + 1;
    for (const auto *list : {&running_, &waiting_})
        for (const Pending *other : *list)
            if (other->operation.sequence != 0)
                oldest = std::min(oldest, other->first_sequence);
    if (group_ != nullptr && group_->operation.sequence != 0)
        oldest = std::min(oldest, group_->first_sequence);
    for (const LinkSlot &slot : links_) {
        if (slot.link == nullptr)
            continue;
        if (pending.operation.sequence != 0 && oldest > 1)
            slot.link->ended(-1, oldest - 1);
        if (pending.plan == nullptr)
            for (const int peer : pending.exchange.peers())
                slot.link->ended(peer, ended_messages(peer));
    }
}

/// The number up to which all messages from `peer` have been received.
uint64_t Queue::ended_messages(int peer) const {
    uint64_t oldest = message_counts_.received[static_cast<size_t>(peer)] + 1;
    for (const auto *list : {&running_, &waiting_})
        for (const Pending *other : *list)
            if (other->plan == nullptr)
                oldest = std::min(oldest, other->exchange.first_received(peer));
    return kPairwise | (oldest - 1);
}

void Queue::abandon(const Status &status) {
    for (auto *list : {&running_, &waiting_}) {
        for (Pending *pending : *list) {
            pending->executor = nullptr;
            pending->status = status;
            pending->done = true;
        }
        list->clear();
    }
    end_lending();
}

void Queue::disturb() {
    for (Pending *pending : running_)
        pending->alone = false;
}

Pending *Queue::last_collective() {
    Pending *last = waiting_.empty() ? nullptr : waiting_.back();
    for (Pending *pending : running_)
        last = last == nullptr && pending->operation.sequence != 0 ? pending : last;
    return last;
}

void Queue::awaited(std::vector<Awaited> &result) const {
    result.clear();
    for (const Pending *pending : running_)
        if (pending->executor != nullptr)
            pending->executor->awaited(result);
}

uint64_t Queue::oldest_call(uint64_t none) const {
    uint64_t oldest = none;
    for (const auto *list : {&running_, &waiting_})
        for (const Pending *pending : *list)
            if (pending->call != 0)
                oldest = std::min(oldest, pending->call);
    return oldest;
}

}  // namespace flx
