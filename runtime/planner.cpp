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

/// Whether shared memory has ways of its own for it (shm/ways.h).
bool has_shared_ways(Collective collective) {
    return static_cast<int>(collective) < static_cast<int>(Collective::barrier);
}

std::optional<Way> parse_shared_way(std::string_view name) {
    if (name == "streamed")
        return Way::streamed;
    if (name == "fetched")
        return Way::fetched;
    return std::nullopt;
}

std::string known_algorithms(Collective collective, int size) {
    std::string names = has_shared_ways(collective) ? "streamed, fetched" : "";
    for (const Algorithm &algorithm : algorithms::all())
        if (algorithm.serves(collective, size))
            names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm.name);
    return names;
}

/// Whether an algorithm's sums are those of combining in rank order, whichever neighbours are combined first.
bool keeps_order(algorithms::BitClass bits) {
    using enum algorithms::BitClass;
    return bits == rank_order || bits == doubling || bits == chain;
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
    constexpr size_t kTiny = 4U << 10;
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
            if (bytes <= kTiny)
                return "binomial_tree";
            return bytes >= kChainBytesPerRank * static_cast<size_t>(agreed_.size) ? "ring" : "double_binary_tree";
        case Collective::reduce_scatter_block:
        case Collective::allgather:
            return small ? "direct" : "ring";
        case Collective::gather:
        case Collective::scatter:
            return "direct";
        case Collective::scan:
        case Collective::exscan:
            return small && !agreed_.strict ? "prefix_doubling" : "prefix_chain";
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
        if (way && has_shared_ways(*collective) && agreed.hosts == 1) {
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

Choice Planner::choose(Collective collective, size_t bytes, const Needs &needs) const {
    const bool shared = agreed_.hosts == 1 && agreed_.shared_memory && !needs.steps;
    const std::optional<Collective> scheduled = algorithms::scheduled_as(collective);
    if (!scheduled && (collective != Collective::alltoall || !shared))
        return {Way::exchanged, nullptr};
    const auto index = static_cast<size_t>(collective);
    const bool known_to_shared = !scheduled || index <= static_cast<size_t>(Collective::barrier);
    if (!shared || !known_to_shared || (scheduled && forced_[index] != nullptr))
        return by_schedule(*scheduled, bytes, needs);
    return {shared_way(collective, bytes), nullptr};
}

Choice Planner::by_schedule(Collective collective, size_t bytes, const Needs &needs) const {
    const auto *forced = forced_[static_cast<size_t>(collective)];
    const bool reduces = algorithms::reduces(collective);
    const bool scans = collective == Collective::scan || collective == Collective::exscan;
    if (forced != nullptr && !(reduces && needs.in_order && !keeps_order(forced->bits(collective))))
        return {Way::scheduled, forced};
    // In shared memory fused and streamed add in rank order: so does what stands in for them.
    const bool strict = reduces && (agreed_.strict || needs.in_order);
    if (!scans && (agreed_.hosts == 1 || strict))
        return {Way::scheduled, algorithms::find("direct")};
    const std::string_view name = cheapest(collective, bytes);
    // Two ranks: everything is one hop by `direct`, but a sum, which is two.
    const bool one_hop = agreed_.size <= 2 && !scans && name != "recursive_doubling";
    return {Way::scheduled, algorithms::find(one_hop ? std::string_view("direct") : name)};
}

const Plan &Planner::plan(Collective called, const Choice &choice, int root) {
    const Collective collective = *algorithms::scheduled_as(called);
    const bool rooted = algorithms::rooted(collective);
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
