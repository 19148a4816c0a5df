/// How a communicator carries operations out. Those that share memory as a whole (fused, streamed, fetched) run in one
/// go, after all that was issued before. All others are *pending* from their issue to their completion: a blocking call
/// issues one and waits for it, a non-blocking one leaves it to later calls. Collectives get their sequence numbers
/// when they are issued, which all ranks do in the same order, and begin in that order; messages between pairs begin at
/// once, since what they wait for may be behind a collective. Which of them run side by side is each rank's own affair.
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/counters.h"
#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/elements/custom.h"
#include "runtime/elements/dtype.h"

namespace flx {

using algorithms::Collective;

namespace {

/// Operations that are small run side by side: they take long because of hops, not because of bytes, and what they hold
/// of the links' room is little. Of larger ones each has all links to itself.
constexpr size_t kSideBySideBytes = 128 << 10;
constexpr size_t kMostSideBySide = 16;
/// A rank that was away for longer says nothing about its links' speed.
constexpr int64_t kAwayNs = 1'000'000;

/// In one go, not over links.
bool by_shared_memory(const Choice &choice) {
    return choice.way != Way::scheduled && choice.way != Way::exchanged;
}

/// On one rank every collective is a copy of its input.
void run_alone(const Call &call) {
    const Operation &operation = call.operation;
    const size_t element = size_of(operation.dtype);
    const auto *in = static_cast<const std::byte *>(operation.in);
    auto *out = static_cast<std::byte *>(operation.out);
    size_t count = operation.count;
    switch (operation.collective) {
        case Collective::barrier:
        case Collective::exscan:
            return;
        case Collective::allgatherv:
            out += call.blocks.displacements[0] * element;
            break;
        case Collective::alltoallv:
            if (call.in_place)
                return;
            in += call.sends.displacements[0] * element;
            out += call.blocks.displacements[0] * element;
            count = call.blocks.counts[0];
            break;
        case Collective::gatherv:
            out += call.in_place ? 0 : call.blocks.displacements[0] * element;
            count = call.in_place ? 0 : call.own;
            break;
        case Collective::scatterv:
            in += call.in_place ? 0 : call.blocks.displacements[0] * element;
            count = call.in_place ? 0 : call.own;
            break;
        default:
            break;
    }
    if (in != out && count != 0)
        std::memcpy(out, in, count * element);
}

}  // namespace

/// A call of the library that moves this communicator's operations.
class Communicator::Inside {
  public:
    Inside(Communicator &comm, const Operation *waited) : comm_(comm) {
        comm_.inside_ = true;
        comm_.current_ = waited;
        comm_.way_ = Way::scheduled;
        if (comm_.rails_ != nullptr)
            comm_.process_->enter_rails();
        if (comm_.learns_ && !comm_.running_.empty() && now_ns() - comm_.left_ns_ > kAwayNs)
            for (Pending *pending : comm_.running_)
                pending->alone = false;
    }
    ~Inside() {
        leave_rails();
        comm_.current_ = nullptr;
        comm_.waits_for_ = 0;
        comm_.inside_ = false;
        if (comm_.told_blocked_) [[unlikely]]
            comm_.leave_blocked();
        comm_.busy_.store(!comm_.queue_.empty() || !comm_.running_.empty(), std::memory_order_relaxed);
        if (comm_.learns_ && !comm_.running_.empty())
            comm_.left_ns_ = now_ns();
    }
    Inside(const Inside &) = delete;
    Inside &operator=(const Inside &) = delete;

    void leave_rails() {
        if (comm_.rails_ != nullptr && !left_)
            comm_.process_->leave_rails();
        left_ = true;
    }

  private:
    Communicator &comm_;
    bool left_ = false;
};

/// The sum of scaled inputs is the sum of what was scaled before.
Call Communicator::scaled(const Call &call, Pending &memory) {
    Call sum = call;
    if (!scales(call.operation.op))
        return sum;
    std::byte *scaled = memory.aside(call.operation.count * size_of(call.operation.dtype));
    scale(custom_op(call.operation.op), scaled, call.operation.in, call.operation.count);
    sum.operation.in = scaled;
    sum.operation.op = FLX_SUM;
    return sum;
}

Status Communicator::run(const Call &call) {
    const auto lock = guard();
    if (group_ == nullptr && scales(call.operation.op) && broken_.ok()) {
        Pending &memory = acquire();
        Status status = run(scaled(call, memory));
        recycle(memory);
        return status;
    }
    if (group_ != nullptr)
        return add_to_group(call);
    bool done = false;
    const Decided *decided = nullptr;
    FLX_TRY(prelude(call, CallKind::blocking, done, decided));
    return done ? Status() : run_now(call, *decided);
}

/// Lets the thread go on, where there is one, as soon as the call has left something under way.
struct Communicator::WakeThread {
    static constexpr size_t kLarge = 4 << 20;
    Communicator &comm;
    size_t bytes;
    ~WakeThread() {
        if (comm.thread_ && comm.busy_.load(std::memory_order_relaxed))
            comm.thread_->wake(bytes >= kLarge);
    }
};

Status Communicator::run_now(const Call &call, const Decided &decided) {
    std::optional<Decided> instead;
    if (by_shared_memory(decided.choice)) {
        FLX_TRY(drain());
        Call given = call;
        Operation &operation = given.operation;
        std::optional<shm::Review::Look> look;
        if (decided.choice.by_table && review_ != nullptr)
            look = review_->next(operation.collective, operation.count * size_of(operation.dtype), ways_);
        if (look) {
            Choice choice = decided.choice;
            choice.way = way_of(look->way);
            instead = decide(call, choice);
        }
        const Decided &now = instead ? *instead : decided;
        const uint64_t shown = now.shown;
        if (now.choice.way == Way::fetched && operation.collective == Collective::alltoall &&
            operation.in == operation.out) {
            const size_t bytes = operation.count * size_of(operation.dtype);
            Pending &memory = acquire();
            operation.in = std::memcpy(memory.aside(bytes), operation.in, bytes);
            Status status = carry_out(given, now, look ? &*look : nullptr);
            recycle(memory);
            return status;
        }
        Status status = carry_out(given, now, look ? &*look : nullptr);
        if (!std::exchange(left_to_steps_, false))
            return status;
        shared_sent_ -= shown;
        instead = decide(call, choose(call, true));
    }
    uint32_t carried = 0;
    const bool rooted =
        call.operation.collective == Collective::gatherv || call.operation.collective == Collective::scatterv;
    if (rooted && carry_rooted(call, carried))
        return {};
    Pending &pending = acquire();
    Status status = prepare(pending, call, instead ? *instead : decided);
    for (uint32_t step = 0; step < carried && status.ok(); ++step)
        pending.exchange.mark_done(step);
    if (status.ok() && !carry_at_once(pending, true)) {
        submit(pending);
        status = wait(pending);
    }
    recycle(pending);
    return status;
}

Status Communicator::issue(const Call &given, Pending *&result) {
    // After the lock is free again.
    const WakeThread wake{*this, given.operation.count * size_of(given.operation.dtype)};
    const auto lock = guard();
    result = nullptr;
    bool done = false;
    Pending &pending = acquire();
    const Call call = scaled(given, pending);
    const Decided *decided = nullptr;
    Status status = prelude(call, CallKind::non_blocking, done, decided);
    if (status.ok() && !done)
        status = prepare(pending, call, *decided);
    if (!status.ok() || done || carry_at_once(pending, false)) {
        recycle(pending);
        return status;
    }
    submit(pending);
    result = &pending;
    if (thread_) {  // which begins it: to fill the links' room takes a large operation longer than its caller expects
        busy_.store(true, std::memory_order_relaxed);
        return {};
    }
    bool moved = false;
    if (status = poke(&pending, moved); !status.ok()) {
        recycle(pending);
        result = nullptr;
        return status;
    }
    return {};
}

Status Communicator::add_to_group(const Call &call) {
    const Collective collective = call.operation.collective;
    if (collective != Collective::alltoall && collective != Collective::alltoallv &&
        collective != Collective::allreduce)
        return fail(FLX_ERR_ARGUMENT,
                    "{} in a group: only allreduce, alltoall, alltoallv, send, recv and sendrecv can be in one",
                    algorithms::name_of(collective));
    FLX_TRY(usable());
    if (collective == Collective::allreduce) {
        grouped_.push_back(call);
        return {};
    }
    if (size_ > 1) {
        calls_.note(decide(call, choose(call, true), CallKind::grouped).record);
        group_->last_call = calls_.count();
        group_->call = group_->call != 0 ? group_->call : group_->last_call;
    }
    add_messages(*group_, call, ++sequence_);
    return {};
}

bool Communicator::completed(Pending &pending, bool &moved) {
    constexpr uint32_t kLooksPerProgress = 16;
    const auto lock = guard();
    if (pending.done)
        return true;
    (void)poke(&pending, moved);  // an error is the operation's status
    // Who tests in a loop must not keep a peer waiting that waits on another communicator first.
    if (pending.done)
        return true;
    if (!thread_ && ++looks_ % kLooksPerProgress == 0)
        process_->move_others(this);
    look_while_testing(moved);
    return pending.done;
}

/// A program may ask for ever whether an operation is complete: it shall hear, too, if it cannot be.
void Communicator::look_while_testing(bool moved) {
    constexpr uint32_t kTestsPerLook = 16;
    constexpr int64_t kLookNs = 100'000'000;
    if (moved) {
        tests_ = 0;
        return;
    }
    if (++tests_ % kTestsPerLook != 0)
        return;
    const int64_t now = now_ns();
    if (tests_ == kTestsPerLook)
        tests_since_ns_ = now;
    if (now - looked_ns_ < kLookNs || inside_ || !broken_.ok() || (queue_.empty() && running_.empty()))
        return;
    Status status;
    {
        const Inside inside(*this, running_.empty() ? nullptr : &running_.front()->operation);
        warned_ = true;  // nobody waits
        status = attempt([&] { return check(now - tests_since_ns_); });
        if (!status.ok())
            status = investigate(std::move(status));
    }
    if (!status.ok())
        (void)break_off(std::move(status));
}

bool Communicator::move_in_thread() {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (locks_) {
        if (!lock.try_lock())
            return false;
        Telemetry::count(telemetry().locks);
    }
    bool moved = false;
    if (!broken_.ok())
        return false;
    const bool before = std::exchange(in_thread_, true);
    (void)poke(nullptr, moved);  // operations keep their errors until somebody asks
    in_thread_ = before;
    return moved;
}

/// What comes before any operation. `done`: nothing is left to do.
Status Communicator::prelude(const Call &call, CallKind kind, bool &done, const Decided *&decided) {
    FLX_TRY(usable());
    FLX_TRY(check_outside());
    if (group_ != nullptr)
        return fail(FLX_ERR_ARGUMENT, "a non-blocking {} in a group: groups have only blocking calls in them",
                    algorithms::name_of(call.operation.collective));
    Telemetry::count(telemetry().operations);
    if (size_ == 1) {
        run_alone(call);
        done = true;
        return {};
    }
    if (kind != CallKind::blocking)
        decided_once_ = decide(call, choose(call, true), kind);
    decided = kind == CallKind::blocking ? &decide(call) : &decided_once_;
    calls_.note(decided->record);
    if (check_ && kind != CallKind::non_blocking) {  // which must not wait
        FLX_TRY(compare_calls(call.operation));
        decided = kind == CallKind::blocking ? &decide(call) : decided;  // the comparison is a call, too
    }
    // Where counts are each pair's own, the others cannot know that this rank has nothing.
    done = call.operation.count == 0 && algorithms::scheduled_as(call.operation.collective).has_value();
    done = done || (call.operation.count == 0 && call.operation.collective == Collective::alltoall);
    return {};
}

Choice Communicator::choose(const Call &call, bool steps) const {
    Needs needs;
    needs.steps = steps || is_custom(call.operation.dtype);
    if (call.operation.collective == Collective::allgatherv)
        needs.longest =
            *std::max_element(call.blocks.counts, call.blocks.counts + size_) * size_of(call.operation.dtype);
    needs.in_order = !commutes(call.operation.op);
    return planner_->choose(call.operation.collective, call.operation.count * size_of(call.operation.dtype), needs);
}

Communicator::Decided Communicator::decide(const Call &call, const Choice &choice, CallKind kind) const {
    const Operation &operation = call.operation;
    Decided decided{.count = operation.count,
                    .dtype = operation.dtype,
                    .op = operation.op,
                    .root = operation.root,
                    .signature = signature_of(call, choice, kind),
                    .choice = choice,
                    .shown = by_shared_memory(choice) ? shown_bytes(call, choice.way) : 0,
                    .record = {}};
    decided.record.bytes = operation.count * size_of(operation.dtype);
    decided.record.signature = decided.signature;
    decided.record.root = operation.root;
    decided.record.dtype = is_custom(operation.dtype) ? CallRecord::kCustom : static_cast<uint16_t>(operation.dtype);
    decided.record.op = is_custom(operation.op) ? CallRecord::kCustom : static_cast<uint16_t>(operation.op);
    decided.record.collective = operation.collective;
    decided.record.kind = kind;
    return decided;
}

const Communicator::Decided &Communicator::decide(const Call &call) {
    const Operation &operation = call.operation;
    Decided &last = decided_[static_cast<size_t>(operation.collective)];
    if (last.count == operation.count && last.dtype == operation.dtype && last.op == operation.op &&
        last.root == operation.root)
        return last;
    last = decide(call, choose(call, false));
    // What arrays and the program's own types and reductions hold may be something else in the next call.
    if (call.blocks.counts != nullptr || is_custom(operation.dtype) || is_custom(operation.op))
        last.count = SIZE_MAX;
    return last;
}

Pending &Communicator::acquire() {
    if (idle_pendings_.empty()) {
        Telemetry::count(telemetry().allocations);
        pendings_.push_back(std::make_unique<Pending>(rank_, size_, message_counts_));
        idle_pendings_.reserve(pendings_.size());
        queue_.reserve(pendings_.size());
        running_.reserve(pendings_.size());
        return *pendings_.back();
    }
    Pending &pending = *idle_pendings_.back();
    idle_pendings_.pop_back();
    return pending;
}

void Communicator::recycle(Pending &pending) {
    const auto lock = guard();
    pending.clear();
    idle_pendings_.push_back(&pending);
}

/// Everything that can be said before it begins. Collectives get their numbers in submit().
Status Communicator::prepare(Pending &pending, const Call &call, const Decided &decided) {
    const Choice &choice = decided.choice;
    pending.operation = call.operation;
    pending.choice = choice;
    pending.blocks = call.blocks;
    pending.bytes = call.operation.count * size_of(call.operation.dtype);
    pending.operation.signature = decided.signature ^ calls_.before();
    pending.call = pending.last_call = calls_.count();
    Operation &operation = pending.operation;
    if (choice.way == Way::scheduled)
        pending.plan = &planner_->plan(operation.collective, choice, operation.root);
    if (operation.collective == Collective::reduce_scatter) {
        pending.displacements.resize(static_cast<size_t>(size_));
        size_t at = 0;
        for (int rank = 0; rank < size_; ++rank) {
            pending.displacements[static_cast<size_t>(rank)] = at;
            at += call.blocks.counts[rank];
        }
        pending.blocks.displacements = pending.displacements.data();
        if (operation.in == operation.out) {
            // The result would lie over blocks of other lengths, which others still need.
            pending.copy_to = operation.out;
            pending.copy_bytes = call.blocks.counts[rank_] * size_of(operation.dtype);
            pending.copy_from = operation.out = pending.aside(pending.copy_bytes);
        }
    }
    if (choice.way == Way::exchanged) {
        add_messages(pending, call, ++sequence_);
        pending.bytes = pending.exchange.bytes();
        return pending.exchange.start();
    }
    operation.sequence = pending.first_sequence = ++sequence_;
    return {};
}

void Communicator::submit(Pending &pending) {
    queue_.push_back(&pending);
}

Executor &Communicator::idle_executor() {
    if (idle_executors_.empty()) {
        if (!executors_.empty())
            Telemetry::count(telemetry().allocations);
        executors_.push_back(
            std::make_unique<Executor>(rank_, size_, id_, executor_links_, static_cast<Router &>(*this), *inbox_));
        idle_executors_.reserve(executors_.size());
        idle_executors_.push_back(executors_.back().get());
    }
    Executor &executor = *idle_executors_.back();
    idle_executors_.pop_back();
    return executor;
}

/// Whether the first of the queue may run beside what runs.
bool Communicator::may_begin(const Pending &pending) const {
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
    return collectives == 0 || (bytes <= kSideBySideBytes && collectives < kMostSideBySide);
}

Status Communicator::begin_ready(bool &moved) {
    size_t kept = 0;
    bool blocked = false;  // a collective waits: those after it do, too
    for (Pending *waiting : queue_) {
        Pending &pending = *waiting;
        const bool collective = pending.operation.sequence != 0;
        if ((collective && blocked) || !may_begin(pending)) {
            blocked = blocked || collective;
            queue_[kept++] = &pending;
            continue;
        }
        moved = true;
        if (rails_ != nullptr)
            look_at_links(pending.plan != nullptr ? pending.plan->peers() : pending.exchange.peers());
        pending.executor = &idle_executor();
        running_.push_back(&pending);
        for (Pending *each : running_)
            each->alone = each->alone && running_.size() == 1;
        if (pending.plan != nullptr)
            FLX_TRY(pending.executor->start(pending.operation, *pending.plan, pending.blocks));
        else
            FLX_TRY(begin_exchange(pending));
        // Nothing is learnt from the time of brief ones, and a clock takes them some of it.
        pending.began_ns = learns_ && !pending.executor->brief() ? now_ns() : 0;
    }
    queue_.resize(kept);
    return {};
}

/// Messages to other hosts may begin on the own rail: vector() and takers() are asked from within start().
Status Communicator::begin_exchange(Pending &pending) {
    if (lending_ != nullptr)
        lending_->enter(bytes_for_other_hosts(pending.exchange));
    opens_exchange_ = true;
    Status status = pending.executor->start(pending.operation, pending.exchange);
    opens_exchange_ = false;
    return status;
}

/// When the last exchange has ended, no rail is lent or borrowed.
void Communicator::end_lending() {
    if (lending_ == nullptr ||
        std::any_of(running_.begin(), running_.end(), [](const Pending *pending) { return pending->plan == nullptr; }))
        return;
    for (LentLink *link : lent_)
        link->leave();
    lending_->leave();
}

/// One turn of everything that is under way.
Status Communicator::turn(bool &moved) {
    if (!queue_.empty())
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
    if (moved)
        inbox_->moved();
    return {};
}

void Communicator::complete(size_t index) {
    Pending &pending = *running_[index];
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
    const bool brief = pending.executor->brief();
    pending.executor->finish();
    if (pending.plan == nullptr)
        end_lending();
    idle_executors_.push_back(pending.executor);
    pending.executor = nullptr;
    if (pending.plan == nullptr)
        note_done(pending);
    say_ended(pending);
    if (pending.copy_bytes != 0)
        std::memcpy(pending.copy_to, pending.copy_from, pending.copy_bytes);
    if (learns_) {
        if (!pending.alone)
            forget_probing();
        else if (!brief)
            learn(pending, now_ns() - pending.began_ns);
    }
    pending.done = true;
}

/// Tells the links what can come only as a duplicate from now on. Operations of a group have ended together.
void Communicator::say_ended(const Pending &pending) {
    if (rails_ == nullptr)
        return;
    // Numbers below that of the oldest that has not completed; those after the last begun cannot have come in vain.
    uint64_t oldest = sequence_ + 1;
    for (const auto *list : {&running_, &queue_})
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
uint64_t Communicator::ended_messages(int peer) const {
    uint64_t oldest = message_counts_.received[static_cast<size_t>(peer)] + 1;
    for (const auto *list : {&running_, &queue_})
        for (const Pending *other : *list)
            if (other->plan == nullptr)
                oldest = std::min(oldest, other->exchange.first_received(peer));
    return kPairwise | (oldest - 1);
}

/// The program's own traffic, which FLX lets move while it waits, may call FLX again.
Status Communicator::check_outside() const {
    if (inside_)
        return fail(FLX_ERR_ARGUMENT, "a call from within a wait of the same communicator");
    return {};
}

/// Moves what is under way, once. For a call that waits for `waited` if that is not null.
Status Communicator::poke(const Pending *waited, bool &moved) {
    const auto lock = guard();
    if (inside_ || (queue_.empty() && running_.empty()))
        return {};  // inside: the program's own traffic, which FLX lets move while it waits, came back to FLX
    FLX_TRY(usable());
    Status status;
    {
        const Inside inside(*this, waited != nullptr ? &waited->operation : nullptr);
        status = attempt([&] { return turn(moved); });
        if (status.ok()) {
            // Who only tests must not stay stuck either.
            if (!moved)
                (void)inbox_->set_aside_if_stuck(executor_links_);
            return status;
        }
        status = investigate(std::move(status));
    }
    return break_off(std::move(status));
}

void Communicator::pause(Waiter &waiter) {
    const auto lock = guard();
    if (inside_ || !broken_.ok() || (queue_.empty() && running_.empty()) || inbox_->set_aside_if_stuck(executor_links_))
        return;
    Status status;
    {
        const Inside inside(*this, running_.empty() ? nullptr : &running_.front()->operation);
        status = attempt([&] { return waiter.pause(); });
        if (!status.ok())
            status = investigate(std::move(status));
    }
    if (!status.ok())
        (void)break_off(std::move(status));
}

/// Returns when `waited` is done.
Status Communicator::wait(Pending &waited) {
    const auto lock = guard();
    if (waited.done)
        return waited.status;
    FLX_TRY(check_outside());
    FLX_TRY(usable());
    Status status;
    {
        Inside inside(*this, &waited.operation);
        waits_for_ = waited.call;
        // Small ones do not yield to a program that never sleeps, and gives the core back after some ms.
        const bool brief = waited.operation.count * size_of(waited.operation.dtype) < kSideBySideBytes;
        Waiter waiter(brief ? brief_wait_policy() : wait_policy(), *this);
        status = attempt([&]() -> Status {
            while (!waited.done) {
                bool moved = false;
                FLX_TRY(turn(moved));
                if (moved)
                    waiter.moved();
                else if (!waited.done && !inbox_->set_aside_if_stuck(executor_links_))
                    FLX_TRY(waited.executor != nullptr && waited.executor->takes_long(woken_) ? waiter.pause_at_ease()
                                                                                              : waiter.pause());
            }
            inside.leave_rails();
            return rails_ != nullptr && running_.empty() ? settle(waiter) : Status();
        });
        if (status.ok())
            return status;
        status = investigate(std::move(status));
    }
    return break_off(std::move(status));
}

/// Waits for all collectives that were issued.
Status Communicator::drain() {
    for (;;) {
        Pending *last = queue_.empty() ? nullptr : queue_.back();
        for (Pending *pending : running_)
            last = last == nullptr && pending->operation.sequence != 0 ? pending : last;
        if (last == nullptr)
            return {};
        FLX_TRY(wait(*last));
    }
}

void Communicator::give_up(const Status &why) {
    const auto lock = guard();
    if (broken_.ok())
        (void)break_off(why);
}

/// The communicator is broken: all that was under way has ended, with this error.
Status Communicator::break_off(Status status) {
    status = declare_broken(std::move(status));
    if (channel() != nullptr)
        channel()->withdraw();
    for (auto *list : {&running_, &queue_}) {
        for (Pending *pending : *list) {
            pending->executor = nullptr;
            pending->status = status;
            pending->done = true;
        }
        list->clear();
    }
    end_lending();
    return status;
}

}  // namespace flx
