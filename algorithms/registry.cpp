#include "algorithms/registry.h"

#include <algorithm>
#include <array>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

constexpr std::array<std::string_view, 17> kNames = {"allreduce",     "reduce_scatter_block",
                                                     "allgather",     "bcast",
                                                     "reduce",        "barrier",
                                                     "gather",        "scatter",
                                                     "scan",          "exscan",
                                                     "alltoall",      "alltoallv",
                                                     "send_recv",     "gatherv",
                                                     "scatterv",      "allgatherv",
                                                     "reduce_scatter"};

}  // namespace

std::span<const Algorithm> all() {
    // Tables and messages hold the index: append only.
    static const std::array<Algorithm, 19> algorithms = {
        kDirect,         kRing,           kDoubleBinaryTree, kRecursiveDoubling,
        kPrefixChain,    kPrefixDoubling, kBinomialTree,     kLeadersDoubling,
        kLeadersTree,    kLeadersDirect,  kLanesRing,        kLanesDirect,
        kLanesDoubling,  kBruck,          kLeadersBruck,     kRecursiveHalving,
        kLeadersHalving, kLanesHalving,   kLeadersRing};
    return algorithms;
}

const Algorithm *find(std::string_view name) {
    for (const Algorithm &algorithm : all()) {
        if (algorithm.name == name)
            return &algorithm;
    }
    return nullptr;
}

std::string_view name_of(Collective collective) {
    return kNames[static_cast<size_t>(collective)];
}

bool rooted(Collective collective) {
    return collective == Collective::bcast || collective == Collective::reduce || collective == Collective::gather ||
           collective == Collective::scatter;
}

bool reduces(Collective collective) {
    return collective == Collective::allreduce || collective == Collective::reduce_scatter_block ||
           collective == Collective::reduce || collective == Collective::scan || collective == Collective::exscan ||
           collective == Collective::reduce_scatter;
}

Layout input_layout(Collective collective) {
    return collective == Collective::allgather || collective == Collective::gather ? Layout::single : Layout::whole;
}

Layout output_layout(Collective collective) {
    return collective == Collective::reduce_scatter_block || collective == Collective::scatter ? Layout::single
                                                                                               : Layout::whole;
}

std::optional<Collective> scheduled_as(Collective collective) {
    if (static_cast<int>(collective) < kCollectives)
        return collective;
    if (collective == Collective::allgatherv)
        return Collective::allgather;
    if (collective == Collective::reduce_scatter)
        return Collective::reduce_scatter_block;
    return std::nullopt;
}

std::optional<Collective> parse_collective(std::string_view name) {
    for (size_t i = 0; i < kCollectives; ++i) {
        if (kNames[i] == name)
            return static_cast<Collective>(i);
    }
    return std::nullopt;
}

Schedule among(const Algorithm &algorithm, Collective collective, const std::vector<int> &group, int rank, int root) {
    const auto own = std::ranges::find(group, rank) - group.begin();
    Schedule schedule =
        algorithm.build({collective, static_cast<int>(own), static_cast<int>(group.size()), root, nullptr});
    const auto member = [&](int32_t index) { return index < 0 ? index : group[static_cast<size_t>(index)]; };
    for (Step &step : schedule.steps)
        step.peer = member(step.peer);
    for (std::vector<int32_t> &ranks : schedule.groups)
        std::ranges::transform(ranks, ranks.begin(), member);
    return schedule;
}

Schedule alone(Collective collective) {
    Builder builder(1, 1);
    builder.input(input_layout(collective)).output(output_layout(collective));
    if (collective != Collective::exscan)
        builder.copy(0, kInput, kOutput);
    return builder.take();
}

}  // namespace flx::algorithms
