#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/communicator/recording.h"
#include "runtime/communicator/staged.h"
#include "runtime/elements/dtype.h"
#include "runtime/process/outside_waits.h"

namespace flx {

using algorithms::Collective;

namespace {

/// What FLX_CHECK compares.
struct CheckedCall {
    uint64_t count, dtype, op;
    int32_t collective, root;
    friend bool operator==(const CheckedCall &, const CheckedCall &) = default;
};

template <typename Handle>
std::string name_of_agreed(uint64_t agreed) {
    return agreed > INT32_MAX ? fmt::format("custom {}", agreed & UINT32_MAX)
                              : std::string(name_of(static_cast<Handle>(agreed)));
}

std::string to_string(const CheckedCall &call) {
    return fmt::format("{}(count {}, {}, {}, root {})", algorithms::name_of(static_cast<Collective>(call.collective)),
                       call.count, name_of_agreed<flx_dtype_t>(call.dtype), name_of_agreed<flx_op_t>(call.op),
                       call.root);
}

}  // namespace

Communicator::Communicator() = default;

Status Communicator::why_broken() const {
    return fail(Fault::comm_broken, "the communicator is broken: {} (FLX-E{})", broken_.words(), broken_.number());
}

/// By shared memory as a whole. `served`: not so, where a rank's buffer cannot be reached by others, on all ranks.
Status Communicator::carry_out(const Call &given, const Decided &decided, const shm::Review::Look *look, bool &served) {
    Call call = given;
    Operation &operation = call.operation;
    operation.signature = decided.signature ^ calls_.before();
    memory_.shown += decided.shown;
    entry_.inside = true;
    wait_.operation = &operation;
    wait_.way = decided.choice.way;
    bool changed = false;
    Status status = attempt([&] {
        Waiter waiter(policies_.brief(), *this);
        return look != nullptr ? on_host_.ways->run_timed(call, decided.choice.way, *look, waiter, served, changed)
                               : on_host_.ways->run(call, decided.choice.way, waiter, served);
    });
    if (!status.ok())
        status = investigate(std::move(status));
    wait_.operation = nullptr;
    entry_.inside = false;
    if (wait_.told_blocked) [[unlikely]]
        leave_blocked();
    if (!status.ok())
        return break_off(std::move(status));
    if (!served)
        memory_.shown -= decided.shown;
    else if (decided.shown != 0) {
        ++memory_.showings;
        memory_.showed = true;
    }
    if (changed)
        take_ways(operation);
    return {};
}

/// Shared memory has another table of ways than before.
void Communicator::take_ways(const Operation &operation) {
    decisions_.set_ways(on_host_.ways->ways());
    const size_t bytes = operation.count * size_of(operation.dtype);
    if (layout_.rank == 0)
        log().info("{} of {} bytes goes {} from now on: that was faster than what was chosen before",
                   algorithms::name_of(operation.collective), bytes, way_name(operation.collective, bytes));
}

/// Nothing that a peer may wait for stays behind on the rails: the program may not call again for long. A thread that
/// is inside another call moves the rails anyway and settles when it leaves: the last one out waits.
Status Communicator::settle(Waiter &waiter) {
    int64_t began = 0;
    while (!process_->rails_in_use() && !rails_->settled()) {
        if (rails_->progress()) {
            waiter.moved();
            continue;
        }
        // What is left may be for a peer of another communicator, one that was stopped: the operation is complete, so
        // that is no error of this one, nor worth waiting for without end.
        const int64_t now = now_ns();
        if (began == 0)
            began = now;
        if (static_cast<double>(now - began) > knobs_.deadline_s * 1e9)
            return {};
        FLX_TRY(waiter.pause());
    }
    return {};
}

/// Every rank learns every rank's arguments before anything else is sent.
Status Communicator::compare_calls(const Operation &operation) {
    const CheckedCall mine{operation.count, agreed(operation.dtype), agreed(operation.op),
                           static_cast<int32_t>(operation.collective), operation.root};
    std::vector<CheckedCall> all(layout_.size);
    Call call;
    Operation &exchange = call.operation;
    exchange.collective = Collective::allgather;
    exchange.in = &mine;
    exchange.out = all.data();
    exchange.count = sizeof(CheckedCall) * layout_.size;
    exchange.dtype = FLX_UINT8;
    // Step by step where messages may be under way, which do not move while a stage waits within a host.
    const Choice choice = decisions_.choose(call, layout_.hosts > 1);
    FLX_TRY(run_now(call, decisions_.decide(call, choice)));
    for (int peer = 0; peer < layout_.size; ++peer)
        if (!(all[peer] == mine))
            return break_off(fail(Fault::calls_differ,
                                  "rank {} called {}, rank {} called {}; all ranks must call alike", layout_.rank,
                                  to_string(mine), peer, to_string(all[peer])));
    return {};
}

LinkCounters Communicator::counters(int index) const {
    LinkCounters total;
    const LinkSlot &slot = links_[index];
    if (slot.link == nullptr)
        return total;
    for (int peer = 0; peer < layout_.size; ++peer) {
        if (peer == layout_.rank || !slot.link->reaches(peer))
            continue;
        const LinkCounters counters = slot.link->counters(peer);
        total.bytes += counters.bytes;
        total.chunks += counters.chunks;
        total.busy_ns += counters.busy_ns;
    }
    total.bytes -= slot.bytes_before;
    total.chunks -= slot.chunks_before;
    if (slot.link->kind() == LinkKind::shm) {
        total.bytes += memory_.shown;
        total.chunks += memory_.showings;
    }
    return total;
}

/// What probing sent on a slow link may come late, also on links that no operation polls.
void Communicator::drop_strays() {
    if (rails_ != nullptr)
        rails_->progress();
    for (const LinkSlot &slot : links_) {
        for (int peer = 0; slot.link != nullptr && peer < layout_.size; ++peer) {
            Arrival arrival;
            while (slot.link->reaches(peer) && slot.link->receive(peer, arrival))
                slot.link->release(arrival);
        }
    }
    if (rails_ != nullptr)
        rails_->progress();
}

/// Whether nothing is under way on this rank's links, to or from it.
bool Communicator::settled() const {
    return std::none_of(links_.begin(), links_.end(),
                        [](const LinkSlot &slot) { return slot.link && slot.link->outstanding() != 0; }) &&
           (rails_ == nullptr || process_->rails_in_use() || rails_->flushed());
}

/// All ranks are there. No call of the program's: it has no number.
Status Communicator::pass_barrier() {
    const uint8_t in = 0;
    uint8_t out = 0;
    Call call;
    Operation &barrier = call.operation;
    barrier.in = &in;
    barrier.out = &out;
    barrier.count = 1;
    barrier.dtype = FLX_UINT8;
    barrier.op = FLX_MAX;
    return run_now(call, decisions_.decide(call));
}

void Communicator::close() {
    if (entry_.thread)
        entry_.thread->remove(*this);
    entry_.thread.reset();
    process_->remove(*this);
    if (!broken_.ok() || layout_.size == 1)
        return;
    note_call(CallKind::freed);
    // No rank takes its links away while a peer may still need something from it.
    const Status passed = whole(Collective::barrier, [&]() -> Status {
        const CallRecord freed{.kind = CallKind::freed};
        Recording recording(*this, freed, calls_.count(), Way::scheduled);
        FLX_TRY(drain());
        FLX_TRY(compare_clocks());
        return recording.end(pass_barrier());
    });
    if (!passed.ok())
        return;
    close_devices();
    constexpr int64_t kPatienceNs = 1'000'000'000;
    const int64_t began = now_ns();
    while (!settled() && now_ns() - began < kPatienceNs) {
        drop_strays();
        sched_yield();
    }
    if (const std::string report = routes_.own_rail_report(); !report.empty())
        log().info("{}", report);
    if (memory_.board != nullptr)
        memory_.board->leave(layout_.members[layout_.rank].local);
}

Communicator::~Communicator() {
    if (recorded_.recorder != nullptr)
        recorded_.recorder->close(recorded_.place);
    if (entry_.thread)
        entry_.thread->remove(*this);
    process_->remove(*this);
    if (memory_.board != nullptr)
        OutsideWaits::of_process().remove(*memory_.board);
    if (id_ != 0)
        process_->liveness().say_of(id_, nullptr);
    routes_.drop_lent();
    cuda::Group::end(std::move(devices_.group));
    links_.clear();
}

std::vector<Decision> Communicator::explain() const {
    std::vector<Decision> decisions = routes_.explain();
    const auto add = [&](std::vector<Decision> more) { std::ranges::move(more, std::back_inserter(decisions)); };
    if (on_host_.ways != nullptr)
        add(on_host_.ways->explain());
    if (devices_.group != nullptr)
        add(devices_.group->explain());
    return decisions;
}

}  // namespace flx
