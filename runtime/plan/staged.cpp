#include "runtime/plan/staged.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>

namespace flx {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::CostModel;
using algorithms::Fabric;
using algorithms::Family;
using algorithms::Placement;
using algorithms::StepGraph;
using algorithms::WalkReport;

namespace {

constexpr std::string_view kWithin = "(direct,";
constexpr std::string_view kFused = "(fused,";

const std::map<const Algorithm *, std::string> &names() {
    static const std::map<const Algorithm *, std::string> names = [] {
        std::map<const Algorithm *, std::string> made;
        for (const Algorithm &algorithm : algorithms::all()) {
            const size_t within = algorithm.name.find(kWithin);
            if (algorithm.family != Family::flat && within != std::string_view::npos)
                made[&algorithm] = std::string(algorithm.name).replace(within, kWithin.size(), std::string(kFused));
        }
        made[algorithms::find("bruck")] = "lanes(fused,bruck)";  // of an alltoall
        made[algorithms::find("prefix_chain")] = "leaders(fused,prefix_chain)";
        return made;
    }();
    return names;
}

/// Whether an algorithm's stages are carried out one by one for the collective: by lanes, only what all ranks both give
/// and get. A reduce_scatter_block has no schedule by leaders (algorithms/tiers.h).
bool goes_staged(const Algorithm &algorithm, Collective collective) {
    if (algorithm.family == Family::flat || !names().contains(&algorithm))
        return false;
    if (algorithm.family == Family::lanes)
        return collective == Collective::allreduce && algorithm.serves(collective, 2);
    return algorithm.serves(collective, 2) ||
           (collective == Collective::reduce_scatter_block && algorithm.between_hosts->serves(collective, 2));
}

/// Hosts with one rank each, as what goes between hosts sees them.
Placement one_a_host(int hosts) {
    std::vector<int> of(static_cast<size_t>(hosts));
    std::iota(of.begin(), of.end(), 0);
    return Placement::of(of);
}

}  // namespace

const char *staged_name(const Algorithm *algorithm) {
    return algorithm != nullptr ? names().at(algorithm).c_str() : "lanes(fused,exchange)";
}

bool find_staged(std::string_view name, Collective collective, const Algorithm *&algorithm) {
    const std::vector<const Algorithm *> &all = staged(collective);
    const auto found = std::ranges::find_if(all, [&](const Algorithm *one) { return name == staged_name(one); });
    if (found == all.end())
        return false;
    algorithm = *found;
    return true;
}

const std::vector<const Algorithm *> &staged(Collective collective) {
    static const auto all = [] {
        std::array<std::vector<const Algorithm *>, algorithms::kCollectives> all;
        for (const Collective scheduled : algorithms::kScheduled)
            for (const Algorithm &algorithm : algorithms::all())
                if (goes_staged(algorithm, scheduled))
                    all[algorithms::index_of(scheduled)].push_back(&algorithm);
        all[algorithms::index_of(Collective::alltoall)] = {nullptr, algorithms::find("bruck"),
                                                           algorithms::find("leaders(direct,direct)"),
                                                           algorithms::find("leaders(direct,bruck)")};
        for (const Collective messages : {Collective::alltoallv, Collective::gatherv, Collective::scatterv})
            all[algorithms::index_of(messages)] = {algorithms::find("leaders(direct,direct)")};
        all[algorithms::index_of(Collective::alltoallv)].push_back(nullptr);
        for (const Collective scan : {Collective::scan, Collective::exscan})
            all[algorithms::index_of(scan)] = {algorithms::find("prefix_chain")};
        return all;
    }();
    return all[algorithms::index_of(collective)];
}

bool may_stage_messages(Collective collective) {
    return equal_blocks_of(collective) != collective;
}

Collective equal_blocks_of(Collective collective) {
    switch (collective) {
        case Collective::alltoallv:
            return Collective::alltoall;
        case Collective::gatherv:
            return Collective::gather;
        case Collective::scatterv:
            return Collective::scatter;
        default:
            break;
    }
    return collective;
}

namespace {

/// Of each length that is shown.
constexpr size_t kLength = sizeof(uint32_t);

}  // namespace

/// Lengths of what it sends and receives, and the former; of a gatherv or scatterv one length, and in the first of them
/// the block.
size_t shown_messages(Collective collective, const Placement &placement, size_t longest) {
    const auto ranks = static_cast<size_t>(placement.size());
    return collective == Collective::alltoallv ? ranks * (2 * kLength + longest)
           : collective == Collective::gatherv ? kLength + longest
                                               : kLength;
}

/// Where each rank's part begins, and the parts: of an alltoallv what comes from other hosts for all but the head.
size_t dealt_messages(Collective collective, const Placement &placement, size_t longest) {
    const auto ranks = static_cast<size_t>(placement.size());
    size_t most = 0;
    for (const std::vector<int> &here : placement.ranks)
        most = std::max(most, collective == Collective::alltoallv
                                  ? here.size() * kLength + (here.size() - 1) * (ranks - here.size()) * longest
                                  : here.size() * (kLength + longest));
    return collective == Collective::gatherv ? 0 : most;
}

namespace {

bool by_leaders(const Algorithm *algorithm) {
    return algorithm != nullptr && algorithm->family == Family::leaders;
}

/// Of an alltoall: whether its messages between hosts go in rounds.
bool in_rounds(const Algorithm *algorithm) {
    return algorithm != nullptr && (by_leaders(algorithm) ? *algorithm->between_hosts : *algorithm).name == "bruck";
}

/// Of an alltoall: the most blocks that a rank shows. By leaders all that it has, and what came for its host; by lanes
/// as many for each of its host as for the one that collects most.
size_t shown_blocks(const Algorithm *algorithm, const Placement &placement) {
    const auto all = static_cast<size_t>(placement.size());
    size_t most = by_leaders(algorithm) ? all : 0;
    if (by_leaders(algorithm)) {
        for (const std::vector<int> &ranks : placement.ranks)
            most = std::max(most, (ranks.size() - 1) * (all - ranks.size()));
        return most;
    }
    for (const std::vector<int> &ranks : placement.ranks) {
        size_t collected = 0;
        for (const std::vector<int> &others : placement.ranks)
            collected += (others.size() + ranks.size() - 1) / ranks.size();
        most = std::max(most, ranks.size() * collected);
    }
    return most;
}

}  // namespace

size_t longest_staged(Collective collective, const Algorithm *algorithm, const Placement &placement, size_t payload) {
    size_t longest = 0;
    for (size_t each = 64; shown_messages(collective, placement, each) <= payload &&
                           (!by_leaders(algorithm) || dealt_messages(collective, placement, each) <= payload);
         each *= 2)
        longest = each;
    return longest;
}

bool fits_staged(Collective collective, const Algorithm *algorithm, size_t bytes, const Placement &placement,
                 size_t payload) {
    const auto ranks = static_cast<size_t>(placement.size());
    if (may_stage_messages(collective))
        return (bytes + ranks - 1) / ranks <= longest_staged(collective, algorithm, placement, payload);
    const auto most = static_cast<size_t>(placement.most());
    switch (collective) {
        case Collective::barrier:
            return payload != 0;
        case Collective::scan:
        case Collective::exscan:
            return placement.in_order() && bytes <= payload;
        case Collective::allgather:
        case Collective::gather:
            return bytes / ranks <= payload;
        case Collective::reduce_scatter_block:
        case Collective::scatter:
            return bytes / ranks * most <= payload;
        case Collective::alltoall:
            if (in_rounds(algorithm) && (placement.hosts() == 2 || most * placement.ranks.size() != ranks))
                return false;  // rounds need hosts that are alike, and are one message between two
            return bytes / ranks * shown_blocks(algorithm, placement) <= payload;
        default:
            break;
    }
    // What leaders add and pass on goes in pieces; a lane's part does not.
    return payload != 0 && (algorithm == nullptr || algorithm->family != Family::lanes || bytes <= payload);
}

namespace {

/// What a rank does within its host, of a vector of `bytes`: it waits for the others so many times, copies and adds so
/// many bytes.
struct Within {
    int waits;
    double copied;
    double added;
};

Within within(Collective collective, const Algorithm *algorithm, double bytes, const Placement &placement) {
    const auto most = static_cast<double>(placement.most());
    const double block = bytes / placement.size();
    switch (collective) {
        case Collective::allreduce:
            return algorithm->family == Family::lanes ? Within{2, 2 * bytes, bytes}
                                                      : Within{2, 2 * bytes, most * bytes};
        case Collective::barrier:
            return {2, 0, 0};
        case Collective::reduce:
            return {1, bytes, most * bytes};
        case Collective::bcast:
            return {1, 2 * bytes, 0};
        case Collective::allgather:
            return {2, most * block + 3 * bytes, 0};
        case Collective::reduce_scatter_block:
            return {2, bytes + most * block, most * bytes};
        case Collective::gather:
        case Collective::scatter:
            return {1, 2 * most * block, 0};
        case Collective::alltoall:
            // Shown, and put in the order of messages; by leaders the head does that for all, and shows what came.
            return by_leaders(algorithm) ? Within{2, 2 * bytes + 2 * most * bytes, 0} : Within{1, 4 * bytes, 0};
        case Collective::scan:
        case Collective::exscan:  // one host after the other
            return {placement.hosts(), 2 * bytes * placement.hosts(), most * bytes * placement.hosts()};
        default:
            break;
    }
    return {};
}

/// Messages that a rank sends, and gets as many, one after the other: work for all of them, and one way.
double messages_ns(double messages, double bytes, const CostModel &costs) {
    return costs.far.latency_ns + messages * (costs.far.send_ns + costs.far.receive_ns) +
           2 * bytes / costs.copy_bytes_per_ns;
}

/// Costs where everyone sends to everyone over a fabric: of what a group of hosts sends, the part for others shares
/// what leads out of it.
CostModel spread(CostModel costs, const Fabric &fabric, int hosts) {
    double slower = 1;
    for (const algorithms::Level &level : fabric.levels) {
        if (level.hosts >= hosts)
            continue;
        slower = std::max(slower, level.taper * (hosts - level.hosts) / (hosts - 1));
        costs.far.latency_ns += level.latency_ns;
    }
    costs.far.bytes_per_ns /= slower;
    return costs;
}

/// Costs of a host's ranks that take so many times as long.
CostModel slowed(CostModel costs, double times) {
    for (algorithms::TierCost *tier : {&costs.near, &costs.far}) {
        tier->send_ns *= times;
        tier->receive_ns *= times;
    }
    costs.alone_ns *= times;
    costs.near.bytes_per_ns /= times;
    costs.copy_bytes_per_ns /= times;
    costs.add_bytes_per_ns /= times;
    return costs;
}

/// What a host sends in the round of Bruck's that goes `distance` hosts far, with `part` bytes for each other host.
double sent_in_round(unsigned distance, int hosts, double part) {
    double sent = 0;
    for (unsigned to = distance; to < static_cast<unsigned>(hosts); ++to)
        sent += (to & distance) != 0 ? part : 0;
    return sent;
}

/// What each of those that carry for their hosts has for a host: `part` bytes.
double alltoall_ns(bool rounds, int hosts, double part, const CostModel &costs) {
    if (!rounds)
        return messages_ns(hosts - 1, (hosts - 1) * part, costs) + (hosts - 1) * part / costs.far.bytes_per_ns;
    double ns = 0;
    for (unsigned bit = 1; bit < static_cast<unsigned>(hosts); bit *= 2) {
        const double sent = sent_in_round(bit, hosts, part);
        const bool answered = 2 * bit == static_cast<unsigned>(hosts);
        ns += messages_ns(1, 2 * sent, costs) + (answered ? 0 : 2 * costs.alone_ns) + sent / costs.far.bytes_per_ns;
    }
    return ns;
}

/// What a host's rails get of an alltoall, where each of `senders` has so many bytes for each other host.
WalkReport alltoall_report(bool rounds, int hosts, double senders, double part) {
    double sent = (hosts - 1) * part;
    double longest = part;
    if (rounds) {
        sent = 0;
        for (unsigned bit = 1; bit < static_cast<unsigned>(hosts); bit *= 2) {
            const double of_round = sent_in_round(bit, hosts, part);
            sent += of_round;
            longest = std::max(longest, of_round);
        }
    }
    WalkReport report;
    report.far_bytes = hosts * senders * sent;
    report.far_block = longest;
    return report;
}

/// `report`: bytes between hosts, and of the longest message; null: not asked for.
double between_ns(Collective collective, const Algorithm *algorithm, double bytes, const Placement &placement,
                  const CostModel &costs, const Fabric &fabric, WalkReport *report) {
    const int hosts = placement.hosts();
    const double most = placement.most();
    const CostModel all =
        collective == Collective::alltoall ? slowed(spread(costs, fabric, hosts), fabric.slow.times) : costs;
    if (collective == Collective::barrier)
        collective = Collective::allreduce;  // of one element
    if (collective == Collective::scan || collective == Collective::exscan)
        return algorithms::predict_ns(StepGraph(*algorithm, Collective::scan, one_a_host(hosts)),
                                      static_cast<size_t>(bytes), all, fabric, report);
    if (by_leaders(algorithm)) {
        if (collective == Collective::alltoall) {
            if (report != nullptr)
                *report = alltoall_report(in_rounds(algorithm), hosts, 1, bytes / hosts * most);
            return alltoall_ns(in_rounds(algorithm), hosts, bytes / hosts * most, all);
        }
        return algorithms::predict_ns(StepGraph(*algorithm->between_hosts, collective, one_a_host(hosts)),
                                      static_cast<size_t>(bytes), all, fabric, report);
    }
    // All lanes at a time, through the same rails, which are busy with a message as well as with its bytes.
    constexpr double kRailsPart = 0.25;
    CostModel lane = all;
    lane.far.bytes_per_ns /= most;
    lane.far.send_ns *= 1 + (most - 1) * kRailsPart;
    lane.far.receive_ns *= 1 + (most - 1) * kRailsPart;
    if (collective == Collective::alltoall) {
        if (report != nullptr)
            *report = alltoall_report(in_rounds(algorithm), hosts, most, bytes / hosts);
        return alltoall_ns(in_rounds(algorithm), hosts, bytes / hosts, lane);
    }
    const double ns = algorithms::predict_ns(StepGraph(*algorithm->between_hosts, collective, one_a_host(hosts)),
                                             static_cast<size_t>(bytes / most), lane, fabric, report);
    if (report != nullptr)
        report->far_bytes *= most;
    return ns;
}

}  // namespace

double predict_staged_ns(Collective collective, const Algorithm *algorithm, size_t bytes, const Placement &placement,
                         const CostModel &costs, const Fabric &fabric, WalkReport *report) {
    collective = equal_blocks_of(collective);
    const auto all = static_cast<double>(bytes);
    const Within near = within(collective, algorithm, all, placement);
    // Nobody who waits within the host looks at rails meanwhile.
    const double near_ns = near.waits * (costs.wait_ns + placement.most() * costs.wait_rank_ns) +
                           near.copied / costs.near.bytes_per_ns + near.added / costs.add_bytes_per_ns;
    return fabric.slow.times * near_ns + between_ns(collective, algorithm, all, placement, costs, fabric, report);
}

double predict_exchange_ns(size_t bytes, const Placement &placement, const CostModel &costs, const Fabric &fabric,
                           WalkReport *report) {
    const CostModel all = slowed(spread(costs, fabric, placement.hosts()), fabric.slow.times);
    const double most = placement.most();
    const double away = placement.size() - most;
    const double block = static_cast<double>(bytes) / placement.size();
    if (report != nullptr) {
        report->far_bytes = placement.size() * away * block;
        report->far_block = block;
    }
    const double near_ns = 2 * (most - 1) * (all.near.send_ns + block / all.near.bytes_per_ns);
    return near_ns + messages_ns(away, away * block, all) + most * away * block / all.far.bytes_per_ns;
}

}  // namespace flx
