/// \file prefix.cpp
/// scan and exscan: rank r gets the reduction over ranks 0 … r (exscan: 0 … r - 1). Both ways below always put the
/// lower ranks' part first, so they hold for reductions that do not commute.
///
/// exscan is the scan of what the predecessors hold: every rank first sends its input to its successor (phase 0), and
/// ranks 1 … size - 1 scan that. Only then, in place, is a rank's own input overwritten.
#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// Where a rank's contribution to the scan lies, and the step that brought it there.
struct Contribution {
    Place place = kInput;
    uint32_t arrived = kNoStep;
    uint32_t input_sent = kNoStep;  ///< exscan: in place, the output may be written after this
};

Contribution take_contribution(Builder &builder, const Request &request, Place to) {
    Contribution own;
    if (request.collective == Collective::scan)
        return own;
    if (request.rank + 1 < request.size)
        own.input_sent = builder.send(request.rank + 1, 0, 0, kInput);
    own.place = to;
    if (request.rank > 0)
        own.arrived = builder.recv(request.rank - 1, 0, 0, to, {to == kOutput ? own.input_sent : kNoStep});
    return own;
}

/// A pipeline of ranks: each adds its contribution to what its predecessor hands on. The output is written once, before
/// it is sent; in place, what the output overwrites was sent before (exscan) or is not sent (scan).
Schedule chain(const Request &request) {
    if (request.size == 1)
        return alone(request.collective);
    const int rank = request.rank;
    const int first = request.collective == Collective::scan ? 0 : 1;
    Builder builder(1, 2);
    builder.slots(1);
    const Contribution own = take_contribution(builder, request, rank == first ? kOutput : scratch(0));
    if (rank < first)
        return builder.take();
    uint32_t result = own.arrived;
    Place place = own.place;
    if (rank > first) {
        result = builder.recv_reduce(rank - 1, 1, 0, own.place, kOutput, true, {own.arrived, own.input_sent});
        place = kOutput;
    } else if (request.collective == Collective::scan) {
        builder.copy(0, kInput, kOutput);
    }
    if (rank + 1 < request.size)
        builder.send(rank + 1, 1, 0, place, {result});
    return builder.take();
}

/// In round k every rank sends the sum of its last 2^k predecessors' contributions, its own included, to the rank 2^k
/// further on. Each round's sum has a place of its own, so nothing is overwritten while it may be sent again, and no
/// round waits for its send; the last sum goes to the output. In place that overwrites round 0's source (scan) or what
/// was sent to the successor (exscan): it waits for that send. Where a rank receives in round 0 alone, or sends in a
/// later round what is its result, the output itself is the source and is not written again.
Schedule doubling(const Request &request) {
    if (request.size == 1)
        return alone(request.collective);
    const int rank = request.rank;
    const int size = request.size;
    const int first = request.collective == Collective::scan ? 0 : 1;
    Builder builder(1, 2);
    uint32_t slots = 0;
    const bool ends_at_once = rank == first;
    const Contribution own = take_contribution(builder, request, ends_at_once ? kOutput : scratch(slots));
    if (rank < first)
        return builder.take();
    if (!ends_at_once && own.place != kInput)
        ++slots;
    if (ends_at_once && request.collective == Collective::scan)
        builder.copy(0, kInput, kOutput);
    Place place = own.place;
    uint32_t sum = own.arrived;
    uint32_t overwritten = own.input_sent;  // the send of the input, which the output may lie upon
    for (int distance = 1; distance < size - first; distance *= 2) {
        if (rank + distance < size) {
            // What fills the successor's room must not be ahead of the input that it waits for.
            const uint32_t before = distance == 1 ? own.input_sent : kNoStep;
            const uint32_t sent = builder.send(rank + distance, 1, 0, place, {sum, before});
            if (place == kInput)
                overwritten = sent;
        }
        if (rank - distance < first)
            continue;
        const bool last = rank - 2 * distance < first;
        const Place to = last ? kOutput : scratch(slots++);
        sum = builder.recv_reduce(rank - distance, 1, 0, place, to, true, {sum, last ? overwritten : kNoStep});
        place = to;
    }
    return builder.slots(slots).take();
}

bool serves(Collective collective, int size) {
    return size >= 1 && (collective == Collective::scan || collective == Collective::exscan);
}

BitClass chain_bits(Collective /*collective*/) {
    return BitClass::chain;
}

BitClass doubling_bits(Collective /*collective*/) {
    return BitClass::doubling;
}

}  // namespace

const Algorithm kPrefixChain = {
    "prefix_chain",
    "each rank adds its contribution to what its predecessor hands on, as a pipeline; least bytes, "
    "most hops",
    "MPI: A Message-Passing Interface Standard, 5.11, in the order that it defines",
    chain_bits,
    serves,
    chain};

const Algorithm kPrefixDoubling = {
    "prefix_doubling",
    "in round k each rank hands its sum of 2^k contributions to the rank 2^k further on; fewest hops, most bytes",
    "Hillis, Steele: Data Parallel Algorithms (1986)",
    doubling_bits,
    serves,
    doubling};

}  // namespace flx::algorithms
