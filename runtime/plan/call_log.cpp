#include "runtime/plan/call_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "algorithms/registry.h"
#include "runtime/base/text.h"
#include "runtime/elements/dtype.h"

namespace flx {

using algorithms::Collective;

std::string dtype_of(const CallRecord &call) {
    // Each pair of ranks has lengths of its own there, and so has the record no type.
    const bool pairs = call.collective == Collective::alltoallv || call.collective == Collective::gatherv ||
                       call.collective == Collective::scatterv;
    if (call.collective == Collective::barrier || pairs || call.dtype == CallRecord::kUntold)
        return {};
    return call.dtype == CallRecord::kCustom ? "custom" : std::string(name_of(static_cast<flx_dtype_t>(call.dtype)));
}

std::string reduction_of(const CallRecord &call) {
    if (!algorithms::reduces(call.collective) || call.op == CallRecord::kUntold)
        return {};
    return call.op == CallRecord::kCustom ? "custom" : std::string(name_of(static_cast<flx_op_t>(call.op)));
}

bool has_root(const CallRecord &call) {
    using enum Collective;
    switch (call.collective) {
        case bcast:
        case scatter:
        case scatterv:
        case reduce:
        case gather:
        case gatherv:
            return true;
        default:
            return false;
    }
}

std::string to_string(const CallRecord &call) {
    switch (call.kind) {
        case CallKind::freed:
            return "flx_comm_free";
        case CallKind::duplicated:
            return "flx_comm_dup";
        case CallKind::split:
            return "flx_comm_split";
        default:
            break;
    }
    std::string text = call.kind == CallKind::non_blocking ? "non-blocking " : "";
    text += algorithms::name_of(call.collective);
    if (call.dtype == CallRecord::kUntold && call.bytes != 0)
        text += fmt::format(" of {}", size_text(call.bytes));
    if (const std::string dtype = dtype_of(call); !dtype.empty()) {
        const std::string reduction = reduction_of(call);
        text += fmt::format(" of {} ({}{}{})", size_text(call.bytes), dtype, reduction.empty() ? "" : ", ", reduction);
    }
    if (has_root(call)) {
        const bool gives = call.collective == Collective::bcast || call.collective == Collective::scatter ||
                           call.collective == Collective::scatterv;
        text += fmt::format(" {} rank {}", gives ? "from" : "to", call.root);
    }
    if (call.kind == CallKind::grouped)
        text += " in a group";
    return text;
}

uint32_t CallLog::history(uint32_t base, uint32_t signature, uint64_t index) {
    uint32_t hash = (base ^ signature) * 0x9E3779B1U;
    hash = ((hash ^ hash >> 15) + static_cast<uint32_t>(index)) * 0x85EBCA6BU;
    return hash ^ hash >> 13;
}

/// A reader may be at it. The entry is written before its run counts, and the run before its first call does.
void CallLog::begin_run(const CallRecord &call, uint64_t number) {
    if (number > 1)
        base_ = history(base_, signature_, number - 1 - first_);
    signature_ = call.signature;
    kind_ = call.kind;
    first_ = number;
    const uint64_t runs = runs_.load(std::memory_order_relaxed);
    Run &run = run_[runs % kKept];
    CallRecord record = call;
    record.history = base_;
    const auto words = std::bit_cast<Words>(record);
    run.first.store(number, std::memory_order_release);
    for (size_t i = 0; i < words.size(); ++i)
        run.record[i].store(words[i], std::memory_order_release);
    runs_.store(runs + 1, std::memory_order_release);
}

/// The writer may be at it, in the entry of the run after the last one: so the oldest entry that may be another run's
/// by now is runs - kKept, as counted after it was read.
std::optional<CallRecord> CallLog::read(uint64_t number) const {
    if (number == 0 || number > count())
        return std::nullopt;
    for (uint64_t at = runs_.load(std::memory_order_acquire); at-- > 0;) {
        const Run &run = run_[at % kKept];
        const uint64_t first = run.first.load(std::memory_order_acquire);
        Words words;
        for (size_t i = 0; i < words.size(); ++i)
            words[i] = run.record[i].load(std::memory_order_acquire);
        if (at + kKept <= runs_.load(std::memory_order_acquire))
            return std::nullopt;
        if (first > number)
            continue;
        auto call = std::bit_cast<CallRecord>(words);
        call.history = history(call.history, call.signature, number - first);
        call.number = static_cast<uint32_t>(number);
        call.done = done_[number % kKept].load(std::memory_order_acquire) == number ? 1 : 0;
        return call;
    }
    return std::nullopt;
}

void BlockedCall::set(const BlockedIn &call) {
    const std::lock_guard lock(mutex_);
    call_ = call;
}

void BlockedCall::clear(uint32_t comm) {
    const std::lock_guard lock(mutex_);
    if (call_.comm == comm)
        call_ = {};
}

BlockedIn BlockedCall::get() const {
    const std::lock_guard lock(mutex_);
    return call_;
}

size_t write_answer(const CallLog &log, const BlockedIn &blocked, uint64_t asked, std::span<std::byte> to) {
    CallAnswer answer;
    answer.asked = asked;
    answer.count = log.count();
    answer.meeting = log.meeting_word();
    answer.blocked = blocked;
    size_t calls = 0;
    for (uint64_t number = std::min(asked, answer.count); number != 0 && calls < CallAnswer::kRecords; --number) {
        const std::optional<CallRecord> call = log.read(number);
        if (!call)
            break;
        answer.calls[calls++] = *call;
    }
    const size_t bytes = offsetof(CallAnswer, calls) + calls * sizeof(CallRecord);
    std::memcpy(to.data(), &answer, bytes);
    return bytes;
}

std::optional<size_t> read_answer(std::string_view bytes, CallAnswer &answer) {
    constexpr size_t kHead = offsetof(CallAnswer, calls);
    if (bytes.size() < kHead || bytes.size() > sizeof answer || (bytes.size() - kHead) % sizeof(CallRecord) != 0)
        return std::nullopt;
    std::memcpy(&answer, bytes.data(), bytes.size());
    return (bytes.size() - kHead) / sizeof(CallRecord);
}

std::optional<Contradiction> contradiction(const CallLog &own, const CallAnswer &theirs, size_t calls) {
    const uint64_t newest = std::min(theirs.asked, theirs.count);
    for (size_t i = calls; i-- > 0;) {
        const uint64_t number = newest - i;
        const std::optional<CallRecord> mine = own.read(number);
        const CallRecord &peers = theirs.calls[i];
        if (!mine || peers.number != mine->number || mine->history == peers.history)
            continue;
        return Contradiction{number, *mine, peers, mine->signature == peers.signature};
    }
    return std::nullopt;
}

bool needs(const CallRecord &call, int rank, int peer) {
    if (call.kind > CallKind::grouped)
        return true;
    if (call.kind == CallKind::grouped)
        return false;
    switch (call.collective) {
        case Collective::barrier:
            return true;
        case Collective::allreduce:
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter:
        case Collective::allgather:
        case Collective::alltoall:
            return call.bytes != 0;
        case Collective::bcast:
        case Collective::scatter:
            return call.bytes != 0 && rank != call.root && peer == call.root;
        case Collective::reduce:
        case Collective::gather:
            return call.bytes != 0 && rank == call.root;
        case Collective::scan:
        case Collective::exscan:
            return call.bytes != 0 && peer < rank;
        default:  // what each rank gives to each other is theirs alone to know
            return false;
    }
}

}  // namespace flx
