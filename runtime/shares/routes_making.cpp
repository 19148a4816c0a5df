/// How routes come to be: which links lead to each host, which of them are this rank's own, and what is believed of
/// them at first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/base/log.h"
#include "runtime/shares/routes.h"

namespace flx {
namespace {

/// On a machine without a free core a probe of some ms may see next to nothing of a rail, thousands of times its rate
/// of another whose receiver took all at once, and peers that answer late. Until it has carried something no rail is
/// taken to be so much slower or further away than the best that it would carry nothing, and be judged by an offer's
/// chunks.
void distrust(std::vector<LinkEstimate> &rails) {
    constexpr double kMostRatio = 16;
    constexpr double kLatencyRatio = 4;
    constexpr double kNear = 2e6;  // ns; on a network that may be so at any time
    double nearest = std::numeric_limits<double>::infinity();
    double alone = 0;
    double together = 0;
    for (const LinkEstimate &rail : rails) {
        alone = rail.usable ? std::max(alone, rail.bytes_per_ns) : alone;
        together = rail.usable ? std::max(together, rail.together_bytes_per_ns) : together;
        nearest = rail.usable ? std::min(nearest, rail.latency_ns) : nearest;
    }
    for (LinkEstimate &rail : rails) {
        if (!rail.usable || rail.bytes_per_ns <= 0)
            continue;
        rail.latency_ns = std::min(rail.latency_ns, std::max(kLatencyRatio * nearest, kNear));
        rail.bytes_per_ns = std::max(rail.bytes_per_ns, alone / kMostRatio);
        if (rail.together_bytes_per_ns > 0)
            rail.together_bytes_per_ns = std::max(rail.together_bytes_per_ns, together / kMostRatio);
    }
}

}  // namespace

Status Routes::exchange_links(Bootstrap &bootstrap) {
    uint32_t mine = 0;
    for (size_t l = 0; l < links_.size(); ++l)
        mine |= links_[l].link != nullptr ? 1U << l : 0;
    have_.resize(static_cast<size_t>(layout_.size));
    return bootstrap.allgather(&mine, sizeof mine, have_.data());
}

/// None where that would change nothing: with one rank on the host, or one rail.
Status Routes::choose_own_rail(const Config &config, std::byte *ledger) {
    ledger_ = ledger;
    const std::string &lend = config.text("FLX_LEND");
    if (ledger_ == nullptr || lend == "off")
        return {};
    std::vector<size_t> rails;  // of this host, to others
    for (size_t l = 1; l < links_.size(); ++l)
        for (int peer = 0; peer < layout_.size; ++peer)
            if (!layout_.near(peer) && reaches(l, peer)) {
                rails.push_back(l);
                break;
            }
    const std::string &wanted = config.text("FLX_OWN_RAIL");
    if (rails.size() < 2 || wanted == "none")
        return {};
    size_t own = rails[layout_.own().local % rails.size()];
    if (wanted != "auto") {
        const auto named = std::find_if(rails.begin(), rails.end(), [&](size_t l) { return links_[l].name == wanted; });
        if (named == rails.end()) {
            std::vector<std::string> names;
            for (const size_t l : rails)
                names.push_back(links_[l].name);
            return fail(Fault::unknown_link, "FLX_OWN_RAIL is {}; the rails of rank {} are {}", wanted, layout_.rank,
                        fmt::join(names, ", "));
        }
        own = *named;
    }
    own_rail_ = static_cast<int>(own);
    log().info("rank {} owns rail {}{}", layout_.rank, links_[own].name,
               lend == "own" ? " and uses no other" : " and borrows the others while they are idle");
    return {};
}

Status Routes::exchange_owners(Bootstrap &bootstrap) {
    const uint32_t mine = own_rail_ >= 0 ? 1U << own_rail_ : 0;
    owned_.assign(static_cast<size_t>(layout_.size), 0);
    return layout_.size == 1 ? Status() : bootstrap.allgather(&mine, sizeof mine, owned_.data());
}

void Routes::lend(const Config &config) {
    // Receivers tell senders of their owners, so whoever has a ledger takes part, also without a rail of its own.
    const bool any = std::any_of(owned_.begin(), owned_.end(), [](uint32_t owned) { return owned != 0; });
    if (!any || ledger_ == nullptr || config.text("FLX_LEND") != "on")
        return;
    std::vector<Lending::Member> members(static_cast<size_t>(layout_.size));
    for (int rank = 0; rank < layout_.size; ++rank)
        members[rank] = {layout_.host_of(rank), owned_[rank]};
    lending_ = std::make_unique<Lending>(ledger_, layout_.rank, std::move(members), layout_.hosts,
                                         static_cast<uint32_t>(config.integer("FLX_LEND_CHUNKS")));
    for (size_t l = 1; l < links_.size(); ++l) {
        if (links_[l].link == nullptr)
            continue;
        const LinkMeasured &far = links_[l].far;
        auto lent = std::make_unique<LentLink>(
            std::move(links_[l].link), *lending_, static_cast<int>(l),
            far.done ? LentLink::Believed{far.bytes_per_ns, far.latency_ns} : LentLink::Believed{});
        lent_.push_back(lent.get());
        links_[l].link = std::move(lent);
    }
}

/// Not where shares are to stay as they are. How much a rail lets pass at once is not measured.
void Routes::start_bursts() {
    constexpr double kBucketNs = 10e6;  // of its rate: what shapers and switches often have
    std::array<Bucket, kMaxLinks> buckets{};
    for (size_t l = 0; l < links_.size(); ++l) {
        const LinkMeasured &far = links_[l].far;
        if (links_[l].is_rail() && far.done)
            buckets[l] = {kBucketNs * far.host_bytes_per_ns, far.burst_bytes_per_ns, far.host_bytes_per_ns};
    }
    bursts_.start(buckets, layout_.hosts, layout_.here, loads_, records_);
}

Status Routes::make(const Config &config, const PartitionVector &forced) {
    routes_.resize(static_cast<size_t>(layout_.hosts));
    for (int peer = 0; peer < layout_.size; ++peer)
        if (peer != layout_.rank)
            route(peer).peers.push_back(peer);
    forced_ = forced.links != 0;
    lost_.assign(static_cast<size_t>(layout_.size), 0);
    is_unshown_.assign(static_cast<size_t>(layout_.size), false);
    unshown_.reserve(static_cast<size_t>(layout_.size));
    counted_.reserve(static_cast<size_t>(layout_.size));
    sampled_.reserve(static_cast<size_t>(layout_.hosts));
    for (int host = 0; host < layout_.hosts; ++host)
        if (!routes_[host].peers.empty())
            FLX_TRY(make_route(host, config, forced));
    for (size_t l = 0; l < links_.size(); ++l) {
        std::vector<double> shares(links_.size());
        shares[l] = 1;
        whole_[l] = make_partition(shares);
    }
    if (!forced_ && config.integer("FLX_FROZEN") == 0)
        start_bursts();
    lend(config);
    return {};
}

Status Routes::make_route(int host, const Config &config, const PartitionVector &forced) {
    Route &route = routes_[host];
    route.told.resize(kSizeClasses);
    const bool near = host == layout_.host;
    const auto reaches_every = [&](size_t l) {
        return std::all_of(route.peers.begin(), route.peers.end(), [&](int peer) { return reaches(l, peer); });
    };
    // Where there are other hosts, rails are for them: within a host they only take cores and memory from what goes
    // through shared memory, and from the rails' own traffic. On one host TCP is memory as well, by a longer way: a
    // probe that prefers it was disturbed. Who names links may have reasons.
    const bool may_share = !forced_ && near && links_[0].near.done && reaches_every(0);
    const std::string &allowed = config.text("FLX_LINKS");
    const bool named = allowed != "auto" && !allowed.empty();
    // Where the own rail leads, others' are not used unless they are lent.
    const bool own_only = own_rail_ >= 0 && config.text("FLX_LEND") == "own" && !near && reaches_every(own_rail_);
    uint32_t usable = 0;
    uint32_t left_to_memory = 0;
    for (size_t l = 0; l < links_.size(); ++l) {
        const bool to_memory = may_share && l != 0 && (layout_.hosts > 1 || (links_[l].is_tcp && !named));
        if (to_memory && reaches_every(l))
            left_to_memory |= 1U << l;
        if (reaches_every(l) && (!own_only || static_cast<int>(l) == own_rail_) && !to_memory)
            usable |= 1U << l;
    }
    if (usable == 0 && left_to_memory == 0)
        return no_common_link(host);
    if (forced_)
        FLX_TRY(force(route, config, forced, usable));
    else
        estimate(host, usable, left_to_memory, config.integer("FLX_FROZEN") != 0);
    learns_ = learns_ || std::popcount(route.links) > 1;
    for (uint32_t mask = route.links; mask != 0; mask &= mask - 1)
        seen_[std::countr_zero(mask)].resize(static_cast<size_t>(layout_.size));
    return {};
}

/// Each rank of a host is reached, but by no link that reaches all of them.
Status Routes::no_common_link(int host) const {
    std::vector<std::string> ranks;
    for (const int peer : routes_[host].peers) {
        std::vector<std::string> names;
        for (size_t l = 0; l < links_.size(); ++l)
            if (reaches(l, peer))
                names.push_back(links_[l].name);
        ranks.push_back(fmt::format("{} by {}", layout_.describe(peer),
                                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    return fail(Fault::no_common_link,
                "no link leads from {} to all ranks that it needs one to on a host: it reaches {}; FLX_RAILS and "
                "FLX_LINKS must allow one that all of them have",
                layout_.describe(layout_.rank), fmt::join(ranks, ", "));
}

Status Routes::force(Route &route, const Config &config, const PartitionVector &forced, uint32_t usable) {
    ControllerOptions options;
    options.frozen = true;
    std::vector<double> shares(links_.size());
    double sum = 0;
    for (size_t l = 0; l < links_.size(); ++l) {
        shares[l] = (usable >> l & 1) != 0 ? forced.share(static_cast<int>(l)) : 0;
        sum += shares[l];
        route.links |= shares[l] > 0 ? 1U << l : 0;
    }
    if (sum <= 0)
        return fail(Fault::partition_empty,
                    "FLX_PARTITION {} gives no share to a link that reaches {}; at least one of those must have one",
                    config.text("FLX_PARTITION"), layout_.describe(route.peers.front()));
    route.controller = std::make_unique<Controller>(make_partition(shares), options);
    return {};
}

/// Within a host the set of links is fixed by what all ranks measured, so that nobody polls in vain.
void Routes::estimate(int host, uint32_t usable, uint32_t left_to_memory, bool frozen) {
    Route &route = routes_[host];
    const bool near = host == layout_.host;
    ControllerOptions options;
    options.frozen = frozen;
    options.burst_ns = 40e6;  // a shaper's bucket is often 10 ms of its rate
    if (near) {
        options.burst_ns = 0;
        constexpr double kGainWithinHost = 0.2;  // what is real there is far from the threshold, noise is not
        options.explore_every = 0;
        options.min_gain = kGainWithinHost;
    }
    const auto may = [&](size_t l) { return (usable >> l & 1) != 0; };
    // Whoever sends gets a chunk as well, and each has an acknowledgement.
    constexpr double kMessages = 4;
    std::vector<LinkEstimate> estimates;
    bool any = false;
    for (size_t l = 0; l < links_.size(); ++l) {
        const LinkMeasured &measured = near ? links_[l].near : links_[l].far;
        estimates.push_back({measured.latency_ns, measured.bytes_per_ns, measured.together_bytes_per_ns,
                             may(l) && measured.done, measured.small_ns, near ? 0 : kMessages * measured.send_ns});
        any = any || estimates.back().usable;
    }
    if (!near)
        distrust(estimates);
    if (!any && near && may(0)) {
        // Ranks of a busy host may have answered too late; what is theirs together carries all the same.
        log().info("shared memory was not measured: no rank of this host answered in time");
        for (size_t l = 0; l < links_.size(); ++l)
            estimates[l] = {.usable = l == 0};
        links_[0].why_off.clear();
    } else if (!any) {
        // Machines that are busy may answer too late to be measured. What reaches the peers must do.
        log().warn("no link to host {} answered while links were measured; all that reach it are taken as alike",
                   layout_.members[route.peers.front()].hostname);
        for (size_t l = 0; l < links_.size(); ++l) {
            estimates[l] = {};
            estimates[l].usable = may(l);
            if (estimates[l].usable)
                links_[l].why_off.clear();
        }
    }
    route.controller = std::make_unique<Controller>(estimates, options);
    if (near && may(0) && !route.controller->verdict(0).on) {
        // Rails within a host go through the same memory: a probe that prefers them was disturbed.
        for (size_t l = 1; l < estimates.size(); ++l)
            estimates[l].usable = false;
        estimates[0].usable = true;  // also where only the rails could be measured
        route.controller = std::make_unique<Controller>(estimates, options);
    }
    take_verdicts(host, usable);
    for (size_t l = 0; l < links_.size(); ++l)
        if (layout_.hosts == 1 && (left_to_memory >> l & 1) != 0 && links_[l].why_off.empty())
            links_[l].why_off = fmt::format(
                "within one host TCP goes through the memory that ranks share ({:.2f} GB/s alone, {} {:.2f})",
                links_[l].near.bytes_per_ns, links_[0].name, links_[0].near.bytes_per_ns);
}

/// Which of the links that may carry to a host do, and why the others do not.
void Routes::take_verdicts(int host, uint32_t usable) {
    Route &route = routes_[host];
    const std::vector<std::string> names = names_of(links_);
    for (size_t l = 0; l < links_.size(); ++l) {
        if ((usable >> l & 1) == 0)
            continue;
        const LinkVerdict verdict = route.controller->verdict(static_cast<int>(l), names);
        if (verdict.on || host != layout_.host)
            route.links |= 1U << l;
        if (!verdict.on && links_[l].why_off.empty())
            links_[l].why_off = verdict.why;
    }
}

Status Routes::exchange(Bootstrap &bootstrap) {
    outgoing_.assign(static_cast<size_t>(layout_.hosts), 0);
    for (int host = 0; host < layout_.hosts; ++host) {
        outgoing_[host] = routes_[host].links;
        // What a lost rail took goes over any other, whether it has a share or not.
        bool rails = false;
        uint32_t others = 0;
        for (size_t l = 0; l < links_.size(); ++l) {
            if (!links_[l].is_rail() || routes_[host].peers.empty())
                continue;
            rails = rails || (routes_[host].links >> l & 1) != 0;
            others |= 1U << l;
        }
        outgoing_[host] |= rails ? others : 0;
    }
    std::vector<uint32_t> all(outgoing_.size() * static_cast<size_t>(layout_.size));
    FLX_TRY(bootstrap.allgather(outgoing_.data(), outgoing_.size() * sizeof(uint32_t), all.data()));
    incoming_.assign(static_cast<size_t>(layout_.size), 0);
    for (int peer = 0; peer < layout_.size; ++peer) {
        if (peer == layout_.rank)
            continue;
        for (uint32_t mask = all[peer * outgoing_.size() + layout_.host]; mask != 0; mask &= mask - 1)
            if (const int link = std::countr_zero(mask); reaches(link, peer))
                incoming_[peer] |= 1U << link;
    }
    return {};
}

}  // namespace flx
