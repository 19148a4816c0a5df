/// \file tiers.cpp
/// Algorithms that know hosts: one algorithm among the ranks of each host, another one between hosts. What a host has
/// to send leaves it once, and what it gets comes once.
///
/// - *leaders*: one rank of each host stands for it. Fewest messages: for what is small.
/// - *lanes*: the vector is cut into as many lanes as the largest host has ranks. Each rank carries a lane (on smaller
///   hosts several) between hosts, so all ranks of a host drive its rails.
///
/// Stages follow each other cell by cell (stages.h): while one cell is between hosts, the next one is added within.
#include <algorithm>
#include <numeric>

#include "algorithms/stages.h"

namespace flx::algorithms {
namespace {

using Blocks = std::vector<uint32_t>;

/// One rank's view of the tiers.
class Tiers {
  public:
    Tiers(const Request &request, const Placement &placement, const Algorithm &near, const Algorithm &far)
        : request_(request), placement_(placement), near_(near), far_(far) {}

    [[nodiscard]] Schedule by_leaders() const;
    [[nodiscard]] Schedule by_lanes() const;

  private:
    using Where = std::function<Place(uint32_t)>;

    [[nodiscard]] int host() const { return placement_.host[static_cast<size_t>(request_.rank)]; }
    [[nodiscard]] int hosts() const { return placement_.hosts(); }
    [[nodiscard]] int local() const { return placement_.local[static_cast<size_t>(request_.rank)]; }
    [[nodiscard]] const std::vector<int> &here() const { return placement_.on_host_of(request_.rank); }
    [[nodiscard]] int root_host() const { return placement_.host[static_cast<size_t>(request_.root)]; }
    /// Where there is a root, its host's rank sends and gets all lanes, and more of them only make more messages.
    [[nodiscard]] int lanes() const {
        constexpr int kMostOfRoots = 4;
        return rooted(request_.collective) ? std::min(placement_.most(), kMostOfRoots) : placement_.most();
    }
    /// Who carries a lane on each host: on the root's, the root carries all. Those of lane 0 stand for their hosts.
    [[nodiscard]] std::vector<int> drivers(int lane) const {
        std::vector<int> drivers;
        for (int of = 0; of < hosts(); ++of)
            drivers.push_back(rooted(request_.collective) && of == root_host() ? request_.root
                                                                               : placement_.driver(of, lane));
        return drivers;
    }
    [[nodiscard]] int head() const { return drivers(0)[static_cast<size_t>(host())]; }
    /// The outer algorithm's, of this host. Blocks and phases are the same on all.
    [[nodiscard]] Schedule far_schedule() const {
        const Collective collective =
            request_.collective == Collective::barrier ? Collective::allreduce : request_.collective;
        return far_.build({collective, host(), hosts(), 0, nullptr});
    }
    /// The outer algorithm's blocks in the order in which this host first needs them: in this order its sums are made,
    /// so that what is between hosts begins early, and not all hosts send to one.
    [[nodiscard]] std::vector<uint32_t> far_order() const {
        const Schedule far = far_schedule();
        std::vector<uint32_t> order;
        for (const Step &step : far.steps)
            if (std::find(order.begin(), order.end(), step.block) == order.end())
                order.push_back(step.block);
        return order;
    }
    [[nodiscard]] Schedule taken(Stages &stages) const {
        stages.phases(far_schedule().phases);
        return stages.take();
    }
    [[nodiscard]] static Where at(Place place) {
        return [place](uint32_t) { return place; };
    }
    [[nodiscard]] Stage near_stage(Collective collective, int root, std::vector<Blocks> blocks, Where input,
                                   Where output) const {
        const int index = placement_.local[static_cast<size_t>(root)];
        return {&near_,           collective,        here(),      index, std::move(blocks),
                std::move(input), std::move(output), hosts() == 1};
    }
    [[nodiscard]] Stage far_stage(Collective collective, std::vector<int> group, int root, std::vector<Blocks> blocks,
                                  Where input, Where output) const {
        return {&far_, collective, std::move(group), root, std::move(blocks), std::move(input), std::move(output),
                true};
    }
    /// All of `count` blocks for one, each for itself for as many.
    [[nodiscard]] static std::vector<Blocks> all_as_one(uint32_t count) {
        Blocks all(count);
        std::iota(all.begin(), all.end(), 0);
        return {all};
    }
    [[nodiscard]] static std::vector<Blocks> one_by_one(uint32_t first, uint32_t count) {
        std::vector<Blocks> each(count);
        for (uint32_t i = 0; i < count; ++i)
            each[i] = {first + i};
        return each;
    }
    /// By rank of this host: the blocks of the lanes that it drives. `order`: a lane's blocks.
    [[nodiscard]] std::vector<Blocks> lanes_of_drivers(const std::vector<uint32_t> &order) const {
        std::vector<Blocks> blocks(here().size());
        for (const uint32_t block : order)
            for (int lane = 0; lane < lanes(); ++lane)
                blocks[static_cast<size_t>(lane) % here().size()].push_back(
                    static_cast<uint32_t>(lane) * static_cast<uint32_t>(order.size()) + block);
        return blocks;
    }
    /// By rank of this host: the ranks whose blocks it drives, those of other hosts among them. `order`: of hosts.
    [[nodiscard]] std::vector<Blocks> ranks_of_drivers(const std::vector<uint32_t> &order) const {
        std::vector<Blocks> blocks(here().size());
        for (const uint32_t of : order)
            for (size_t lane = 0; lane < placement_.ranks[of].size(); ++lane)
                blocks[lane % here().size()].push_back(static_cast<uint32_t>(placement_.ranks[of][lane]));
        return blocks;
    }
    /// By host: the rank of it whose block lane `lane` carries; none on hosts that have fewer ranks.
    [[nodiscard]] std::vector<Blocks> ranks_of_lane(int lane) const {
        std::vector<Blocks> blocks(static_cast<size_t>(hosts()));
        for (int of = 0; of < hosts(); ++of)
            if (const auto &ranks = placement_.ranks[static_cast<size_t>(of)]; lane < static_cast<int>(ranks.size()))
                blocks[static_cast<size_t>(of)] = {static_cast<uint32_t>(ranks[static_cast<size_t>(lane)])};
        return blocks;
    }
    /// By host: its ranks' blocks.
    [[nodiscard]] std::vector<Blocks> ranks_of_hosts() const {
        std::vector<Blocks> blocks;
        for (const std::vector<int> &ranks : placement_.ranks)
            blocks.emplace_back(ranks.begin(), ranks.end());
        return blocks;
    }
    /// By rank of this host: its block.
    [[nodiscard]] std::vector<Blocks> ranks_here() const {
        std::vector<Blocks> blocks;
        for (const int rank : here())
            blocks.push_back({static_cast<uint32_t>(rank)});
        return blocks;
    }
    /// The block of this host's i-th rank in the i-th of some slots.
    [[nodiscard]] Where in_slots(uint32_t first) const {
        return
            [this, first](uint32_t block) { return scratch(first + static_cast<uint32_t>(placement_.local[block])); };
    }
    [[nodiscard]] bool drives(int lane) const { return placement_.driver(host(), lane) == request_.rank; }

    [[nodiscard]] Schedule allreduce_by_leaders() const;
    [[nodiscard]] Schedule allreduce_by_lanes() const;
    [[nodiscard]] Schedule bcast(uint32_t lanes) const;
    [[nodiscard]] Schedule reduce() const;
    [[nodiscard]] Schedule allgather_by_leaders() const;
    [[nodiscard]] Schedule allgather_by_lanes() const;
    [[nodiscard]] Schedule reduce_scatter_block() const;
    [[nodiscard]] Schedule gather() const;
    [[nodiscard]] Schedule scatter() const;

    const Request &request_;
    const Placement &placement_;
    const Algorithm &near_;
    const Algorithm &far_;
};

/// A host's sum is made at its leader, in the output; where there is one rank, it is the input.
Schedule Tiers::allreduce_by_leaders() const {
    const uint32_t blocks = far_schedule().blocks;
    Stages stages(request_.rank, blocks);
    const bool alone = here().size() == 1;
    if (!alone)
        stages.add(near_stage(Collective::reduce, here()[0], all_as_one(blocks), at(kInput), at(kOutput)));
    if (hosts() > 1 && local() == 0)
        stages.add(far_stage(Collective::allreduce, drivers(0), 0, one_by_one(0, blocks), at(alone ? kInput : kOutput),
                             at(kOutput)));
    if (!alone)
        stages.add(near_stage(Collective::bcast, here()[0], all_as_one(blocks), at(kOutput), at(kOutput)));
    return taken(stages);
}

/// Each driver adds the host's contributions to its lanes, then takes part in each lane's allreduce.
Schedule Tiers::allreduce_by_lanes() const {
    const std::vector<uint32_t> order = far_order();
    const auto each = static_cast<uint32_t>(order.size());
    Stages stages(request_.rank, each * static_cast<uint32_t>(lanes()));
    const bool alone = here().size() == 1;
    if (!alone)
        stages.add(
            near_stage(Collective::reduce_scatter_block, here()[0], lanes_of_drivers(order), at(kInput), at(kOutput)));
    for (int lane = 0; lane < lanes() && hosts() > 1; ++lane)
        if (drives(lane))
            stages.add(far_stage(Collective::allreduce, drivers(lane), 0,
                                 one_by_one(static_cast<uint32_t>(lane) * each, each), at(alone ? kInput : kOutput),
                                 at(kOutput)));
    if (!alone)
        stages.add(near_stage(Collective::allgather, here()[0], lanes_of_drivers(order), at(kOutput), at(kOutput)));
    return taken(stages);
}

/// On the root's host the root gives all to all; elsewhere each driver passes on what its lanes bring. With one
/// lane, hosts' heads are the only drivers.
Schedule Tiers::bcast(uint32_t lanes) const {
    Stages stages(request_.rank, lanes);
    const bool root = request_.rank == request_.root;
    const auto source = at(root ? kInput : kOutput);
    for (uint32_t lane = 0; lane < lanes && hosts() > 1; ++lane) {
        const std::vector<int> group = drivers(static_cast<int>(lane));
        if (group[static_cast<size_t>(host())] == request_.rank)
            stages.add(far_stage(Collective::bcast, group, root_host(), {{lane}}, source, at(kOutput)));
    }
    if (here().size() == 1)
        return taken(stages);
    if (host() == root_host() || lanes == 1)
        stages.add(near_stage(Collective::bcast, head(), all_as_one(lanes), source, at(kOutput)));
    else
        stages.add(near_stage(Collective::allgather, here()[0], lanes_of_drivers({0}), at(kOutput), at(kOutput)));
    return taken(stages);
}

/// The other way round, by the heads. Only the root has an output, so hosts' sums lie in scratch elsewhere.
Schedule Tiers::reduce() const {
    Stages stages(request_.rank, 1);
    const bool root = request_.rank == request_.root;
    const bool alone = here().size() == 1;
    const bool leads = head() == request_.rank;
    const Place partial = alone ? kInput : root || hosts() == 1 || !leads ? kOutput : scratch(stages.scratch_slots(1));
    if (!alone)
        stages.add(near_stage(Collective::reduce, head(), all_as_one(1), at(kInput), at(partial)));
    if (hosts() > 1 && leads)
        stages.add(far_stage(Collective::reduce, drivers(0), root_host(), {{0}}, at(partial), at(kOutput)));
    return taken(stages);
}

/// Each rank's block goes to the other hosts in its lane, and there from the lane's driver to all.
Schedule Tiers::allgather_by_lanes() const {
    Stages stages(request_.rank, static_cast<uint32_t>(request_.size));
    stages.layouts(Layout::single, Layout::whole);
    const auto own = static_cast<uint32_t>(request_.rank);
    const Where source = [own](uint32_t block) { return block == own ? kInput : kOutput; };
    for (int lane = 0; lane < lanes() && hosts() > 1; ++lane)
        if (drives(lane))
            stages.add(far_stage(Collective::allgather, drivers(lane), 0, ranks_of_lane(lane), source, source));
    stages.copy(own, kInput, kOutput);
    if (here().size() > 1)
        stages.add(near_stage(Collective::allgather, here()[0], ranks_of_drivers(far_order()), source, at(kOutput)));
    return taken(stages);
}

/// Each driver adds the host's contributions to the blocks of its lane's ranks, which end at those ranks.
Schedule Tiers::reduce_scatter_block() const {
    Stages stages(request_.rank, static_cast<uint32_t>(request_.size));
    stages.layouts(Layout::whole, Layout::single);
    const auto own = static_cast<uint32_t>(request_.rank);
    const bool alone = here().size() == 1;
    const std::vector<Blocks> driven = ranks_of_drivers(far_order());
    const uint32_t first = alone || hosts() == 1 ? 0 : stages.scratch_slots(static_cast<uint32_t>(request_.size));
    const Where partial = [&](uint32_t block) {
        return alone ? kInput : hosts() == 1 && block == own ? kOutput : scratch(first + block);
    };
    if (!alone)
        stages.add(near_stage(Collective::reduce_scatter_block, here()[0], driven, at(kInput), partial));
    for (int lane = 0; lane < lanes() && hosts() > 1; ++lane)
        if (drives(lane))
            stages.add(far_stage(Collective::reduce_scatter_block, drivers(lane), 0, ranks_of_lane(lane), partial,
                                 at(kOutput)));
    return taken(stages);
}

/// Leaders collect their hosts' blocks, exchange them, and pass all of them on.
Schedule Tiers::allgather_by_leaders() const {
    Stages stages(request_.rank, static_cast<uint32_t>(request_.size));
    stages.layouts(Layout::single, Layout::whole);
    const auto own = static_cast<uint32_t>(request_.rank);
    const bool alone = here().size() == 1;
    if (!alone)
        stages.add(near_stage(Collective::gather, here()[0], ranks_here(), at(kInput), at(kOutput)));
    else
        stages.copy(own, kInput, kOutput);
    if (hosts() > 1 && local() == 0)
        stages.add(far_stage(Collective::allgather, drivers(0), 0, ranks_of_hosts(), at(alone ? kInput : kOutput),
                             at(kOutput)));
    if (!alone)
        stages.add(near_stage(Collective::bcast, here()[0], all_as_one(static_cast<uint32_t>(request_.size)),
                              at(kOutput), at(kOutput)));
    return taken(stages);
}

/// The heads collect their hosts' blocks, and the root theirs.
Schedule Tiers::gather() const {
    Stages stages(request_.rank, static_cast<uint32_t>(request_.size));
    stages.layouts(Layout::single, Layout::whole);
    const bool root = request_.rank == request_.root;
    const bool alone = here().size() == 1;
    const bool leads = head() == request_.rank;
    const bool keeps = leads && !root && !alone;
    const uint32_t first = keeps ? stages.scratch_slots(static_cast<uint32_t>(here().size())) : 0;
    const Where collected = keeps ? in_slots(first) : at(kOutput);
    if (!alone)
        stages.add(near_stage(Collective::gather, head(), ranks_here(), at(kInput), collected));
    if (hosts() > 1 && leads)
        stages.add(far_stage(Collective::gather, drivers(0), root_host(), ranks_of_hosts(),
                             alone ? at(kInput) : collected, at(kOutput)));
    return taken(stages);
}

/// The other way round.
Schedule Tiers::scatter() const {
    Stages stages(request_.rank, static_cast<uint32_t>(request_.size));
    stages.layouts(Layout::whole, Layout::single);
    const bool root = request_.rank == request_.root;
    const bool alone = here().size() == 1;
    const bool leads = head() == request_.rank;
    const bool keeps = leads && !root && !alone;
    const uint32_t first = keeps ? stages.scratch_slots(static_cast<uint32_t>(here().size())) : 0;
    const Where given = root ? at(kInput) : keeps ? in_slots(first) : at(kOutput);
    if (hosts() > 1 && leads)
        stages.add(far_stage(Collective::scatter, drivers(0), root_host(), ranks_of_hosts(), at(kInput),
                             alone ? at(kOutput) : given));
    if (!alone)
        stages.add(near_stage(Collective::scatter, head(), ranks_here(), given, at(kOutput)));
    return taken(stages);
}

Schedule Tiers::by_leaders() const {
    switch (request_.collective) {
        case Collective::allreduce:
        case Collective::barrier:
            return allreduce_by_leaders();
        case Collective::bcast:
            return bcast(1);
        case Collective::reduce:
            return reduce();
        case Collective::allgather:
            return allgather_by_leaders();
        case Collective::gather:
            return gather();
        case Collective::scatter:
            return scatter();
        default:  // not served
            break;
    }
    return {};
}

Schedule Tiers::by_lanes() const {
    switch (request_.collective) {
        case Collective::allreduce:
            return allreduce_by_lanes();
        case Collective::bcast:
            return bcast(static_cast<uint32_t>(lanes()));
        case Collective::allgather:
            return allgather_by_lanes();
        case Collective::reduce_scatter_block:
            return reduce_scatter_block();
        default:  // not served
            break;
    }
    return {};
}

template <Family family, const Algorithm &near, const Algorithm &far>
Schedule build(const Request &request) {
    if (request.size == 1)
        return alone(request.collective);
    const Placement one = request.placement == nullptr ? Placement::one_host(request.size) : Placement();
    const Tiers tiers(request, request.placement == nullptr ? one : *request.placement, near, far);
    return family == Family::leaders ? tiers.by_leaders() : tiers.by_lanes();
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
