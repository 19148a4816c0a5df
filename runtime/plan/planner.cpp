#include "runtime/plan/planner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/base/counters.h"

namespace flx {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::predict_ns;
using shm::input_bytes;

namespace {

/// Whether shared memory has ways of its own for it (ways.h).
bool has_shared_ways(Collective collective) {
    return static_cast<int>(collective) < static_cast<int>(Collective::barrier) || collective == Collective::alltoall;
}

bool is_scan(Collective collective) {
    return collective == Collective::scan || collective == Collective::exscan;
}

/// The collectives that are fused where they are small, and are never streamed.
bool has_fused_way(Collective collective) {
    using enum Collective;
    return is_scan(collective) || collective == gather || collective == scatter || collective == allgatherv ||
           collective == reduce_scatter;
}

/// How the ways that are no schedules are called.
constexpr std::array kWays = {std::pair{"fused", Way::fused}, std::pair{"streamed", Way::streamed},
                              std::pair{"fetched", Way::fetched}, std::pair{"exchange", Way::exchanged}};

bool has_way(Collective collective, int hosts, Way way) {
    if (way == Way::exchanged)
        return collective == Collective::alltoall;
    const bool fused = collective == Collective::barrier || has_fused_way(collective);
    const bool fetched = has_fused_way(collective);
    return hosts == 1 &&
           (has_shared_ways(collective) || (fused && way == Way::fused) || (fetched && way == Way::fetched));
}

std::string known_algorithms(Collective collective, const Agreed &agreed) {
    std::string names;
    const auto add = [&](std::string_view name) { names.append(names.empty() ? "" : ", ").append(name); };
    for (const auto &[name, way] : kWays)
        if (has_way(collective, agreed.hosts, way))
            add(name);
    if (algorithms::scheduled_as(collective))
        for (const Algorithm &algorithm : algorithms::all())
            if (algorithm.serves(collective, agreed.size))
                add(algorithm.name);
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

algorithms::CostModel nominal_costs() {
    return {.near = {.latency_ns = 300, .message_ns = 150, .bytes_per_ns = 8},
            .far = {.latency_ns = 5000, .message_ns = 4000, .bytes_per_ns = 1},
            .copy_bytes_per_ns = 8,
            .add_bytes_per_ns = 10};
}

const Algorithm *Planner::cheapest(Collective collective, size_t bytes) const {
    const Algorithm *predicted = predict(collective, bytes);
    return predicted != nullptr ? predicted : algorithms::find(cheapest_flat(collective, bytes));
}

namespace {

/// Sizes that are chosen for alike: by powers of two, between those that hardly cost more than a message and those that
/// cost nothing else than bytes.
int size_class(size_t bytes) {
    constexpr int kLeast = 6;
    constexpr int kMost = 27;
    return std::clamp(static_cast<int>(std::bit_width(bytes)), kLeast, kMost);
}

/// The size for which those of one class are reckoned.
size_t middle_of_class(size_t bytes) {
    return size_t{3} << (size_class(bytes) - 2);
}

/// What a flat algorithm sends between hosts hangs on how ranks lie, and is more than the least: it must be clearly
/// faster to be taken.
double weighed(const Algorithm &algorithm, double ns) {
    constexpr double kClearly = 1.2;
    return algorithm.between_hosts == nullptr ? kClearly * ns : ns;
}

}  // namespace

std::vector<Planner::Candidate> Planner::candidates(Collective collective, size_t bytes) const {
    std::vector<Candidate> result;
    const algorithms::Placement &placement = agreed_.placement;
    if (placement.size() != agreed_.size || placement.hosts() == 1 || placement.most() == 1)
        return result;
    const size_t middle = middle_of_class(bytes);
    for (const Algorithm &algorithm : algorithms::all())
        if (algorithm.serves(collective, agreed_.size))
            result.push_back({&algorithm, predict_ns(algorithm, collective, placement, middle, agreed_.costs)});
    std::ranges::stable_sort(result, {}, &Candidate::ns);
    return result;
}

/// In which order sums are added follows from arguments and placement alone, so from nominal costs. Among those that
/// add in one order, and for what only moves data, measured costs decide. Null where no algorithm knows hosts.
const Algorithm *Planner::predict(Collective collective, size_t bytes) const {
    const auto [kept, made] = predicted_.try_emplace({collective, size_class(bytes)}, nullptr);
    if (!made)
        return kept->second;
    std::vector<Candidate> all = candidates(collective, bytes);
    for (Candidate &one : all)
        one.ns = weighed(*one.algorithm, one.ns);
    std::ranges::stable_sort(all, {}, &Candidate::ns);
    const auto knows_hosts = [](const Candidate &one) { return one.algorithm->between_hosts != nullptr; };
    if (std::ranges::none_of(all, knows_hosts))
        return nullptr;
    kept->second = all.front().algorithm;
    if (!algorithms::reduces(collective))
        return kept->second;
    const size_t middle = middle_of_class(bytes);
    const algorithms::CostModel nominal = nominal_costs();
    const Algorithm *best = nullptr;
    double least = 0;
    for (const Candidate &one : all) {
        const double ns =
            weighed(*one.algorithm, predict_ns(*one.algorithm, collective, agreed_.placement, middle, nominal));
        // Equal ones in the order of the registry.
        if (best == nullptr || ns < least || (ns == least && one.algorithm < best)) {
            best = one.algorithm;
            least = ns;
        }
    }
    const auto same_order = [&](const Candidate &one) {
        return one.algorithm == best ||
               (best->between_hosts != nullptr && one.algorithm->between_hosts == best->between_hosts);
    };
    kept->second = std::ranges::find_if(all, same_order)->algorithm;
    return kept->second;
}

std::string_view Planner::cheapest_flat(Collective collective, size_t bytes) const {
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
    std::vector<Rule> rules;
    FLX_TRY(parse_rules(overrides, rules));
    for (Rule &rule : rules)
        FLX_TRY(planner->force(std::move(rule)));
    result = std::move(planner);
    return {};
}

Status Planner::force(Rule rule) {
    const Collective collective = rule.collective;
    for (const auto &[name, way] : kWays) {
        if (rule.name != name || !has_way(collective, agreed_.hosts, way))
            continue;
        // A page of each rank is all that it has.
        const bool fits =
            collective == Collective::barrier ||
            (rule.end != SIZE_MAX && input_bytes(collective, rule.end - 1, agreed_.size) <= agreed_.fused_bytes);
        if (way == Way::fused && !fits)
            return fail(
                FLX_ERR_CONFIG,
                "FLX_ALGORITHM has \"{}\"; fused serves inputs of up to FLX_FUSED_BYTES, here {}: say {}:fused@-{}",
                rule.entry, agreed_.fused_bytes, algorithms::name_of(collective), agreed_.fused_bytes + 1);
        forced_.push_back({std::move(rule), {way, nullptr}});
        return {};
    }
    const Algorithm *algorithm = algorithms::scheduled_as(collective) ? algorithms::find(rule.name) : nullptr;
    if (algorithm == nullptr || !algorithm->serves(collective, agreed_.size))
        return fail(FLX_ERR_CONFIG, "FLX_ALGORITHM has \"{}\"; {} on {} ranks is served by {}", rule.entry,
                    algorithms::name_of(collective), agreed_.size, known_algorithms(collective, agreed_));
    forced_.push_back({std::move(rule), {Way::scheduled, algorithm}});
    return {};
}

const Choice *Planner::forced(Collective collective, size_t bytes) const {
    const auto last = std::find_if(forced_.rbegin(), forced_.rend(),
                                   [&](const Forced &one) { return one.rule.covers(collective, bytes); });
    return last == forced_.rend() ? nullptr : &last->choice;
}

bool Planner::fits_fused(Collective collective, size_t bytes, const Needs &needs) const {
    const size_t input = collective == Collective::allgatherv && needs.longest != 0
                             ? needs.longest
                             : input_bytes(*algorithms::scheduled_as(collective), bytes, agreed_.size);
    return input <= agreed_.fused_bytes;
}

/// Among those that keep everything in one host's memory.
Choice Planner::by_shared_way(Collective collective, size_t bytes) const {
    if (collective == Collective::barrier)
        return {Way::fused, nullptr};
    const Way unfused = agreed_.peer_memory ? Way::fetched : Way::streamed;
    const Choice *forced = this->forced(collective, bytes);
    if (forced != nullptr)
        return {forced->way == Way::fetched ? unfused : forced->way, nullptr};
    const shm::Way way = agreed_.ways.at(collective, bytes);
    const bool fits = input_bytes(collective, bytes, agreed_.size) <= agreed_.fused_bytes;
    if (way == shm::Way::fused && fits)
        return {Way::fused, nullptr, true};
    return {way == shm::Way::streamed ? Way::streamed : unfused, nullptr, true};
}

Choice Planner::choose(Collective collective, size_t bytes, const Needs &needs) const {
    const bool shared = agreed_.hosts == 1 && agreed_.shared_memory && !needs.steps;
    const std::optional<Collective> scheduled = algorithms::scheduled_as(collective);
    if (!scheduled && (collective != Collective::alltoall || !shared))
        return {Way::exchanged, nullptr};
    const Choice *forced = scheduled ? this->forced(*scheduled, bytes) : nullptr;
    if (!shared || (forced != nullptr && forced->way == Way::scheduled))
        return by_schedule(*scheduled, bytes, needs);
    if (has_fused_way(collective)) {
        if (fits_fused(collective, bytes, needs) && (forced == nullptr || forced->way == Way::fused))
            return {Way::fused, nullptr};
        if (agreed_.peer_memory)
            return {Way::fetched, nullptr};
        return by_schedule(*scheduled, bytes, needs);
    }
    return by_shared_way(collective, bytes);
}

Choice Planner::by_schedule(Collective collective, size_t bytes, const Needs &needs) const {
    const Choice *wanted = this->forced(collective, bytes);
    const Algorithm *forced = wanted == nullptr ? nullptr : wanted->algorithm;
    const bool reduces = algorithms::reduces(collective);
    const bool scans = is_scan(collective);
    if (forced != nullptr && !(reduces && needs.in_order && !keeps_order(forced->bits(collective))))
        return {Way::scheduled, forced};
    // The fused and streamed ways of shared memory add in rank order, and so does what stands in for them.
    const bool strict = reduces && (agreed_.strict || needs.in_order);
    if (!scans && (agreed_.hosts == 1 || strict))
        return {Way::scheduled, algorithms::find("direct")};
    // Fused scans combine as a chain does.
    const Algorithm *algorithm =
        scans && agreed_.hosts == 1 ? algorithms::find("prefix_chain") : cheapest(collective, bytes);
    // Two ranks: everything is one hop by `direct`, but a sum, which is two.
    const bool one_hop = agreed_.size <= 2 && !scans && algorithm->name != "recursive_doubling";
    return {Way::scheduled, one_hop ? algorithms::find("direct") : algorithm};
}

const Plan &Planner::plan(Collective called, const Choice &choice, int root) {
    const Collective collective = *algorithms::scheduled_as(called);
    const bool rooted = algorithms::rooted(collective);
    for (const Kept &kept : kept_)
        if (kept.collective == collective && &kept.plan->algorithm() == choice.algorithm &&
            (!rooted || kept.root == root))
            return *kept.plan;
    Telemetry::count(telemetry().allocations);
    kept_.push_back(
        {collective, root,
         std::make_unique<Plan>(*choice.algorithm, algorithms::Request{collective, rank_, agreed_.size,
                                                                       rooted ? root : 0, &agreed_.placement})});
    return *kept_.back().plan;
}

}  // namespace flx
