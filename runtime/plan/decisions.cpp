#include "runtime/plan/decisions.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "algorithms/registry.h"
#include "runtime/elements/custom.h"
#include "runtime/elements/dtype.h"

namespace flx {
namespace {

using algorithms::Collective;

/// Hash of the words that must be equal on all ranks.
template <typename Words>
uint32_t sign(const Words &words, uint32_t start = 0) {
    // Word by word (constants: Steele, Lea, Flood 2014): a hash by bytes would take a third of a small call's time.
    uint64_t hash = start;
    for (const uint64_t word : words) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
    }
    hash *= 0xBF58476D1CE4E5B9U;
    return static_cast<uint32_t>(hash >> 32);
}

/// What this rank shows to others in shared memory when a call goes by `way`, as if a link had carried it: bytes.
uint64_t shown_bytes(const Call &call, Way way, int rank, int ranks) {
    const Operation &operation = call.operation;
    const size_t bytes = operation.count * size_of(operation.dtype);
    const size_t part = bytes / static_cast<size_t>(ranks);
    switch (operation.collective) {
        case Collective::allreduce:
            return bytes;
        case Collective::reduce:
        case Collective::reduce_scatter_block:
            return way == Way::fused ? bytes : bytes - part;
        case Collective::allgather:
            return part;
        case Collective::bcast:
            return rank == operation.root ? bytes : 0;
        case Collective::scatter:
            return rank == operation.root ? bytes - part : 0;
        case Collective::alltoall:
            return bytes - part;
        case Collective::gather:
            return rank == operation.root ? 0 : part;
        case Collective::scan:
        case Collective::exscan:
        case Collective::reduce_scatter:
            return bytes;
        case Collective::allgatherv:
            return call.blocks.counts[rank] * size_of(operation.dtype);
        default:
            return 0;
    }
}

}  // namespace

Status Decisions::make(int rank, const Agreed &agreed, const std::string &overrides) {
    rank_ = rank;
    size_ = agreed.size;
    return Planner::make(rank, agreed, overrides, planner_);
}

uint32_t Decisions::signature_of(const Call &call, const Choice &choice, CallKind kind) const {
    const Operation &operation = call.operation;
    // Messages are of bytes, in numbers that each pair of ranks agrees on.
    const bool messages = choice.way == Way::exchanged || algorithms::traits_of(operation.collective).between_pairs;
    const uint32_t hash = sign(std::array<uint64_t, 8>{
        static_cast<uint64_t>(operation.collective),
        messages ? operation.count * size_of(operation.dtype) : operation.count, messages ? 0 : agreed(operation.dtype),
        agreed(operation.op), static_cast<uint64_t>(operation.root), static_cast<uint64_t>(choice.way),
        choice.algorithm == nullptr ? 0 : algorithms::identity_of(*choice.algorithm), static_cast<uint64_t>(kind)});
    if (messages || call.blocks.counts == nullptr)  // or counts are not all ranks' knowledge
        return hash;
    return sign(std::span(call.blocks.counts, static_cast<size_t>(size_)), hash);
}

Choice Decisions::choose(const Call &call, bool steps) const {
    Needs needs;
    // Of messages between pairs the type is each rank's own affair.
    const bool pairs = algorithms::traits_of(call.operation.collective).between_pairs;
    needs.steps = steps || (is_custom(call.operation.dtype) && !pairs);
    const size_t *counts = call.blocks.counts;
    if (call.operation.collective == Collective::allgatherv)
        needs.longest = *std::max_element(counts, counts + size_) * size_of(call.operation.dtype);
    else if (call.operation.collective == Collective::reduce_scatter)
        for (const std::vector<int> &ranks : planner_->placement().ranks) {
            const size_t elements = std::accumulate(ranks.begin(), ranks.end(), size_t{0},
                                                    [&](size_t sum, int rank) { return sum + counts[rank]; });
            needs.longest = std::max(needs.longest, elements * size_of(call.operation.dtype));
        }
    needs.in_order = !commutes(call.operation.op);
    return planner_->choose(call.operation.collective, call.operation.count * size_of(call.operation.dtype), needs);
}

Decided Decisions::decide(const Call &call, const Choice &choice, CallKind kind) const {
    const Operation &operation = call.operation;
    Decided decided{.count = operation.count,
                    .dtype = operation.dtype,
                    .op = operation.op,
                    .root = operation.root,
                    .signature = signature_of(call, choice, kind),
                    .choice = choice,
                    .shown = by_shared_memory(choice) ? shown_bytes(call, choice.way, rank_, size_) : 0,
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

const Decided &Decisions::decide_anew(const Call &call, Decided &last) {
    const Operation &operation = call.operation;
    last = decide(call, choose(call, false));
    // What arrays and the program's own types and reductions hold may be something else in the next call.
    if (call.blocks.counts != nullptr || is_custom(operation.dtype) || is_custom(operation.op))
        last.count = SIZE_MAX;
    return last;
}

}  // namespace flx
