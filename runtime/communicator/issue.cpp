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
#include "runtime/communicator/recording.h"
#include "runtime/communicator/staged.h"
#include "runtime/elements/custom.h"
#include "runtime/elements/dtype.h"

namespace flx {

using algorithms::Collective;

namespace {

/// A rank that was away for longer says nothing about its links' speed.
constexpr int64_t kAwayNs = 1'000'000;

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
        comm_.entry_.inside = true;
        comm_.wait_.operation = waited;
        comm_.wait_.way = Way::scheduled;
        if (comm_.rails_ != nullptr)
            comm_.process_->enter_rails();
        if (comm_.routes_.learns() && comm_.queue_.runs() && now_ns() - comm_.entry_.left_ns > kAwayNs)
            comm_.queue_.disturb();
    }
    ~Inside() {
        leave_rails();
        comm_.wait_.operation = nullptr;
        comm_.wait_.call = 0;
        comm_.wait_.part = Part::all;
        comm_.entry_.inside = false;
        if (comm_.wait_.told_blocked) [[unlikely]]
            comm_.leave_blocked();
        comm_.busy_.store(!comm_.queue_.idle(), std::memory_order_relaxed);
        if (comm_.routes_.learns() && comm_.queue_.runs())
            comm_.entry_.left_ns = now_ns();
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
    return whole(call.operation.collective, [&]() -> Status {
        if (group_.messages == nullptr && scales(call.operation.op) && broken_.ok()) {
            Pending &memory = queue_.acquire();
            Status status = run(scaled(call, memory));
            recycle(memory);
            return status;
        }
        if (group_.messages != nullptr)
            return add_to_group(call);
        bool done = false;
        const Decided *decided = nullptr;
        FLX_TRY(prelude(call, CallKind::blocking, done, decided));
        const bool compares = knobs_.check && layout_.size > 1;
        if (done && !compares)
            return {};
        Recording recording(*this, decided->record, calls_.count(), decided->choice.way);
        return recording.end(compares ? run_compared(call, done) : run_now(call, *decided));
    });
}

/// With FLX_CHECK ranks wait for each other in the comparison, which is a part of the call. `done`: all of it.
Status Communicator::run_compared(const Call &call, bool done) {
    FLX_TRY(compare_calls(call.operation));
    return done ? Status() : run_now(call, decisions_.decide(call));  // anew, as the comparison was decided, too
}

/// Lets the thread go on, where there is one, as soon as the call has left something under way.
struct Communicator::WakeThread {
    static constexpr size_t kLarge = 4 << 20;
    Communicator &comm;
    size_t bytes;
    ~WakeThread() {
        if (comm.entry_.thread && comm.busy_.load(std::memory_order_relaxed))
            comm.entry_.thread->wake(bytes >= kLarge);
    }
};

Status Communicator::run_now(const Call &call, const Decided &decided) {
    if (decided.choice.way == Way::staged)
        return run_staged(call, decided);
    if (!by_shared_memory(decided.choice))
        return run_by_links(call, decided);
    FLX_TRY(drain());
    bool served = true;
    FLX_TRY(decided.choice.by_table ? run_by_table(call, decided, served)
                                    : run_in_memory(call, decided, nullptr, served));
    return served ? Status() : run_by_links(call, decisions_.decide(call, decisions_.choose(call, true)));
}

/// It goes the way that the table of shared memory names, or one that is to be looked at again.
Status Communicator::run_by_table(const Call &call, const Decided &decided, bool &served) {
    const std::optional<shm::Review::Look> look = on_host_.ways->look(call.operation);
    if (!look)
        return run_in_memory(call, decided, nullptr, served);
    Choice choice = decided.choice;
    choice.way = way_of(look->way);
    return run_in_memory(call, decisions_.decide(call, choice), &*look, served);
}

/// `served`: it is done, which not every way can promise.
Status Communicator::run_in_memory(const Call &call, const Decided &decided, const shm::Review::Look *look,
                                   bool &served) {
    const Operation &operation = call.operation;
    if (decided.choice.way != Way::fetched || operation.collective != Collective::alltoall ||
        operation.in != operation.out)
        return carry_out(call, decided, look, served);
    Call apart = call;
    const size_t bytes = operation.count * size_of(operation.dtype);
    Pending &memory = queue_.acquire();
    apart.operation.in = std::memcpy(memory.aside(bytes), operation.in, bytes);
    Status status = carry_out(apart, decided, look, served);
    recycle(memory);
    return status;
}

/// Step by step, and returns when it is done.
Status Communicator::run_by_links(const Call &call, const Decided &decided) {
    uint32_t carried = 0;
    const bool rooted =
        call.operation.collective == Collective::gatherv || call.operation.collective == Collective::scatterv;
    if (rooted && carry_rooted(call, carried))
        return {};
    Pending &pending = queue_.acquire();
    Status status = prepare(pending, call, decided);
    for (uint32_t step = 0; step < carried && status.ok(); ++step)
        pending.exchange.mark_done(step);
    if (status.ok() && !carry_at_once(pending, true)) {
        queue_.submit(pending);
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
    Status status = whole(given.operation.collective, [&] { return begin(given, result); });
    if (!status.ok())
        result = nullptr;
    return status;
}

/// As issue(), but for the lock.
Status Communicator::begin(const Call &given, Pending *&result) {
    bool done = false;
    Pending &pending = queue_.acquire();
    const Call call = scaled(given, pending);
    const Decided *decided = nullptr;
    Status status = prelude(call, CallKind::non_blocking, done, decided);
    if (status.ok() && !done) {
        pending.recorded =
            recorded_.recorder->enter(recorded_.place, decided->record, calls_.count(), decided->choice.way);
        status = prepare(pending, call, *decided);
    }
    if (!status.ok() || done || carry_at_once(pending, false)) {
        recycle(pending);
        return status;
    }
    queue_.submit(pending);
    result = &pending;
    if (entry_.thread) {  // which begins it: to fill the links' room takes a large operation longer than its caller
                          // expects
        busy_.store(true, std::memory_order_relaxed);
        return {};
    }
    bool moved = false;
    if (status = poke(&pending, moved); !status.ok())
        recycle(pending);
    return status;
}

Status Communicator::add_to_group(const Call &call) {
    const Collective collective = call.operation.collective;
    if (collective != Collective::alltoall && collective != Collective::alltoallv &&
        collective != Collective::allreduce)
        return fail(Fault::wrong_in_group,
                    "{} in a group: only allreduce, alltoall, alltoallv, send, recv and sendrecv can be in one",
                    algorithms::name_of(collective));
    FLX_TRY(usable());
    if (collective == Collective::allreduce) {
        group_.sums.push_back(call);
        return {};
    }
    if (layout_.size > 1) {
        calls_.note(decisions_.decide(call, decisions_.choose(call, true), CallKind::grouped).record);
        group_.messages->last_call = calls_.count();
        group_.messages->call = group_.messages->call != 0 ? group_.messages->call : group_.messages->last_call;
    }
    add_messages(*group_.messages, call, queue_.next_sequence());
    queue_.hold(group_.messages);
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
    if (!entry_.thread && ++entry_.looks % kLooksPerProgress == 0)
        process_->move_others(this);
    look_while_testing(moved);
    return pending.done;
}

/// A program may ask for ever whether an operation is complete: it shall hear, too, if it cannot be.
void Communicator::look_while_testing(bool moved) {
    constexpr uint32_t kTestsPerLook = 16;
    constexpr int64_t kLookNs = 100'000'000;
    if (moved) {
        wait_.tests = 0;
        return;
    }
    if (++wait_.tests % kTestsPerLook != 0)
        return;
    const int64_t now = now_ns();
    if (wait_.tests == kTestsPerLook)
        wait_.tests_since_ns = now;
    if (now - wait_.looked_ns < kLookNs || entry_.inside || !broken_.ok() || queue_.idle())
        return;
    Status status;
    {
        const Inside inside(*this, queue_.oldest());
        wait_.warned = true;  // nobody waits
        status = attempt([&] { return check(now - wait_.tests_since_ns); });
        if (!status.ok())
            status = investigate(std::move(status));
    }
    if (!status.ok())
        (void)break_off(std::move(status));
}

bool Communicator::move_in_thread() {
    std::unique_lock lock(entry_.mutex, std::defer_lock);
    if (entry_.locks) {
        if (!lock.try_lock())
            return false;
        Telemetry::count(telemetry().locks);
    }
    bool moved = false;
    if (!broken_.ok())
        return false;
    const bool before = std::exchange(entry_.in_thread, true);
    (void)poke(nullptr, moved);  // operations keep their errors until somebody asks
    entry_.in_thread = before;
    return moved;
}

/// What comes before any operation. `done`: nothing is left to do.
Status Communicator::prelude(const Call &call, CallKind kind, bool &done, const Decided *&decided) {
    FLX_TRY(usable());
    FLX_TRY(check_outside());
    if (group_.messages != nullptr)
        return in_group(call.operation.collective);
    Telemetry::count(telemetry().operations);
    if (layout_.size == 1) {
        run_alone(call);
        done = true;
        return {};
    }
    decided = kind == CallKind::blocking ? &decisions_.decide(call) : &decisions_.decide_once(call, kind);
    calls_.note(decided->record);
    // One that does not block must not wait, and one that does compares as a part of the call.
    if (knobs_.check && kind != CallKind::non_blocking && kind != CallKind::blocking)
        FLX_TRY(compare_calls(call.operation));
    // Where counts are each pair's own, the others cannot know that this rank has nothing.
    done = call.operation.count == 0 && algorithms::scheduled_as(call.operation.collective).has_value();
    done = done || (call.operation.count == 0 && call.operation.collective == Collective::alltoall);
    return {};
}

void Communicator::recycle(Pending &pending) {
    const auto lock = guard();
    end_record(pending);
    queue_.recycle(pending);
}

/// Everything that can be said before it begins. Collectives get their numbers here.
Status Communicator::prepare(Pending &pending, const Call &call, const Decided &decided) {
    memory_.showed = false;  // links carry it
    const Choice &choice = decided.choice;
    pending.operation = call.operation;
    pending.choice = choice;
    pending.blocks = call.blocks;
    pending.bytes = call.operation.count * size_of(call.operation.dtype);
    pending.operation.signature = decided.signature ^ calls_.before();
    pending.call = pending.last_call = calls_.count();
    Operation &operation = pending.operation;
    if (choice.way == Way::scheduled)
        pending.plan = &decisions_.plan(operation.collective, choice, operation.root);
    if (operation.collective == Collective::reduce_scatter) {
        pending.displacements.resize(static_cast<size_t>(layout_.size));
        size_t at = 0;
        for (int rank = 0; rank < layout_.size; ++rank) {
            pending.displacements[static_cast<size_t>(rank)] = at;
            at += call.blocks.counts[rank];
        }
        pending.blocks.displacements = pending.displacements.data();
        if (operation.in == operation.out) {
            // The result would lie over blocks of other lengths, which others still need.
            pending.copy_to = operation.out;
            pending.copy_bytes = call.blocks.counts[layout_.rank] * size_of(operation.dtype);
            pending.copy_from = operation.out = pending.aside(pending.copy_bytes);
        }
    }
    if (choice.way == Way::exchanged) {
        add_messages(pending, call, queue_.next_sequence());
        pending.bytes = pending.exchange.bytes();
        return pending.exchange.start();
    }
    operation.sequence = pending.first_sequence = queue_.next_sequence();
    return {};
}

Status Communicator::in_group(Collective collective) {
    return fail(Fault::wrong_in_group, "a non-blocking {} in a group: groups have only blocking calls in them",
                algorithms::name_of(collective));
}

Status Communicator::in_wait() {
    return fail(
        Fault::call_in_wait,
        "a call was made from within a wait of the same communicator, by a function that ran meanwhile; after the "
        "wait, or on another communicator, it is allowed");
}

/// Moves what is under way, once. For a call that waits for `waited` if that is not null.
Status Communicator::poke(const Pending *waited, bool &moved) {
    const auto lock = guard();
    if (entry_.inside || queue_.idle())
        return {};  // inside: the program's own traffic, which FLX lets move while it waits, came back to FLX
    FLX_TRY(usable());
    Status status;
    {
        const Inside inside(*this, waited != nullptr ? &waited->operation : nullptr);
        status = attempt([&] { return queue_.turn(moved); });
        if (status.ok()) {
            // Who only tests must not stay stuck either.
            (void)queue_.set_aside_if_stuck();
            return status;
        }
        status = investigate(std::move(status));
    }
    return break_off(std::move(status));
}

void Communicator::pause(Waiter &waiter) {
    const auto lock = guard();
    if (entry_.inside || !broken_.ok() || queue_.idle() || queue_.set_aside_if_stuck())
        return;
    Status status;
    {
        const Inside inside(*this, queue_.oldest());
        // What is recorded of the wait stays until the operation is done: the next pause is another turn of it.
        const Pending *oldest = queue_.oldest_pending();
        const uint64_t outer = std::exchange(recorded_.call, oldest != nullptr ? oldest->recorded : 0);
        status = attempt([&] { return waiter.pause(); });
        recorded_.call = outer;
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
        wait_.call = waited.call;
        const RecordedWait recorded(*this, waited.recorded);
        // Small ones do not yield to a program that never sleeps, and gives the core back after some ms.
        const bool brief = waited.operation.count * size_of(waited.operation.dtype) < Queue::kBriefBytes;
        Waiter waiter(brief ? policies_.brief() : policies_.ordinary(), *this);
        status = attempt([&]() -> Status {
            FLX_TRY(move_until(waited, waiter));
            inside.leave_rails();
            return rails_ != nullptr && !queue_.runs() ? settle(waiter) : Status();
        });
        if (status.ok())
            return status;
        status = investigate(std::move(status));
    }
    return break_off(std::move(status));
}

/// Moves what is under way until that is done.
Status Communicator::move_until(const Pending &done, Waiter &waiter) {
    while (!done.done) {
        bool moved = false;
        FLX_TRY(queue_.turn(moved));
        const bool set_aside = queue_.set_aside_if_stuck();
        if (moved)
            waiter.moved();
        else if (!done.done && !set_aside)
            FLX_TRY(done.executor != nullptr && done.executor->takes_long(wait_.woken) ? waiter.pause_at_ease()
                                                                                       : waiter.pause());
    }
    return {};
}

/// What goes over rails of an operation that is carried out stage by stage.
class Communicator::OverRails final : public Between {
  public:
    explicit OverRails(Communicator &comm) : comm_(comm), memory_(comm.queue_.acquire()) {}
    ~OverRails() override {
        for (Pending *pending : comm_.on_host_.given)  // an error has broken it off
            comm_.queue_.recycle(*pending);
        comm_.on_host_.given.clear();
        if (messages_ != nullptr)
            comm_.queue_.recycle(*messages_);
        comm_.queue_.recycle(memory_);
    }
    OverRails(const OverRails &) = delete;
    OverRails &operator=(const OverRails &) = delete;

    void wait_by(Waiter &waiter) { waiter_ = &waiter; }

    std::byte *aside(size_t bytes) override { return memory_.aside(bytes); }
    Exchange &messages() override {
        if (messages_ == nullptr)
            messages_ = &comm_.queue_.acquire();
        return messages_->exchange;
    }
    Status give(const Operation &operation, const algorithms::Algorithm &algorithm, const Blocks &blocks,
                const std::vector<int> &group, int root) override {
        Pending &pending = comm_.queue_.acquire();
        pending.choice = {Way::scheduled, &algorithm};
        pending.plan = &comm_.decisions_.plan_among(algorithm, operation.collective, group, root);
        pending.blocks = blocks;
        pending.bytes = operation.count * size_of(operation.dtype);
        submit(pending, operation);
        return {};
    }
    Status give_messages(const Operation &operation) override {
        Pending &pending = *messages_;
        FLX_TRY(pending.exchange.start());
        messages_ = nullptr;
        pending.choice = {Way::exchanged, nullptr};
        pending.bytes = pending.exchange.bytes();
        submit(pending, operation);
        return {};
    }
    uint64_t next_number() override { return comm_.queue_.next_sequence(); }
    Status carry() override {
        end_stage(Part::within_host);
        comm_.wait_.way = Way::scheduled;
        comm_.wait_.part = Part::between_hosts;
        uint64_t bytes = 0;
        while (!comm_.on_host_.given.empty()) {
            Pending &pending = *comm_.on_host_.given.back();
            FLX_TRY(comm_.move_until(pending, *waiter_));
            for (const PhaseDone &phase : pending.phases)
                bytes += phase.bytes;
            comm_.on_host_.given.pop_back();
            comm_.queue_.recycle(pending);
        }
        comm_.wait_.way = Way::staged;
        comm_.wait_.part = Part::within_host;
        end_stage(Part::between_hosts, bytes);
        return {};
    }
    /// For traces: what was done since the stage before. A rank that has one stage has nothing to say of it.
    void end_stage(Part part, uint64_t bytes = 0) {
        if (!comm_.recorded_.recorder->traces() || (part == Part::within_host && comm_.on_host_.nearby == nullptr))
            return;
        const int64_t now = now_ns();
        comm_.recorded_.recorder->phase(comm_.recorded_.place, comm_.calls_.count(),
                                        {.began_ns = stage_began_ns_, .ended_ns = now, .bytes = bytes, .part = part});
        stage_began_ns_ = now;
    }
    [[nodiscard]] bool carried() const { return stage_began_ns_ != 0; }

  private:
    /// All before any is awaited: of what is not under way a rank takes nothing any more.
    void submit(Pending &pending, const Operation &operation) {
        pending.operation = operation;
        pending.first_sequence = operation.sequence;
        pending.call = pending.last_call = 0;  // a stage is not the call: that is not done with it
        comm_.queue_.submit(pending);
        comm_.on_host_.given.push_back(&pending);
    }

    Communicator &comm_;
    Waiter *waiter_ = nullptr;
    Pending &memory_;
    Pending *messages_ = nullptr;  // not given yet
    int64_t stage_began_ns_ = 0;   // where a trace wants it; 0: with the call
};

/// All that was issued before is done: what is under way would not move while a stage waits within the host. Messages
/// between pairs are never under way here, as their calls, or their group's end, return when they are done. Ranks that
/// have no part in what goes over rails still count its numbers.
Status Communicator::run_staged(const Call &call, const Decided &decided) {
    FLX_TRY(drain());
    Call numbered = call;
    Operation &operation = numbered.operation;
    operation.signature = decided.signature ^ calls_.before();
    operation.sequence = queue_.next_sequence();
    const algorithms::Placement &placement = decisions_.placement();
    const algorithms::Algorithm *const algorithm = decided.choice.algorithm;
    const int numbers = Staged::numbers(algorithm, placement);
    for (int number = 1; number < numbers; ++number)
        (void)queue_.next_sequence();
    OverRails rails(*this);
    Status status;
    {
        Inside inside(*this, &operation);
        wait_.call = calls_.count();
        wait_.way = Way::staged;
        wait_.part = Part::within_host;
        if (on_host_.stages == nullptr)
            on_host_.stages = std::make_unique<Staged>(layout_.rank, placement, on_host_.nearby.get());
        Waiter waiter(policies_.brief(), *this);
        rails.wait_by(waiter);
        status = attempt([&]() -> Status {
            FLX_TRY(on_host_.stages->run(numbered, decided.choice, rails, waiter));
            if (rails.carried())
                rails.end_stage(Part::within_host);
            memory_.shown += on_host_.stages->shown();
            memory_.showings += on_host_.stages->shown() != 0 ? 1 : 0;
            memory_.showed = false;
            inside.leave_rails();
            wait_.way = Way::scheduled;
            wait_.part = Part::all;
            return rails_ != nullptr && !queue_.runs() ? settle(waiter) : Status();
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
        Pending *last = queue_.last_collective();
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

Status Communicator::abort(const std::string &reason) {
    const auto lock = guard();
    FLX_TRY(check_outside());
    give_up(fail(Fault::aborted, "{} aborted communicator {}{}{}", layout_.describe(layout_.rank), id_,
                 reason.empty() ? "" : ": ", reason));
    if (devices_.group != nullptr)
        devices_.group->abandon();
    return {};
}

/// No memory, say.
Status Communicator::ended_half_way(Collective what, const std::exception &error) {
    Status status = thrown(error, fmt::format("{} of communicator {}", algorithms::name_of(what), id_));
    return broken_.ok() ? break_off(std::move(status)) : status;
}

/// The communicator is broken: all that was under way has ended, with this error.
Status Communicator::break_off(Status status) {
    status = declare_broken(std::move(status));
    if (channel() != nullptr)
        channel()->withdraw();
    queue_.abandon(status);
    return status;
}

}  // namespace flx
