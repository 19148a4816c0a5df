/// \file recursive_halving.cpp
/// In each round ranks at half the distance exchange halves of what they still add: as few bytes as a ring, in as few
/// rounds as recursive doubling. An allreduce then gathers the results the other way round. What a round sends waits
/// for the last block of the round before, though it could go sooner: so it goes as one message.
#include <algorithm>
#include <vector>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// Where a block's sum is so far, the step that made it, and the one that has read the block of the input.
struct Sum {
    Place place = kInput;
    uint32_t step = kNoStep;
    uint32_t read = kNoStep;
};

/// A run of blocks.
struct Run {
    uint32_t begin;
    uint32_t end;
};

/// The rounds of halving. `blocks_of`: the blocks of some groups. `place_of`: where the sum of a block is made.
template <typename BlocksOf, typename PlaceOf>
void halve(Builder &builder, const Groups &groups, std::vector<Sum> &sums, BlocksOf &&blocks_of, PlaceOf &&place_of) {
    int low = 0;
    uint32_t last = kNoStep;
    for (int distance = groups.count() / 2; distance > 0; distance /= 2) {
        const int partner = groups.own() ^ distance;
        const int peer = groups.first(partner);
        const bool upper = groups.own() >= low + distance;
        const Run given = blocks_of(upper ? low : low + distance, distance);
        low += upper ? distance : 0;
        const Run kept = blocks_of(low, distance);
        for (uint32_t block = given.begin; block < given.end; ++block) {
            const uint32_t sent = builder.send(peer, 0, block, sums[block].place, {sums[block].step, last});
            if (sums[block].place == kInput)
                sums[block].read = sent;
        }
        for (uint32_t block = kept.begin; block < kept.end; ++block) {
            const Sum sum = sums[block];
            const Place target = place_of(block, distance == 1);
            const bool lower_first = partner < groups.own();
            const uint32_t step = builder.recv_reduce(peer, 0, block, sum.place, target, lower_first, {sum.step});
            sums[block] = {target, step, sum.place == kInput ? step : sum.read};
        }
        last = sums[kept.end - 1].step;
    }
}

/// Sums are made in the output. What is sent from there is overwritten by the result only, which contains it: its
/// receiver has used it, and drops it if it comes again.
Schedule allreduce(int rank, int size) {
    const Groups groups(rank, size);
    const auto blocks = static_cast<uint32_t>(groups.count());
    Builder builder(blocks, 2);
    if (groups.absent()) {
        for (uint32_t block = 0; block < blocks; ++block)
            builder.send(rank - 1, 0, block, kInput);
        for (uint32_t block = 0; block < blocks; ++block)
            builder.recv(rank - 1, 1, block, kOutput);
        return builder.take();
    }
    std::vector<Sum> sums(blocks);
    if (groups.paired())
        for (uint32_t block = 0; block < blocks; ++block)
            sums[block] = {kOutput, builder.recv_reduce(rank + 1, 0, block, kInput, kOutput, false), kNoStep};
    const auto blocks_of = [](int first, int many) {
        return Run{static_cast<uint32_t>(first), static_cast<uint32_t>(first + many)};
    };
    halve(builder, groups, sums, blocks_of, [](uint32_t, bool) { return kOutput; });
    if (groups.count() > 1)
        builder.finish(sums[static_cast<uint32_t>(groups.own())].step);
    uint32_t last = kNoStep;
    for (int distance = 1; distance < groups.count(); distance *= 2) {
        const int own = groups.own() / distance * distance;
        const int partner = own ^ distance;
        const int peer = groups.first(groups.own() ^ distance);
        for (int block = own; block < own + distance; ++block)
            builder.send(peer, 1, static_cast<uint32_t>(block), kOutput,
                         {sums[static_cast<uint32_t>(block)].step, last});
        for (int block = partner; block < partner + distance; ++block)
            last = sums[static_cast<uint32_t>(block)].step =
                builder.recv(peer, 1, static_cast<uint32_t>(block), kOutput);
    }
    for (uint32_t block = 0; groups.paired() && block < blocks; ++block)
        builder.send(rank + 1, 1, block, kOutput, {sums[block].step, last});
    return builder.take();
}

/// A block for each rank; sums that are not final are in scratch memory.
Schedule reduce_scatter_block(int rank, int size) {
    const Groups groups(rank, size);
    const auto blocks = static_cast<uint32_t>(size);
    Builder builder(blocks, 1);
    builder.output(Layout::single);
    const auto own = static_cast<uint32_t>(rank);
    if (groups.absent()) {
        // In place the result overwrites the first block, whose sum contains what was sent from there only where that
        // is this rank's.
        uint32_t first = kNoStep;
        for (uint32_t block = 0; block < blocks; ++block) {
            const uint32_t sent = builder.send(rank - 1, 0, block, kInput);
            first = block == 0 ? sent : first;
        }
        builder.wait_in_place(builder.recv(rank - 1, 0, own, kOutput), first);
        return builder.take();
    }
    builder.slots(blocks);
    std::vector<Sum> sums(blocks);
    if (groups.paired())
        for (uint32_t block = 0; block < blocks; ++block) {
            const uint32_t step = builder.recv_reduce(rank + 1, 0, block, kInput, scratch(block), false);
            sums[block] = {scratch(block), step, step};
        }
    const auto blocks_of = [&](int first, int many) {
        return Run{static_cast<uint32_t>(groups.first(first)), static_cast<uint32_t>(groups.first(first + many))};
    };
    const auto place_of = [&](uint32_t block, bool last) { return last && block == own ? kOutput : scratch(block); };
    halve(builder, groups, sums, blocks_of, place_of);
    builder.finish(sums[own].step);
    if (own != 0)
        builder.wait_in_place(sums[own].step, sums[0].read);
    if (groups.paired()) {
        builder.finish(sums[own + 1].step);
        builder.send(rank + 1, 0, own + 1, sums[own + 1].place, {sums[own + 1].step});
    }
    return builder.take();
}

bool serves(Collective collective, int size) {
    return size >= 1 && (collective == Collective::allreduce || collective == Collective::reduce_scatter_block);
}

Schedule build(const Request &request) {
    if (request.size == 1)
        return alone(request.collective);
    return request.collective == Collective::allreduce ? allreduce(request.rank, request.size)
                                                       : reduce_scatter_block(request.rank, request.size);
}

BitClass bits(Collective collective) {
    return reduces(collective) ? BitClass::halving : BitClass::none;
}

}  // namespace

const Algorithm kRecursiveHalving = {
    "recursive_halving",
    "ranks at distance n/2, n/4, … exchange and add halves of what they have; an allreduce gathers them back",
    "Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005)",
    bits,
    serves,
    build};

}  // namespace flx::algorithms
