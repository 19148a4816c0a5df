#include "algorithms/tiers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

using Blocks = std::vector<uint32_t>;
using Places = std::vector<Place>;

/// One rank's view of the tiers.
class Composer {
  public:
    Composer(const Request &request, const Placement &placement, const Blocks &blocks_between, Carried carried)
        : request_(request), placement_(placement), order_(blocks_between), carried_(carried) {}

    Composition by_leaders();
    Composition by_lanes();

  private:
    [[nodiscard]] bool in_calls() const { return carried_ == Carried::in_calls; }
    [[nodiscard]] int host() const { return placement_.host[static_cast<size_t>(request_.rank)]; }
    [[nodiscard]] int hosts() const { return placement_.hosts(); }
    [[nodiscard]] int local() const { return placement_.local[static_cast<size_t>(request_.rank)]; }
    [[nodiscard]] const std::vector<int> &here() const { return placement_.on_host_of(request_.rank); }
    [[nodiscard]] bool alone() const { return here().size() == 1; }
    [[nodiscard]] bool is_root() const { return request_.rank == request_.root; }
    [[nodiscard]] int root_host() const { return placement_.host[static_cast<size_t>(request_.root)]; }
    [[nodiscard]] bool root_carries() const { return rooted(request_.collective) && !in_calls(); }
    /// Where the root sends and gets all lanes, more of them only make more messages.
    [[nodiscard]] uint32_t lanes() const {
        constexpr int kMostOfRoots = 4;
        return static_cast<uint32_t>(root_carries() ? std::min(placement_.most(), kMostOfRoots) : placement_.most());
    }
    /// Who carries a lane on each host.
    [[nodiscard]] std::vector<int> drivers(uint32_t lane) const {
        std::vector<int> drivers;
        for (int of = 0; of < hosts(); ++of)
            drivers.push_back(root_carries() && of == root_host() ? request_.root
                                                                  : placement_.driver(of, static_cast<int>(lane)));
        return drivers;
    }
    /// Who stands for each host: of a call, those that have the root's index.
    [[nodiscard]] std::vector<int> heads() const {
        return drivers(static_cast<uint32_t>(in_calls() ? placement_.local[static_cast<size_t>(request_.root)] : 0));
    }
    [[nodiscard]] int head() const { return heads()[static_cast<size_t>(host())]; }

    void cut(uint32_t blocks, Layout input = Layout::whole, Layout output = Layout::whole) {
        made_.blocks = blocks;
        made_.input = input;
        made_.output = output;
    }
    void cut_by_rank(Layout input, Layout output) { cut(static_cast<uint32_t>(request_.size), input, output); }
    uint32_t scratch_slots(uint32_t slots) { return std::exchange(made_.scratch_slots, made_.scratch_slots + slots); }
    void near(Collective collective, int root, std::vector<Blocks> blocks, Places input, Places output) {
        made_.stages.push_back({Stage::Tier::near, collective, here(), placement_.local[static_cast<size_t>(root)],
                                std::move(blocks), std::move(input), std::move(output), hosts() == 1});
    }
    void far(Collective collective, std::vector<int> group, int root, std::vector<Blocks> blocks, Places input,
             Places output) {
        made_.stages.push_back({Stage::Tier::far, collective, std::move(group), root, std::move(blocks),
                                std::move(input), std::move(output), true});
    }
    void copy_own() {
        const auto own = static_cast<uint32_t>(request_.rank);
        made_.stages.push_back(
            {Stage::Tier::near, Collective::allgather, {request_.rank}, 0, {{own}}, at(kInput), at(kOutput)});
    }

    [[nodiscard]] Places at(Place place) const { return Places(made_.blocks, place); }
    /// All at `place` but this rank's.
    [[nodiscard]] Places at(Place place, Place own) const {
        Places places = at(place);
        places[static_cast<size_t>(request_.rank)] = own;
        return places;
    }
    /// Each in a slot of its own.
    [[nodiscard]] Places in_slots(uint32_t first) const {
        Places places;
        for (uint32_t block = 0; block < made_.blocks; ++block)
            places.push_back(scratch(first + block));
        return places;
    }
    /// The block of its host's i-th rank in the i-th of some slots.
    [[nodiscard]] Places in_slots_of_host(uint32_t first) const {
        Places places;
        for (const int index : placement_.local)
            places.push_back(scratch(first + static_cast<uint32_t>(index)));
        return places;
    }

    /// All blocks for one, `count` of them each for itself.
    [[nodiscard]] std::vector<Blocks> all_as_one() const {
        Blocks all(made_.blocks);
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
    [[nodiscard]] std::vector<Blocks> lanes_of_drivers(const Blocks &order) const {
        std::vector<Blocks> blocks(here().size());
        for (const uint32_t block : order)
            for (uint32_t lane = 0; lane < lanes(); ++lane)
                blocks[lane % here().size()].push_back(lane * static_cast<uint32_t>(order.size()) + block);
        return blocks;
    }
    /// By rank of this host: the ranks whose blocks it drives, those of other hosts among them.
    [[nodiscard]] std::vector<Blocks> ranks_of_drivers() const {
        std::vector<Blocks> blocks(here().size());
        for (const uint32_t of : order_)
            for (size_t lane = 0; lane < placement_.ranks[of].size(); ++lane)
                blocks[lane % here().size()].push_back(static_cast<uint32_t>(placement_.ranks[of][lane]));
        return blocks;
    }
    /// By host: the rank of it whose block a lane carries; none on hosts that have fewer ranks.
    [[nodiscard]] std::vector<Blocks> ranks_of_lane(uint32_t lane) const {
        std::vector<Blocks> blocks;
        for (const std::vector<int> &ranks : placement_.ranks)
            blocks.push_back(lane < ranks.size() ? Blocks{static_cast<uint32_t>(ranks[lane])} : Blocks{});
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
    /// The lanes that this rank carries, where there is anywhere to carry them.
    [[nodiscard]] Blocks driven(uint32_t lanes) const {
        Blocks driven;
        for (uint32_t lane = 0; lane < lanes && hosts() > 1; ++lane)
            if (drivers(lane)[static_cast<size_t>(host())] == request_.rank)
                driven.push_back(lane);
        return driven;
    }

    void allreduce_by_leaders();
    void allreduce_by_lanes();
    void bcast(uint32_t lanes);
    void reduce();
    void allgather_by_leaders();
    void allgather_by_lanes();
    void reduce_scatter_block();
    void gather();
    void scatter();

    const Request &request_;
    const Placement &placement_;
    const Blocks &order_;
    const Carried carried_;
    Composition made_;
};

/// A host's sum is made at its leader, in the output; where there is one rank, it is the input.
void Composer::allreduce_by_leaders() {
    cut(static_cast<uint32_t>(order_.size()));
    if (!alone())
        near(Collective::reduce, here()[0], all_as_one(), at(kInput), at(kOutput));
    if (hosts() > 1 && local() == 0)
        far(Collective::allreduce, drivers(0), 0, one_by_one(0, made_.blocks), at(alone() ? kInput : kOutput),
            at(kOutput));
    if (!alone())
        near(Collective::bcast, here()[0], all_as_one(), at(kOutput), at(kOutput));
}

/// Each driver adds the host's contributions to its lanes, then takes part in each lane's allreduce.
void Composer::allreduce_by_lanes() {
    const auto each = static_cast<uint32_t>(order_.size());
    cut(each * lanes());
    const Places sums = in_calls() ? in_slots(scratch_slots(made_.blocks)) : at(kOutput);
    if (!alone())
        near(Collective::reduce_scatter_block, here()[0], lanes_of_drivers(order_), at(kInput), sums);
    for (const uint32_t lane : driven(lanes()))
        far(Collective::allreduce, drivers(lane), 0, one_by_one(lane * each, each), alone() ? at(kInput) : sums, sums);
    if (!alone())
        near(Collective::allgather, here()[0], lanes_of_drivers(order_), sums, at(kOutput));
}

/// On the root's host the root gives all to all; elsewhere each driver passes on what its lanes bring. With one
/// lane, hosts' heads are the only drivers.
void Composer::bcast(uint32_t lanes) {
    cut(lanes);
    const bool with_root = host() == root_host();
    const bool first = in_calls() && with_root && !alone();
    const Places source = at(is_root() ? kInput : kOutput);
    const auto give = [&] {
        near(Collective::bcast, with_root ? request_.root : head(), all_as_one(), source, at(kOutput));
    };
    if (first)
        give();
    for (const uint32_t lane : driven(lanes))
        far(Collective::bcast, drivers(lane), root_host(), {{lane}}, first ? at(kOutput) : source, at(kOutput));
    if (alone() || first)
        return;
    if (with_root || lanes == 1)
        give();
    else
        near(Collective::allgather, here()[0], lanes_of_drivers({0}), at(kOutput), at(kOutput));
}

/// The other way round, by the heads. Only the root has an output, so hosts' sums lie in scratch elsewhere.
void Composer::reduce() {
    cut(1);
    const bool leads = head() == request_.rank;
    const bool in_output = !in_calls() && (is_root() || hosts() == 1 || !leads);
    const Place partial = alone() ? kInput : in_output ? kOutput : scratch(scratch_slots(1));
    if (!alone())
        near(Collective::reduce, head(), all_as_one(), at(kInput), at(partial));
    if (hosts() > 1 && leads)
        far(Collective::reduce, heads(), root_host(), {{0}}, at(partial), at(is_root() ? kOutput : partial));
}

/// Each rank's block goes to the other hosts in its lane, and there from the lane's driver to all.
void Composer::allgather_by_lanes() {
    cut_by_rank(Layout::single, Layout::whole);
    const Places given = at(kOutput, kInput);
    const Places passed = in_calls() ? at(kOutput) : given;
    for (const uint32_t lane : driven(lanes()))
        far(Collective::allgather, drivers(lane), 0, ranks_of_lane(lane), given, passed);
    if (!in_calls())
        copy_own();
    if (!alone())
        near(Collective::allgather, here()[0], ranks_of_drivers(), passed, at(kOutput));
}

/// Each driver adds the host's contributions to the blocks of its lane's ranks, which end at those ranks.
void Composer::reduce_scatter_block() {
    cut_by_rank(Layout::whole, Layout::single);
    const Places sums = alone() ? at(kInput) : hosts() == 1 ? at(kOutput) : in_slots(scratch_slots(made_.blocks));
    if (!alone())
        near(Collective::reduce_scatter_block, here()[0], ranks_of_drivers(), at(kInput), sums);
    for (const uint32_t lane : driven(lanes()))
        far(Collective::reduce_scatter_block, drivers(lane), 0, ranks_of_lane(lane), sums, at(kOutput));
}

/// Leaders collect their hosts' blocks, exchange them, and pass all of them on.
void Composer::allgather_by_leaders() {
    cut_by_rank(Layout::single, Layout::whole);
    if (!alone())
        near(Collective::gather, here()[0], ranks_here(), at(kInput), at(kOutput));
    else
        copy_own();
    if (hosts() > 1 && local() == 0)
        far(Collective::allgather, drivers(0), 0, ranks_of_hosts(), at(alone() ? kInput : kOutput), at(kOutput));
    if (!alone())
        near(Collective::bcast, here()[0], all_as_one(), at(kOutput), at(kOutput));
}

/// The heads collect their hosts' blocks, and the root theirs.
void Composer::gather() {
    cut_by_rank(Layout::single, Layout::whole);
    const bool leads = head() == request_.rank;
    const bool keeps = leads && !is_root() && !alone();
    const Places collected =
        keeps ? in_slots_of_host(scratch_slots(static_cast<uint32_t>(here().size()))) : at(kOutput);
    if (!alone())
        near(Collective::gather, head(), ranks_here(), at(kInput), collected);
    if (hosts() > 1 && leads)
        far(Collective::gather, heads(), root_host(), ranks_of_hosts(), alone() ? at(kInput) : collected, at(kOutput));
}

/// The other way round.
void Composer::scatter() {
    cut_by_rank(Layout::whole, Layout::single);
    const bool leads = head() == request_.rank;
    const bool keeps = leads && !is_root() && !alone();
    const Places given = is_root() ? at(kInput)
                         : keeps   ? in_slots_of_host(scratch_slots(static_cast<uint32_t>(here().size())))
                                   : at(kOutput);
    if (hosts() > 1 && leads)
        far(Collective::scatter, heads(), root_host(), ranks_of_hosts(), at(kInput), alone() ? at(kOutput) : given);
    if (!alone())
        near(Collective::scatter, head(), ranks_here(), given, at(kOutput));
}

Composition Composer::by_leaders() {
    switch (request_.collective) {
        case Collective::allreduce:
        case Collective::barrier:
            allreduce_by_leaders();
            break;
        case Collective::bcast:
            bcast(1);
            break;
        case Collective::reduce:
            reduce();
            break;
        case Collective::allgather:
            allgather_by_leaders();
            break;
        case Collective::gather:
            gather();
            break;
        case Collective::scatter:
            scatter();
            break;
        default:  // not served
            break;
    }
    return std::move(made_);
}

Composition Composer::by_lanes() {
    switch (request_.collective) {
        case Collective::allreduce:
            allreduce_by_lanes();
            break;
        case Collective::bcast:
            bcast(lanes());
            break;
        case Collective::allgather:
            allgather_by_lanes();
            break;
        case Collective::reduce_scatter_block:
            reduce_scatter_block();
            break;
        default:  // not served
            break;
    }
    return std::move(made_);
}

}  // namespace

Composition compose(Family family, const Request &request, const std::vector<uint32_t> &blocks_between,
                    Carried carried) {
    const Placement one = request.placement == nullptr ? Placement::one_host(request.size) : Placement();
    Composer composer(request, request.placement == nullptr ? one : *request.placement, blocks_between, carried);
    return family == Family::leaders ? composer.by_leaders() : composer.by_lanes();
}

}  // namespace flx::algorithms
