/// The communicator's exchanges: what alltoall, alltoallv, gatherv, scatterv, send and receive come to as messages
/// between pairs of ranks, alone or several together in a group.
#include <cstring>
#include <utility>

#include "runtime/base/counters.h"
#include "runtime/communicator/recording.h"
#include "runtime/elements/dtype.h"

namespace flx {

using algorithms::Collective;

Status Communicator::begin_group() {
    const auto lock = guard();
    FLX_TRY(usable());
    if (group_.messages != nullptr)
        return fail(
            Fault::wrong_in_group,
            "flx_group_begin was called in a group; groups do not nest, and flx_group_end ends the one that is open");
    group_.messages = &queue_.acquire();
    return {};
}

/// Messages and sums begin together: a peer may need a message before it comes to its own group.
Status Communicator::end_group() {
    const auto lock = guard();
    if (group_.messages == nullptr)
        return fail(
            Fault::wrong_in_group,
            "flx_group_end was called without flx_group_begin, which must be called on the same communicator before");
    struct Cleanup {
        Communicator &comm;
        Pending &messages;
        std::vector<Pending *> sums;
        ~Cleanup() {
            comm.queue_.recycle(messages);
            for (Pending *sum : sums)
                comm.queue_.recycle(*sum);
            comm.group_.sums.clear();
            comm.group_.mail.messages.clear();
        }
    };
    Cleanup group{*this, *group_.messages, {}};
    group_.messages = nullptr;
    const DeviceMail &mail = group_.mail;
    const bool on_gpus = group.messages.call == 0 && !mail.messages.empty();
    Recording recording(*this, on_gpus ? record_of(mail) : Recording::messages(CallKind::grouped, 0, -1),
                        group.messages.call, Way::exchanged,
                        on_gpus ? carrier_of(mail.blocking) : record::Carrier::flx);
    queue_.hold(nullptr);
    // What has begun is awaited whatever becomes of the rest: its memory is the program's again afterwards.
    Status first;
    const auto keep = [&](Collective what, const auto &part) {
        Status status = whole(what, part);
        if (first.ok())
            first = std::move(status);
        return first.ok();
    };
    const bool mailed = keep(Collective::send_recv, [&] { return begin_mail(group_.mail); });
    bool done = true;
    if (mailed)
        keep(Collective::send_recv, [&] { return begin_messages(group.messages, group_.sums.empty(), done); });
    if (first.ok())
        keep(Collective::allreduce, [&] { return begin_sums(group.sums); });
    for (Pending *sum : group.sums)
        keep(Collective::allreduce, [&] { return wait(*sum); });
    if (first.ok())
        put_back_sums(group.sums);
    if (!done)
        keep(Collective::send_recv, [&] { return wait(group.messages); });
    if (mailed)
        keep(Collective::send_recv, [&] { return end_mail(group_.mail); });
    return recording.end(std::move(first));
}

namespace {

/// More gain nothing from going together: their bytes take longer than their hops.
constexpr size_t kMostFused = 256U << 10;

/// How many of the calls from `first` on are one sum: those of one type and reduction. Alike on all ranks, so none of
/// the program's own, whose handles are each process's affair.
size_t fusible(const std::vector<Call> &calls, size_t first) {
    const Operation &head = calls[first].operation;
    const bool own = is_custom(head.dtype) || is_custom(head.op);
    size_t elements = 0;
    size_t last = first;
    for (; last < calls.size(); ++last) {
        const Operation &operation = calls[last].operation;
        elements += operation.count;
        const bool alike = operation.dtype == head.dtype && operation.op == head.op && !own;
        if (last != first && (!alike || elements * size_of(head.dtype) > kMostFused))
            break;
    }
    return last - first;
}

}  // namespace

/// Small reductions go as one: their inputs one after the other in memory of the operation's own.
Status Communicator::begin_sums(std::vector<Pending *> &begun) {
    for (size_t first = 0, many = 0; first < group_.sums.size(); first += many) {
        many = fusible(group_.sums, first);
        Pending &pending = queue_.acquire();
        begun.push_back(&pending);
        Call call = group_.sums[first];
        if (many > 1) {
            Operation &operation = call.operation;
            const size_t element = size_of(operation.dtype);
            operation.count = 0;
            for (size_t i = first; i < first + many; ++i)
                operation.count += group_.sums[i].operation.count;
            std::byte *to = pending.aside(operation.count * element);
            operation.in = operation.out = to;
            for (size_t i = first; i < first + many; ++i) {
                const Operation &part = group_.sums[i].operation;
                if (part.count != 0)
                    std::memcpy(to, part.in, part.count * element);
                to += part.count * element;
            }
        }
        call = scaled(call, pending);
        bool done = false;
        const Decided *decided = nullptr;
        Status status = prelude(call, CallKind::grouped, done, decided);
        if (status.ok() && !done)
            status = prepare(pending, call, *decided);
        if (!status.ok()) {  // nobody is to wait for it
            begun.pop_back();
            queue_.recycle(pending);
            return status;
        }
        pending.done = done;
        if (done)
            pending.operation = call.operation;
        else
            queue_.submit(pending);
    }
    return {};
}

void Communicator::put_back_sums(const std::vector<Pending *> &begun) {
    size_t first = 0;
    for (const Pending *sum : begun) {
        const size_t many = fusible(group_.sums, first);
        const auto *from = static_cast<const std::byte *>(sum->operation.out);
        for (size_t i = first; many > 1 && i < first + many; ++i) {
            const Operation &part = group_.sums[i].operation;
            const size_t bytes = part.count * size_of(part.dtype);
            if (bytes != 0)
                std::memcpy(part.out, from, bytes);
            from += bytes;
        }
        first += many;
    }
}

namespace {

void add_alltoall(Exchange &exchange, Pending &pending, const Operation &operation, int rank, int size,
                  uint64_t sequence) {
    const size_t bytes = operation.count / static_cast<size_t>(size) * size_of(operation.dtype);
    const auto *from = static_cast<const std::byte *>(operation.in);
    auto *to = static_cast<std::byte *>(operation.out);
    if (bytes == 0)
        return;
    if (from != to)
        exchange.copy(from + rank * bytes, to + rank * bytes, bytes);
    else if (size > 1)
        from = static_cast<std::byte *>(std::memcpy(pending.aside(bytes * size), from, bytes * size));
    for (int step = 1; step < size; ++step) {
        const int next = (rank + step) % size;
        const int previous = (rank + size - step) % size;
        exchange.send(next, from + next * bytes, bytes, sequence);
        exchange.receive(previous, to + previous * bytes, bytes, sequence);
    }
}

void add_alltoallv(Exchange &exchange, Pending &pending, const Call &call, int rank, int size, uint64_t sequence) {
    const size_t element = size_of(call.operation.dtype);
    const auto *in = static_cast<const std::byte *>(call.operation.in);
    auto *out = static_cast<std::byte *>(call.operation.out);
    const size_t *const recvcounts = call.blocks.counts;
    const size_t *const rdispls = call.blocks.displacements;
    std::byte *copied = nullptr;
    if (call.in_place && size > 1) {
        size_t total = 0;
        for (int peer = 0; peer < size; ++peer)
            total += peer == rank ? 0 : recvcounts[peer] * element;
        copied = pending.aside(total);
    }
    if (const size_t bytes = recvcounts[rank] * element; !call.in_place && bytes != 0)
        exchange.copy(in + call.sends.displacements[rank] * element, out + rdispls[rank] * element, bytes);
    for (int step = 1; step < size; ++step) {
        const int next = (rank + step) % size;
        const int previous = (rank + size - step) % size;
        if (call.in_place) {
            const size_t bytes = recvcounts[next] * element;
            if (bytes != 0)
                std::memcpy(copied, out + rdispls[next] * element, bytes);
            exchange.send(next, copied, bytes, sequence);
            copied += bytes;
        } else {
            exchange.send(next, in + call.sends.displacements[next] * element, call.sends.counts[next] * element,
                          sequence);
        }
        exchange.receive(previous, out + rdispls[previous] * element, recvcounts[previous] * element, sequence);
    }
}

/// gatherv and scatterv: between the root and everyone. `carry(kind, peer, from, to, bytes)` for each part of this
/// rank, until it returns false.
template <typename Carry>
void for_each_rooted(const Call &call, int rank, int size, Carry &&carry) {
    using algorithms::StepKind;
    const Operation &operation = call.operation;
    const size_t element = size_of(operation.dtype);
    const bool gathers = operation.collective == Collective::gatherv;
    const auto *in = static_cast<const std::byte *>(operation.in);
    auto *out = static_cast<std::byte *>(operation.out);
    if (rank != operation.root) {
        carry(gathers ? StepKind::send : StepKind::recv, operation.root, in, out, call.own * element);
        return;
    }
    for (int step = 0; step < size; ++step) {
        const int peer = (rank + step) % size;
        const size_t offset = call.blocks.displacements[peer] * element;
        const size_t bytes = call.blocks.counts[peer] * element;
        if (step == 0 && (call.in_place || bytes == 0))
            continue;
        const StepKind kind = step == 0 ? StepKind::copy : gathers ? StepKind::recv : StepKind::send;
        if (!carry(kind, peer, gathers ? in : in + offset, gathers ? out + offset : out, bytes))
            return;
    }
}

void add_rooted(Exchange &exchange, const Call &call, int rank, int size, uint64_t sequence) {
    using algorithms::StepKind;
    for_each_rooted(call, rank, size, [&](StepKind kind, int peer, const std::byte *from, std::byte *to, size_t bytes) {
        if (kind == StepKind::send)
            exchange.send(peer, from, bytes, sequence);
        else if (kind == StepKind::recv)
            exchange.receive(peer, to, bytes, sequence);
        else
            exchange.copy(from, to, bytes);
        return true;
    });
}

}  // namespace

/// The messages of a collective that is made of them.
void Communicator::add_messages(Pending &pending, const Call &call, uint64_t sequence) {
    Operation &operation = pending.operation;
    operation.collective = call.operation.collective;
    operation.dtype = call.operation.dtype;
    if (operation.sequence == 0)
        pending.first_sequence = sequence;
    operation.sequence = sequence;
    switch (call.operation.collective) {
        case Collective::alltoall:
            return add_alltoall(pending.exchange, pending, call.operation, layout_.rank, layout_.size, sequence);
        case Collective::alltoallv:
            return add_alltoallv(pending.exchange, pending, call, layout_.rank, layout_.size, sequence);
        default:
            return add_rooted(pending.exchange, call, layout_.rank, layout_.size, sequence);
    }
}

/// To the group, or to be carried now.
template <typename Give>
Status Communicator::give_messages(size_t bytes, int peer, const Give &give) {
    return whole(Collective::send_recv, [&] {
        Pending &pending = group_.messages != nullptr ? *group_.messages : queue_.acquire();
        give(pending.exchange);
        return group_.messages != nullptr ? Status() : carry_messages(pending, bytes, peer);
    });
}

Status Communicator::send(const void *data, size_t bytes, int peer) {
    const auto lock = guard();
    FLX_TRY(usable());
    if (peer == layout_.rank && group_.messages == nullptr)
        return fail(Fault::message_to_itself,
                    "rank {} sends to itself; only in a group, or by flx_sendrecv, can it receive at the same time",
                    layout_.rank);
    return give_messages(bytes, peer, [&](Exchange &exchange) { exchange.send(peer, data, bytes, 0); });
}

Status Communicator::receive(void *data, size_t bytes, int peer) {
    const auto lock = guard();
    FLX_TRY(usable());
    if (peer == layout_.rank && group_.messages == nullptr)
        return fail(Fault::message_to_itself,
                    "rank {} receives from itself; only in a group, or by flx_sendrecv, can it send at the same time",
                    layout_.rank);
    return give_messages(bytes, peer, [&](Exchange &exchange) { exchange.receive(peer, data, bytes, 0); });
}

Status Communicator::send_receive(const void *out, size_t out_bytes, int dest, void *in, size_t in_bytes, int source) {
    const auto lock = guard();
    FLX_TRY(usable());
    return give_messages(out_bytes + in_bytes, source, [&](Exchange &exchange) {
        exchange.send(dest, out, out_bytes, 0);
        exchange.receive(source, in, in_bytes, 0);
    });
}

Status Communicator::issue_message(bool sends, void *memory, size_t bytes, int peer, Pending *&result) {
    const auto lock = guard();
    result = nullptr;
    FLX_TRY(usable());
    return whole(Collective::send_recv, [&] {
        Pending &pending = queue_.acquire();
        if (sends)
            pending.exchange.send(peer, memory, bytes, 0);
        else
            pending.exchange.receive(peer, memory, bytes, 0);
        bool done = false;
        pending.recorded = recorded_.recorder->enter(
            recorded_.place, Recording::messages(CallKind::non_blocking, bytes, peer), 0, Way::exchanged);
        Status status = begin_messages(pending, false, done);
        bool moved = false;
        // Numbered, it begins: what comes for it before another one is numbered would be taken for a duplicate.
        if (status.ok() && !done)
            status = poke(&pending, moved);
        if (!status.ok() || done)
            recycle(pending);
        else
            result = &pending;
        return status;
    });
}

/// How often a call looks for what peers send before it leaves that to an executor.
int Communicator::turns_at_once() const {
    constexpr int kYields = 16;
    return policies_.brief().spins > 0 ? policies_.brief().spins : kYields;
}

void Communicator::pause_at_once() const {
    if (policies_.brief().spins > 0)
        cpu_relax();
    else
        sched_yield();
}

/// Carries short parts of a gatherv or scatterv on the spot, without the exchange that they would be: to make one takes
/// longer than to carry eight bytes. True: that was all. Else it is the exchange's, but for its first `steps`.
bool Communicator::carry_rooted(const Call &call, uint32_t &steps) {
    using algorithms::StepKind;
    steps = 0;
    Eager *const eager = queue_.eager();
    if (eager == nullptr || !queue_.inbox().keeps_nothing())
        return false;
    if (!routes_.used())
        (void)routes_.vector(layout_.rank == 0 ? 1 : 0, 0, 0);
    const uint64_t sequence = queue_.sequence() + 1;
    int turns = turns_at_once();
    bool all = true;
    const auto carry = [&](StepKind kind, int peer, const std::byte *from, std::byte *to, size_t bytes) {
        all = kind == StepKind::copy || bytes <= Eager::kMostBytes;
        if (all && kind == StepKind::copy) {
            std::memcpy(to, from, bytes);
        } else if (all && bytes != 0 && kind == StepKind::send) {
            while (!(all = eager->send(peer, sequence, from, bytes)) && --turns > 0)
                pause_at_once();
        } else if (all && bytes != 0) {
            Eager::Got got;
            while ((got = eager->receive(peer, sequence, to, bytes)) == Eager::Got::nothing && --turns > 0)
                pause_at_once();
            all = got == Eager::Got::message;
        }
        steps += all ? 1 : 0;
        return all;
    };
    for_each_rooted(call, layout_.rank, layout_.size, carry);
    if (all) {  // who sent need not be known: such links send nothing twice
        queue_.inbox().begins(queue_.next_sequence());
        calls_.note_done(calls_.count());
    }
    return all;
}

/// Carries short messages on the spot. True: that was all. `waits`: for a moment, for what peers send.
bool Communicator::carry_at_once(Pending &pending, bool waits) {
    Exchange &exchange = pending.exchange;
    Eager *const eager = pending.plan == nullptr ? queue_.eager() : nullptr;
    if (eager == nullptr || !eager->begin(exchange))
        return false;
    if (!routes_.used() && !exchange.peers().empty())
        (void)routes_.vector(exchange.peers().front(), 0, 0);
    const int turns = waits ? turns_at_once() : 1;
    for (int turn = 1; eager->step(exchange) && turn < turns; ++turn)
        pause_at_once();
    if (!exchange.all_done())
        return false;
    queue_.done_at_once(pending);
    return true;
}

/// Begins what was gathered in `pending`. `done`: that was nothing, or could be done at once.
Status Communicator::begin_messages(Pending &pending, bool waits, bool &done) {
    if (pending.operation.sequence == 0)
        pending.operation.collective = Collective::send_recv;
    pending.operation.in = pending.operation.out = nullptr;
    pending.choice = {Way::exchanged, nullptr};
    FLX_TRY(usable());
    FLX_TRY(check_outside());
    FLX_TRY(pending.exchange.start());
    pending.bytes = pending.exchange.bytes();
    done = layout_.size == 1 || pending.exchange.steps().empty();
    if (!pending.exchange.steps().empty())
        Telemetry::count(telemetry().operations);
    if (!done) {
        done = carry_at_once(pending, waits);
        if (!done)
            queue_.submit(pending);
        return {};
    }
    for (uint32_t step = 0; step < pending.exchange.steps().size(); ++step) {
        const Exchange::Message &message = pending.exchange.message(step);
        std::memcpy(message.to, message.from, message.bytes);
    }
    return {};
}

/// Carries what was gathered in `pending`, `bytes` of it for `peer` or from it, and gives it back.
Status Communicator::carry_messages(Pending &pending, size_t bytes, int peer) {
    Recording recording(*this, CallKind::blocking, bytes, peer);
    bool done = false;
    Status status = begin_messages(pending, true, done);
    if (status.ok() && !done)
        status = wait(pending);
    queue_.recycle(pending);
    return recording.end(std::move(status));
}

}  // namespace flx
