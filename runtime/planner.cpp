#include "planner.h"

#include <algorithm>

#include "telemetry.h"

namespace flx {

using algorithms::Algorithm;
using algorithms::Collective;

namespace {

/// Input of one rank, given the bytes of the whole vector.
size_t input_bytes(Collective collective, size_t bytes, int size) {
    return collective == Collective::allgather ? bytes / size : bytes;
}

std::optional<Way> parse_shared_way(std::string_view name) {
    if (name == "streamed")
        return Way::streamed;
    if (name == "fetched")
        return Way::fetched;
    return std::nullopt;
}

std::string known_algorithms(Collective collective, int size) {
    std::string names = "streamed, fetched";
    for (const Algorithm &algorithm : algorithms::all())
        if (algorithm.serves(collective, size))
            names += fmt::format(", {}", algorithm.name);
    return names;
}

}  // namespace

const char *Choice::name() const {
    switch (way) {
        case Way::fused:
            return "fused";
        case Way::streamed:
            return "streamed";
        case Way::fetched:
            return "fetched";
        case Way::exchanged:
            return "exchange";
        case Way::scheduled:
            break;
    }
    return algorithm->name.data();
}

std::string_view Planner::cheapest(Collective collective, size_t bytes) const {
    constexpr size_t kSmall = 32U << 10;
    constexpr size_t kChainBytesPerRank = 256U << 10;
    const bool small = bytes <= kSmall;
    switch (collective) {
        case Collective::barrier:
            return "recursive_doubling";
        case Collective::allreduce:
            return small ? "recursive_doubling" : "ring";
        case Collective::bcast:
        case Collective::reduce:
            // A chain loads each rank's rails once in each direction and towards one peer; each hop costs its pipeline
            // the time of a few chunks.
            return bytes >= kChainBytesPerRank * static_cast<size_t>(agreed_.size) ? "ring" : "double_binary_tree";
        case Collective::reduce_scatter_block:
        case Collective::allgather:
            return small ? "direct" : "ring";
        default:
            break;
    }
    return "ring";
}

Status Planner::make(int rank, const Agreed &agreed, const std::string &overrides, std::unique_ptr<Planner> &result) {
    auto planner = std::make_unique<Planner>();
    planner->rank_ = rank;
    planner->agreed_ = agreed;
    for (size_t begin = 0; begin < overrides.size();) {
        const size_t end = std::min(overrides.find(',', begin), overrides.size());
        const std::string entry = overrides.substr(begin, end - begin);
        begin = end + 1;
        const size_t colon = entry.find(':');
        const auto collective = algorithms::parse_collective(entry.substr(0, colon));
        if (colon == std::string::npos || !collective) {
            std::string names;
            for (int c = 0; c < algorithms::kCollectives; ++c)
                names += fmt::format("{}{}", c == 0 ? "" : ", ", algorithms::name_of(static_cast<Collective>(c)));
            return fail(
                FLX_ERR_CONFIG,
                "FLX_ALGORITHM has \"{}\"; entries are collective:algorithm, separated by commas, with one of {}",
                entry, names);
        }
        const std::string name = entry.substr(colon + 1);
        const auto index = static_cast<size_t>(*collective);
        const auto way = parse_shared_way(name);
        if (way && *collective != Collective::barrier && agreed.hosts == 1) {
            planner->forced_way_[index] = way;
            planner->forced_[index] = nullptr;
            continue;
        }
        const Algorithm *algorithm = algorithms::find(name);
        if (algorithm == nullptr || !algorithm->serves(*collective, agreed.size))
            return fail(FLX_ERR_CONFIG, "FLX_ALGORITHM has \"{}\"; {} on {} ranks is served by {}", entry,
                        algorithms::name_of(*collective), agreed.size, known_algorithms(*collective, agreed.size));
        planner->forced_[index] = algorithm;
        planner->forced_way_[index].reset();
    }
    result = std::move(planner);
    return {};
}

/// Among those that keep everything in one host's memory.
Way Planner::shared_way(Collective collective, size_t bytes) const {
    if (collective == Collective::barrier)
        return Way::fused;
    const auto index = static_cast<size_t>(collective);
    const auto forced = index < algorithms::kCollectives ? forced_way_[index] : std::nullopt;
    if (forced)
        return *forced == Way::fetched && !agreed_.peer_memory ? Way::streamed : *forced;
    const bool fits = input_bytes(collective, bytes, agreed_.size) <= agreed_.fused_bytes;
    switch (agreed_.ways.at(collective, bytes)) {
        case shm::Way::fused:
            if (fits)
                return Way::fused;
            break;
        case shm::Way::streamed:
            return Way::streamed;
        case shm::Way::fetched:
            break;
    }
    return agreed_.peer_memory ? Way::fetched : Way::streamed;
}

Choice Planner::choose(Collective collective, size_t bytes) const {
    const auto index = static_cast<size_t>(collective);
    const bool exchanged = index >= algorithms::kCollectives;
    if (exchanged && (collective != Collective::alltoall || agreed_.hosts > 1 || !agreed_.shared_memory))
        return {Way::exchanged, nullptr};
    const Choice direct{Way::scheduled, algorithms::find("direct")};
    if (!exchanged && forced_[index] != nullptr)
        return {Way::scheduled, forced_[index]};
    if (agreed_.hosts == 1) {
        if (!agreed_.shared_memory)
            return direct;
        return {shared_way(collective, bytes), nullptr};
    }
    const bool reduces = collective == Collective::allreduce || collective == Collective::reduce_scatter_block ||
                         collective == Collective::reduce;
    if (agreed_.strict && reduces)
        return direct;
    const std::string_view name = cheapest(collective, bytes);
    // Two ranks: everything is one hop by `direct`, but a sum, which is two.
    if (agreed_.size <= 2 && name != "recursive_doubling")
        return direct;
    return {Way::scheduled, algorithms::find(name)};
}

const Plan &Planner::plan(Collective collective, const Choice &choice, int root) {
    const bool rooted = collective == Collective::bcast || collective == Collective::reduce;
    for (const Kept &kept : kept_)
        if (kept.collective == collective && &kept.plan->algorithm() == choice.algorithm &&
            (!rooted || kept.root == root))
            return *kept.plan;
    Telemetry::count(telemetry().allocations);
    kept_.push_back({collective, root,
                     std::make_unique<Plan>(*choice.algorithm,
                                            algorithms::Request{collective, rank_, agreed_.size, rooted ? root : 0})});
    return *kept_.back().plan;
}

}  // namespace flx
