/// \file tiered.cpp
/// Algorithms that know hosts: one algorithm among the ranks of each host, another one between hosts (tiers.h). Stages
/// follow each other cell by cell (stages.h): while one cell is between hosts, the next one is added within.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/stages.h"

namespace flx::algorithms {
namespace {

/// The blocks of a schedule in the order of its steps.
std::vector<uint32_t> blocks_of(const Schedule &schedule) {
    std::vector<uint32_t> order;
    for (const Step &step : schedule.steps)
        if (std::find(order.begin(), order.end(), step.block) == order.end())
            order.push_back(step.block);
    return order;
}

template <Family family, const Algorithm &near, const Algorithm &far>
Schedule build(const Request &request) {
    if (request.size == 1)
        return alone(request.collective);
    const bool one = request.placement == nullptr;
    const int host = one ? 0 : request.placement->host[static_cast<size_t>(request.rank)];
    const Collective collective =
        request.collective == Collective::barrier ? Collective::allreduce : request.collective;
    // As this host would have it alone with the others: blocks and phases are the same on all.
    const Schedule between = far.build({collective, host, one ? 1 : request.placement->hosts(), 0, nullptr});
    return schedule_of(compose(family, request, blocks_of(between)), request.rank, near, far, between.phases);
}

/// What the far algorithm serves, the family serves, but for reduce by lanes and reduce_scatter_block by leaders: a
/// rank would make several sums at once, and each wait for room that the others took; and for gather and scatter by
/// lanes, which have nothing to divide in single blocks.
template <Family family, const Algorithm &near, const Algorithm &far>
bool serves(Collective collective, int size) {
    using enum Collective;
    if (size < 1 || !far.serves(collective == barrier ? allreduce : collective, size))
        return false;
    switch (collective) {
        case allreduce:
        case bcast:
        case allgather:
            return true;
        case reduce_scatter_block:
            return family == Family::lanes;
        case barrier:
        case reduce:
        case gather:
        case scatter:
            return family == Family::leaders;
        default:
            break;
    }
    return false;
}

BitClass bits(Collective collective) {
    return reduces(collective) ? BitClass::tiers : BitClass::none;
}

template <Family family, const Algorithm &near, const Algorithm &far>
constexpr Algorithm make(std::string_view name, std::string_view description) {
    return {name,
            description,
            "Karonis and others: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation "
            "Performance (2000)",
            bits,
            serves<family, near, far>,
            build<family, near, far>,
            &far,
            family};
}

}  // namespace

const Algorithm kLeadersDoubling = make<Family::leaders, kDirect, kRecursiveDoubling>(
    "leaders(direct,recursive_doubling)", "one rank of a host adds for it; those exchange and add whole vectors");
const Algorithm kLeadersTree = make<Family::leaders, kDirect, kBinomialTree>(
    "leaders(direct,binomial_tree)", "one rank of a host stands for it in a binomial tree of hosts");
const Algorithm kLeadersDirect = make<Family::leaders, kDirect, kDirect>(
    "leaders(direct,direct)", "one rank of a host stands for it; those talk to each other in one hop");
const Algorithm kLeadersBruck = make<Family::leaders, kDirect, kBruck>(
    "leaders(direct,bruck)", "one rank of a host passes on what it has collected");
const Algorithm kLanesDirect = make<Family::lanes, kDirect, kDirect>(
    "lanes(direct,direct)", "all ranks of a host carry parts of what it sends; hosts talk to each other in one hop");
const Algorithm kLanesRing = make<Family::lanes, kDirect, kRing>(
    "lanes(direct,ring)", "all ranks of a host carry parts of what it sends, around rings of hosts");
const Algorithm kLanesDoubling = make<Family::lanes, kDirect, kRecursiveDoubling>(
    "lanes(direct,recursive_doubling)", "all ranks of a host carry parts, which hosts at distance 1, 2, 4 add");
const Algorithm kLeadersHalving = make<Family::leaders, kDirect, kRecursiveHalving>(
    "leaders(direct,recursive_halving)", "one rank of a host adds for it; those exchange halves of what they add");
const Algorithm kLeadersRing = make<Family::leaders, kDirect, kRing>(
    "leaders(direct,ring)", "one rank of a host stands for it in a ring of hosts, for long reduces");
const Algorithm kLanesHalving = make<Family::lanes, kDirect, kRecursiveHalving>(
    "lanes(direct,recursive_halving)", "all ranks of a host carry parts, of which hosts exchange and add halves");

}  // namespace flx::algorithms
