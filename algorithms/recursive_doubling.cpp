/// \file recursive_doubling.cpp
/// In round k, ranks at distance 2^k exchange and add their whole vectors: fewest hops, most bytes.
#include <algorithm>
#include <bit>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// Where `size` is no power of two, the first ranks form pairs that take part as one: the odd rank gives its
/// contribution to the even one before the first round and gets the result after the last.
///
/// Both sides of an exchange add the lower ranks' sum first, so all ranks get the same bits. Sums take turns in two
/// scratch slots: a round sends one and writes the other, which the round before sent, once that send is done. A round
/// must not wait for its own send: that is done when the partner has consumed it, and the partner would wait likewise.
///
/// The last round writes the output; in place that is what round 0 sent, so it waits for that send. Where round 0 is
/// the last, a copy of the input is sent.
///
/// In place, the odd rank of a pair receives the result over the contribution that it sent. The result's cell contains
/// that cell, so its partner consumed it before, and drops it if it comes again. What the last send carries, the result
/// for the odd rank, is not overwritten in this operation.
Schedule allreduce(int rank, int size, bool may_be_in_place) {
    const Groups groups(rank, size);
    const int rounds = std::countr_zero(static_cast<unsigned>(groups.count()));
    Builder builder(1, 1);
    builder.reserve(2 * static_cast<size_t>(rounds) + 2);
    if (groups.absent()) {
        builder.send(rank - 1, 0, 0, kInput);
        builder.recv(rank - 1, 0, 0, kOutput);
        return builder.take();
    }

    uint32_t sum = kNoStep;
    uint32_t slots = 0;
    Place place = kInput;
    if (groups.paired()) {
        place = scratch(slots++);
        sum = builder.recv_reduce(rank + 1, 0, 0, kInput, place, false);
    } else if (rounds == 1 && may_be_in_place) {
        place = scratch(slots++);
        sum = builder.copy(0, kInput, place);
    }
    uint32_t input_sent = kNoStep;
    uint32_t sent[2] = {kNoStep, kNoStep};  // of a scratch slot
    for (int round = 0; round < rounds; ++round) {
        const int partner = groups.own() ^ (1 << round);
        const int peer = groups.first(partner);
        (place == kInput ? input_sent : sent[place.slot]) = builder.send(peer, 0, 0, place, {sum});
        Place target = kOutput;
        uint32_t freed = may_be_in_place ? input_sent : kNoStep;
        if (round < rounds - 1) {
            target = scratch(place == scratch(0) ? 1 : 0);
            freed = sent[target.slot];
            slots = std::max(slots, target.slot + 1u);
        }
        sum = builder.recv_reduce(peer, 0, 0, place, target, partner < groups.own(), {sum, freed});
        place = target;
    }
    builder.finish(sum);
    if (groups.paired())
        builder.send(rank + 1, 0, 0, kOutput, {sum});
    builder.slots(slots);
    return builder.take();
}

bool serves(Collective collective, int size) {
    return size >= 1 && (collective == Collective::allreduce || collective == Collective::barrier);
}

Schedule build(const Request &request) {
    if (request.size == 1)
        return alone(request.collective);
    return allreduce(request.rank, request.size, request.collective == Collective::allreduce);
}

BitClass bits(Collective collective) {
    return collective == Collective::allreduce ? BitClass::doubling : BitClass::none;
}

}  // namespace

const Algorithm kRecursiveDoubling = {
    "recursive_doubling",
    "ranks at distance 1, 2, 4, … exchange and add whole vectors; fewest hops, most bytes",
    "Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005)",
    bits,
    serves,
    build};

}  // namespace flx::algorithms
