#include "algorithms/registry.h"

#include <algorithm>
#include <array>

#include "algorithms/builder.h"
#include "algorithms/written.h"

namespace flx::algorithms {

BitClass Algorithm::bits(Collective collective) const {
    // Where ranks go round with the root, the order of addition does, too.
    if (written != nullptr)
        return !reduces(collective) ? BitClass::none : rooted(collective) ? BitClass::own : written->bits;
    return bits_of(collective);
}

bool Algorithm::serves(Collective collective, int size) const {
    if (written != nullptr)
        return collective == written->collective && size == written->size();
    return serves_size(collective, size);
}

Schedule Algorithm::build(const Request &request) const {
    if (written != nullptr)
        return schedule_of(*written, request.rank, request.root);
    return build_for(request);
}

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

uint64_t identity_of(const Algorithm &algorithm) {
    if (algorithm.written != nullptr)
        return algorithm.written->identity;
    return static_cast<uint64_t>(&algorithm - all().data()) + 1;
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
