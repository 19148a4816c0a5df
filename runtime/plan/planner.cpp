#include "runtime/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/counters.h"
#include "runtime/base/log.h"
#include "runtime/plan/staged.h"
#include "runtime/schedules/loaded.h"

namespace flx {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::InMemory;
using algorithms::predict_ns;
using shm::input_bytes;

namespace {

/// How the ways that are no schedules are called.
constexpr std::array kWays = {std::pair{"fused", Way::fused}, std::pair{"streamed", Way::streamed},
                              std::pair{"fetched", Way::fetched}, std::pair{"exchange", Way::exchanged}};

bool has_way(Collective collective, int hosts, Way way) {
    if (way == Way::exchanged)
        return collective == Collective::alltoall || may_stage_messages(collective);
    const InMemory least = way == Way::fused ? InMemory::fused : way == Way::fetched ? InMemory::direct : InMemory::all;
    return hosts == 1 && algorithms::traits_of(collective).in_memory >= least;
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
    if (agreed.staged_bytes != 0)
        for (const Algorithm *algorithm : staged(collective))
            add(staged_name(algorithm));
    return names;
}

constexpr std::string_view kFile = "file:";

/// The schedules of a file that a rule names (read_rule_files); null where it names something else.
const schedules::Loaded *loaded_by(const Rule &rule) {
    return rule.name.starts_with(kFile) ? schedules::find_loaded(rule.name.substr(kFile.size())) : nullptr;
}

/// Schedules of a file are for so many ranks, and if it says so, on these hosts.
Status check_shape(const Rule &rule, const algorithms::Written &written, const Agreed &agreed) {
    if (written.size() != agreed.size)
        return fail(Fault::algorithm_rule,
                    "FLX_ALGORITHM has \"{}\", schedules for {} ranks, and the communicator has {}", rule.entry,
                    written.size(), agreed.size);
    const std::vector<int> hosts = algorithms::Placement::of(written.host_of).host;
    if (!hosts.empty() && agreed.placement.size() == agreed.size && hosts != agreed.placement.host)
        return fail(Fault::algorithm_rule,
                    "FLX_ALGORITHM has \"{}\", schedules for ranks on hosts {}, and here they are on hosts {}",
                    rule.entry, fmt::join(hosts, ","), fmt::join(agreed.placement.host, ","));
    return {};
}

/// Whether a communicator of some other shape could follow the rule.
bool serves_elsewhere(const Rule &rule) {
    constexpr int kManySizes = 64;
    if (loaded_by(rule) != nullptr)
        return true;
    for (const auto &[name, way] : kWays)
        if (rule.name == name && has_way(rule.collective, 1, way))
            return way != Way::fused || rule.end != SIZE_MAX || rule.collective == Collective::barrier;
    const Algorithm *algorithm = nullptr;
    if (find_staged(rule.name, rule.collective, algorithm))
        return true;
    algorithm = algorithms::scheduled_as(rule.collective) ? algorithms::find(rule.name) : nullptr;
    for (int size = 1; algorithm != nullptr && size <= kManySizes; ++size)
        if (algorithm->serves(rule.collective, size))
            return true;
    return false;
}

/// Once in a process for each rule: programs make many communicators.
void say_left_out(const Rule &rule, const Status &why) {
    static std::mutex mutex;
    static std::set<std::string> said;
    const std::lock_guard lock(mutex);
    if (said.insert(rule.entry).second)
        log().warn("A communicator of a part of the program's ranks goes without a rule that does not serve it: {}",
                   why.sentence());
}

/// Whether two that know hosts add in the same order. In a ring each block has an order of its own, and an allreduce by
/// lanes cuts the vector into other blocks than one by leaders.
bool add_alike(const Algorithm &one, const Algorithm &other, Collective collective) {
    return one.between_hosts != nullptr && one.between_hosts == other.between_hosts &&
           (one.family == other.family || collective != Collective::allreduce ||
            one.between_hosts->bits(collective) != algorithms::BitClass::ring);
}

/// Whether an algorithm's sums are those of combining in rank order, whichever neighbours are combined first.
bool keeps_order(algorithms::BitClass bits) {
    using enum algorithms::BitClass;
    return bits == rank_order || bits == doubling || bits == chain;
}

}  // namespace

const char *Choice::name() const {
    if (way == Way::staged)
        return staged_name(algorithm);
    return way == Way::scheduled ? algorithm->name.data() : name_of(way);
}

algorithms::CostModel nominal_costs() {
    return {.near = {.latency_ns = 2500, .send_ns = 800, .receive_ns = 800, .bytes_per_ns = 8},
            .far = {.latency_ns = 4000, .send_ns = 6000, .receive_ns = 3000, .bytes_per_ns = 1},
            .copy_bytes_per_ns = 8,
            .add_bytes_per_ns = 10};
}

Choice Planner::cheapest(Collective collective, size_t bytes, bool steps) const {
    const Choice predicted = predict(collective, bytes, steps);
    if (predicted.way == Way::staged || predicted.algorithm != nullptr)
        return predicted;
    return {Way::scheduled, algorithms::find(cheapest_flat(collective, bytes))};
}

namespace {

/// Sizes that are chosen for alike: by powers of two, between those that hardly cost more than a message and those that
/// cost nothing else than bytes.
int size_class(size_t bytes) {
    constexpr int kLeast = 6;
    constexpr int kMost = 27;
    return std::clamp(static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)), kLeast, kMost);
}

/// The largest size of a class. The last one has no end; what is chosen for one of its sizes holds for all.
size_t top_of_class(size_t bytes) {
    constexpr size_t kNoEnd = size_t{1} << 48;
    const int its = size_class(bytes);
    return its == size_class(kNoEnd) ? kNoEnd : size_t{1} << its;
}

/// The size for which those of one class are reckoned.
size_t middle_of_class(size_t bytes) {
    return size_t{3} << (size_class(bytes) - 2);
}

/// What a flat algorithm sends between hosts hangs on how ranks lie, and is more than the least: it must be clearly
/// faster to be taken. Scans that follow each other overlap on a chain, and not in rounds. Schedules of leaders leave
/// all that a host sends and gets to one core, which the kernel needs, too.
double weighed(const Planner::Candidate &one) {
    constexpr double kFlat = 1.2;
    constexpr double kLeaders = 1.1;
    constexpr double kRounds = 2;
    if (one.choice.way != Way::scheduled || one.choice.algorithm->family == algorithms::Family::lanes)
        return one.ns;
    if (one.choice.algorithm->name == "prefix_doubling")
        return one.ns * kRounds;
    return one.ns * (one.choice.algorithm->family == algorithms::Family::flat ? kFlat : kLeaders);
}

}  // namespace

/// Whether what sizes of its class show within a host has room there, by one of the ways.
bool Planner::may_stage(Collective collective, size_t bytes) const {
    if (agreed_.staged_bytes == 0)
        return false;
    const std::vector<const Algorithm *> &all = staged(collective);
    return std::ranges::any_of(all, [&](const Algorithm *algorithm) {
        return fits_staged(collective, algorithm, top_of_class(bytes), agreed_.placement, agreed_.staged_bytes);
    });
}

/// All that could carry it out between hosts of several ranks, by measured costs and, with the room that ranks usually
/// have to show their host something, by nominal ones. What is too large to be reckoned is left out, on all ranks
/// alike.
Planner::Reckoned Planner::reckon(Collective collective, size_t bytes) const {
    Reckoned result;
    const algorithms::Placement &placement = agreed_.placement;
    if (placement.size() != agreed_.size || placement.hosts() == 1 || placement.most() == 1)
        return result;
    const size_t middle = middle_of_class(bytes);
    const bool nominal = algorithms::reduces(collective);
    const algorithms::CostModel costs = nominal_costs();
    const auto add = [](std::vector<Candidate> &to, const Choice &choice, double ns) {
        if (std::isfinite(ns))
            to.push_back({choice, ns});
    };
    for (const Algorithm &algorithm : algorithms::all()) {
        if (!algorithm.serves(collective, agreed_.size))
            continue;
        const algorithms::StepGraph graph(algorithm, collective, placement);
        add(result.measured, {Way::scheduled, &algorithm}, predict_ns(graph, middle, agreed_.costs));
        if (nominal)
            add(result.nominal, {Way::scheduled, &algorithm}, predict_ns(graph, middle, costs));
    }
    if (has_way(collective, placement.hosts(), Way::exchanged))
        add(result.measured, {Way::exchanged, nullptr}, exchange_ns(collective, middle));
    for (const Algorithm *algorithm : staged(collective)) {
        const Choice choice{Way::staged, algorithm};
        if (fits_staged(collective, algorithm, top_of_class(bytes), placement, agreed_.staged_bytes))
            add(result.measured, choice, predict_staged_ns(collective, algorithm, middle, placement, agreed_.costs));
        if (nominal && fits_staged(collective, algorithm, top_of_class(bytes), placement, kStagedBytes))
            add(result.nominal, choice, predict_staged_ns(collective, algorithm, middle, placement, costs));
    }
    return result;
}

const Planner::Reckoned &Planner::reckoned(Collective collective, size_t bytes) const {
    const std::pair key{collective, size_class(bytes)};
    const auto kept = reckoned_.find(key);
    return kept != reckoned_.end() ? kept->second : reckoned_.emplace(key, reckon(collective, bytes)).first->second;
}

/// Those of files that rules name for the size. Where others have a predicted time, they have.
void Planner::add_loaded(Collective collective, size_t bytes, std::vector<Candidate> &result) const {
    const bool predicted = !result.empty() && result.front().ns > 0;
    for (const Forced &one : forced_) {
        const Algorithm *algorithm = one.choice.algorithm;
        if (algorithm == nullptr || algorithm->written == nullptr ||
            !one.rule.covers(algorithms::scheduled_as(collective).value_or(collective), bytes))
            continue;
        const size_t middle = middle_of_class(bytes);
        result.push_back(
            {one.choice,
             predicted ? predict_ns(*algorithm, one.rule.collective, agreed_.placement, middle, agreed_.costs) : 0});
    }
}

std::vector<Planner::Candidate> Planner::candidates(Collective collective, size_t bytes) const {
    std::vector<Candidate> result = reckoned(collective, bytes).measured;
    if (!result.empty())
        add_loaded(collective, bytes, result);
    std::ranges::stable_sort(result, {}, &Candidate::ns);
    return result;
}

std::vector<Planner::Candidate> Planner::all_candidates(Collective collective, size_t bytes) const {
    std::vector<Candidate> result = candidates(collective, bytes);
    if (!result.empty())
        return result;
    const std::optional<Collective> scheduled = algorithms::scheduled_as(collective);
    if (!scheduled || collective == Collective::alltoall)
        result.push_back({{Way::exchanged, nullptr}, 0});
    const auto add = [&](Way way, bool there) {
        if (there && agreed_.shared_memory && has_way(collective, agreed_.hosts, way))
            result.push_back({{way, nullptr}, 0});
    };
    add(Way::fused, collective == Collective::barrier || (scheduled && fits_fused(collective, bytes, {})));
    add(Way::streamed, true);
    add(Way::fetched, agreed_.peer_memory);
    for (const Algorithm &algorithm : algorithms::all())
        if (scheduled && algorithm.serves(*scheduled, agreed_.size))
            result.push_back({{Way::scheduled, &algorithm}, 0});
    add_loaded(collective, bytes, result);
    return result;
}

/// Among those that add in one order, and for what only moves data, measured costs decide. Without an algorithm where
/// no algorithm knows hosts.
Choice Planner::predict(Collective collective, size_t bytes, bool steps) const {
    const bool stages = !steps && may_stage(collective, bytes);
    return once(collective, bytes, stages, [&] { return least_of(collective, bytes, stages); });
}

template <typename Make>
Choice Planner::once(Collective collective, size_t bytes, bool stages, const Make &make) const {
    const std::tuple key{collective, size_class(bytes), stages};
    const auto kept = predicted_.find(key);
    return kept != predicted_.end() ? kept->second : predicted_.emplace(key, make()).first->second;
}

Choice Planner::least_of(Collective collective, size_t bytes, bool stages) const {
    const std::vector<Candidate> &nominal = reckoned(collective, bytes).nominal;
    const std::vector<Candidate> all = candidates(collective, bytes);
    const auto knows_hosts = [](const Candidate &one) {
        return one.choice.way == Way::staged || one.choice.algorithm->family != algorithms::Family::flat;
    };
    if (std::ranges::none_of(all, knows_hosts) && std::ranges::none_of(nominal, knows_hosts))
        return {};
    // The algorithm in whose order sums are added follows from arguments and placement alone, so from nominal costs.
    // Equal ones in the order of the registry.
    const auto first = std::ranges::min_element(nominal, {}, weighed);
    const bool scans = collective == Collective::scan || collective == Collective::exscan;
    const Algorithm *order = first == nominal.end()    ? nullptr
                             : scans && agreed_.strict ? algorithms::find("prefix_chain")
                                                       : first->choice.algorithm;
    const auto same_order = [&](const Algorithm *algorithm) {
        return order == nullptr || algorithm == order || add_alike(*algorithm, *order, collective);
    };
    const Candidate *best = nullptr;
    for (const Candidate &one : all)
        if ((stages || one.choice.way != Way::staged) && same_order(one.choice.algorithm) &&
            (best == nullptr || weighed(one) < weighed(*best)))
            best = &one;
    if (best != nullptr)
        return best->choice;
    if (order == nullptr)
        return {};
    return {Way::scheduled, adds_alike(*order, collective)};  // what adds in that order is too large to be reckoned
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
    for (const Rule &rule : rules) {
        Status forced = planner->force(rule);
        if (!forced.ok() && (!agreed.part || !serves_elsewhere(rule)))
            return forced;
        if (!forced.ok() && rank == 0)
            say_left_out(rule, forced);
    }
    result = std::move(planner);
    return {};
}

Status Planner::force(const Rule &rule) {
    const Collective collective = rule.collective;
    if (const schedules::Loaded *loaded = loaded_by(rule)) {
        FLX_TRY(check_shape(rule, loaded->written, agreed_));
        forced_.push_back({rule, {Way::scheduled, &loaded->algorithm}});
        return {};
    }
    for (const auto &[name, way] : kWays) {
        if (rule.name != name || !has_way(collective, agreed_.hosts, way))
            continue;
        // A page of each rank is all that it has.
        const bool fits =
            collective == Collective::barrier ||
            (rule.end != SIZE_MAX && input_bytes(collective, rule.end - 1, agreed_.size) <= agreed_.fused_bytes);
        if (way == Way::fused && !fits)
            return fail(
                Fault::algorithm_rule,
                "FLX_ALGORITHM has \"{}\"; fused serves inputs of up to FLX_FUSED_BYTES, here {}: say {}:fused@-{}",
                rule.entry, agreed_.fused_bytes, algorithms::name_of(collective), agreed_.fused_bytes + 1);
        forced_.push_back({rule, {way, nullptr}});
        return {};
    }
    const Algorithm *algorithm = nullptr;
    if (agreed_.staged_bytes != 0 && find_staged(rule.name, collective, algorithm)) {
        forced_.push_back({rule, {Way::staged, algorithm}});
        return {};
    }
    algorithm = algorithms::scheduled_as(collective) ? algorithms::find(rule.name) : nullptr;
    if (algorithm == nullptr || !algorithm->serves(collective, agreed_.size))
        return fail(Fault::algorithm_rule, "FLX_ALGORITHM has \"{}\"; {} on {} ranks is served by {}", rule.entry,
                    algorithms::name_of(collective), agreed_.size, known_algorithms(collective, agreed_));
    forced_.push_back({rule, {Way::scheduled, algorithm}});
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
    const Way unfused = agreed_.peer_memory ? Way::fetched : Way::streamed;
    const Choice *forced = this->forced(collective, bytes);
    if (forced != nullptr)
        return {forced->way == Way::fetched ? unfused : forced->way, nullptr};
    const shm::Way way = agreed_.ways.at(collective, bytes);
    const bool by_table = shm::Ways::size_index(bytes).has_value();
    const bool fits = input_bytes(collective, bytes, agreed_.size) <= agreed_.fused_bytes;
    if (way == shm::Way::fused && fits)
        return {Way::fused, nullptr, by_table};
    return {way == shm::Way::streamed ? Way::streamed : unfused, nullptr, by_table};
}

Choice Planner::choose(Collective collective, size_t bytes, const Needs &needs) const {
    const bool shared = agreed_.hosts == 1 && agreed_.shared_memory && !needs.steps;
    const std::optional<Collective> scheduled = algorithms::scheduled_as(collective);
    if (!scheduled && (collective != Collective::alltoall || !shared))
        return choose_exchange(collective, bytes, needs);
    const Choice *forced = scheduled ? this->forced(*scheduled, bytes) : nullptr;
    if (!shared || (forced != nullptr && forced->way == Way::scheduled)) {
        const Choice choice = by_schedule(*scheduled, bytes, needs);
        // Blocks of other lengths may have no room where equal ones have.
        if (choice.way != Way::staged || needs.longest <= agreed_.staged_bytes)
            return choice;
        Needs steps = needs;
        steps.steps = true;
        return by_schedule(*scheduled, bytes, steps);
    }
    const InMemory in_memory = algorithms::traits_of(collective).in_memory;
    if (in_memory == InMemory::all)
        return by_shared_way(collective, bytes);
    const bool fits = collective == Collective::barrier || fits_fused(collective, bytes, needs);
    if (in_memory != InMemory::no && fits && (forced == nullptr || forced->way == Way::fused))
        return {Way::fused, nullptr};
    if (in_memory == InMemory::direct && agreed_.peer_memory)
        return {Way::fetched, nullptr};
    return by_schedule(*scheduled, bytes, needs);
}

const char *Planner::name(Collective collective, size_t bytes, const Needs &needs) const {
    const Choice choice = choose(collective, bytes, needs);
    if (choice.way != Way::staged || !may_stage_messages(collective))
        return choice.name();
    const auto ranks = static_cast<size_t>(agreed_.size);
    const size_t each = (bytes + ranks - 1) / ranks;
    return each > choice.by_lanes     ? name_of(Way::exchanged)
           : each > choice.by_leaders ? staged_name(nullptr)
                                      : choice.name();
}

/// What has no schedule: messages between pairs of ranks, or an alltoall whose messages go by hosts.
Choice Planner::choose_exchange(Collective collective, size_t bytes, const Needs &needs) const {
    constexpr Choice kExchange{Way::exchanged, nullptr};
    if (may_stage_messages(collective) && !needs.steps && agreed_.staged_bytes != 0)
        return once(collective, 0, true, [&] { return choose_by_hosts(collective); });
    if (collective != Collective::alltoall || needs.steps || !may_stage(collective, bytes))
        return kExchange;
    if (const Choice *forced = this->forced(collective, bytes)) {
        const bool fits = forced->way != Way::staged ||
                          fits_staged(collective, forced->algorithm, bytes, agreed_.placement, agreed_.staged_bytes);
        return fits ? *forced : kExchange;
    }
    return once(collective, bytes, true, [&] { return candidates(collective, bytes).front().choice; });
}

/// Each message by itself.
double Planner::exchange_ns(Collective collective, size_t bytes) const {
    const Collective equal = equal_blocks_of(collective);
    return equal == Collective::alltoall
               ? predict_exchange_ns(bytes, agreed_.placement, agreed_.costs)
               : predict_ns(*algorithms::find("direct"), equal, agreed_.placement, bytes, agreed_.costs);
}

/// Messages are sent by hosts while an alltoall, a gather or a scatter of blocks of their length would be expected to
/// take less time so. No rank knows the lengths of others, so both ends tell by that of each message. Where a rule says
/// how, all that have room go so.
Choice Planner::choose_by_hosts(Collective collective) const {
    const Algorithm *leaders = algorithms::find("leaders(direct,direct)");
    const algorithms::Placement &placement = agreed_.placement;
    Choice choice{Way::exchanged, nullptr};
    if (placement.size() != agreed_.size || placement.hosts() < 2 || placement.most() == 1)
        return choice;
    const auto longest = [&](const Algorithm *by) {
        return longest_staged(collective, by, placement, agreed_.staged_bytes);
    };
    const auto predicted = [&](const Algorithm *by, size_t bytes) {
        return predict_staged_ns(collective, by, bytes, placement, agreed_.costs);
    };
    const size_t most_led = longest(leaders);
    if (const Choice *forced = this->forced(collective, 0)) {
        const size_t most = forced->way != Way::staged ? 0 : longest(forced->algorithm);
        if (most != 0)
            choice = {.way = Way::staged,
                      .algorithm = forced->algorithm,
                      .by_leaders = forced->algorithm == nullptr ? 0 : most,
                      .by_lanes = most};
        return choice;
    }
    const bool by_lanes = collective == Collective::alltoallv;
    const size_t most = by_lanes ? longest(nullptr) : most_led;
    for (size_t each = 64; each <= most; each *= 2) {
        const size_t bytes = each * static_cast<size_t>(agreed_.size);
        const double led_ns =
            each <= most_led && choice.by_lanes == choice.by_leaders ? predicted(leaders, bytes) : INFINITY;
        const double lanes_ns = by_lanes ? predicted(nullptr, bytes) : INFINITY;
        if (std::min(led_ns, lanes_ns) > exchange_ns(collective, bytes))
            break;
        choice = {.way = Way::staged,
                  .algorithm = leaders,
                  .by_leaders = led_ns <= lanes_ns ? each : choice.by_leaders,
                  .by_lanes = each};
    }
    return choice;
}

/// One that has a schedule, and the order of sums of one that only goes stage by stage.
const Algorithm *Planner::adds_alike(const Algorithm &algorithm, Collective collective) const {
    if (algorithm.serves(collective, agreed_.size))
        return &algorithm;
    const std::span all = algorithms::all();
    const auto found = std::ranges::find_if(all, [&](const Algorithm &one) {
        return one.between_hosts == algorithm.between_hosts && one.serves(collective, agreed_.size);
    });
    return found == all.end() ? nullptr : &*found;
}

Choice Planner::by_schedule(Collective collective, size_t bytes, const Needs &needs) const {
    const Choice *wanted = this->forced(collective, bytes);
    const Algorithm *forced = wanted == nullptr ? nullptr : wanted->algorithm;
    const bool reduces = algorithms::reduces(collective);
    const bool scans = collective == Collective::scan || collective == Collective::exscan;
    if (wanted != nullptr && wanted->way == Way::staged && !needs.steps && !needs.in_order &&
        fits_staged(collective, wanted->algorithm, bytes, agreed_.placement, agreed_.staged_bytes))
        return *wanted;
    if (forced != nullptr && !forced->serves(collective, agreed_.size))
        forced = adds_alike(*forced, collective);
    if (forced != nullptr && !(reduces && needs.in_order && !keeps_order(forced->bits(collective))))
        return {Way::scheduled, forced};
    // The fused and streamed ways of shared memory add in rank order, and so does what stands in for them.
    const bool strict = reduces && (agreed_.strict || needs.in_order);
    if (!scans && (agreed_.hosts == 1 || strict))
        return {Way::scheduled, algorithms::find("direct")};
    // Fused scans combine as a chain does.
    if (scans && agreed_.hosts == 1)
        return {Way::scheduled, algorithms::find("prefix_chain")};
    const Choice choice = cheapest(collective, bytes, needs.steps);
    // Two ranks: everything is one hop by `direct`, but a sum, which is two.
    const bool one_hop = agreed_.size <= 2 && !scans && choice.algorithm->name != "recursive_doubling";
    return one_hop ? Choice{Way::scheduled, algorithms::find("direct")} : choice;
}

const Plan &Planner::plan(Collective called, const Choice &choice, int root) {
    const Collective collective = *algorithms::scheduled_as(called);
    const bool rooted = algorithms::rooted(collective);
    for (const Kept &kept : kept_)
        if (kept.collective == collective && kept.group.empty() && &kept.plan->algorithm() == choice.algorithm &&
            (!rooted || kept.root == root))
            return *kept.plan;
    Telemetry::count(telemetry().allocations);
    kept_.push_back(
        {collective,
         root,
         {},
         std::make_unique<Plan>(*choice.algorithm, algorithms::Request{collective, rank_, agreed_.size,
                                                                       rooted ? root : 0, &agreed_.placement})});
    return *kept_.back().plan;
}

const Plan &Planner::plan_among(const Algorithm &algorithm, Collective collective, const std::vector<int> &group,
                                int root) {
    for (const Kept &kept : kept_)
        if (kept.collective == collective && kept.root == root && &kept.plan->algorithm() == &algorithm &&
            kept.group == group)
            return *kept.plan;
    Telemetry::count(telemetry().allocations);
    kept_.push_back({collective, root, group,
                     std::make_unique<Plan>(algorithm, algorithms::among(algorithm, collective, group, rank_, root),
                                            rank_, agreed_.size)});
    return *kept_.back().plan;
}

}  // namespace flx
