#include "runtime/shares/routes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"

namespace flx {

namespace {

/// What is smaller goes over one rail anyway, and empties no bucket.
constexpr size_t kLeastWhole = 4 << 10;

}  // namespace

bool Routes::reaches(size_t link, int peer) const {
    return links_[link].link && links_[link].link->reaches(peer) && has(peer, link);
}

/// What an exchange sends to another host waits on the own rail, from where others take it while they are idle. What is
/// too short to be cut goes where it is quickest there.
bool Routes::begins_on_own_rail(int peer, size_t bytes) const {
    return lending_ != nullptr && opens_exchange_ && bytes > Lending::kFreeBytes && lending_->is_far(peer) &&
           own_rail_ >= 0 && (route(peer).links >> own_rail_ & 1) != 0 && (lost_[peer] >> own_rail_ & 1) == 0;
}

uint32_t Routes::takers(int peer, size_t bytes) const {
    return begins_on_own_rail(peer, bytes) ? route(peer).links & ~1U & ~lost_[peer] : 0;
}

const PartitionVector &Routes::vector(int peer, size_t bytes, int phase) {
    if (begins_on_own_rail(peer, bytes)) {
        last_vector_ = whole_[own_rail_];
        return whole_[own_rail_];
    }
    Route &route = this->route(peer);
    const PartitionVector *vector = &route.controller->vector(bytes, phase);
    if (bursts_.any() && !layout_.near(peer) && bytes > kLeastWhole) {
        const int link = bursts_.take(layout_.host_of(peer), *vector, bytes, now_ns());
        if (link >= 0 && vector->only() != link) {
            route.shared = route.shared || (route.whole >= 0 && route.whole != link);
            route.whole = link;
            vector = &whole_[link];
        } else {
            route.shared = true;
        }
    }
    last_vector_ = *vector;
    return *vector;
}

uint32_t Routes::may_use(int peer) const {
    return outgoing_[static_cast<size_t>(layout_.host_of(peer))] | incoming_[static_cast<size_t>(peer)];
}

bool Routes::open_exchange(const Outward &outward, bool alike) {
    if (alike && outward.even && outward.longest >= kLeastCut)
        return false;
    if (lending_ != nullptr)
        lending_->enter(outward.bytes);
    opens_exchange_ = true;
    return true;
}

void Routes::end_exchanges() {
    if (lending_ == nullptr)
        return;
    for (LentLink *link : lent_)
        link->leave();
    lending_->leave();
}

/// Notes, in each route, what its links carried to it since this was done last. A communicator has many more peers than
/// an operation sends to, so nothing here is done for each of them.
void Routes::take_samples() {
    for (const int host : sampled_) {
        routes_[host].samples = {};
        routes_[host].sampled = false;
    }
    sampled_.clear();
    for (size_t index = 0; index < links_.size(); ++index)
        if (!seen_[index].empty())
            read_counters(index);
    std::ranges::sort(sampled_);
    for (size_t index = 0; index < links_.size(); ++index) {
        const auto users = static_cast<int>(
            std::ranges::count_if(sampled_, [&](int host) { return routes_[host].samples[index].bytes != 0; }));
        if (users == 0)
            continue;
        const LinkCounters now = links_[index].link->timed();
        const LinkCounters before = std::exchange(timed_[index], now);
        for (const int host : sampled_)
            routes_[host].samples[index] = fair_sample(routes_[host].samples[index],
                                                       {now.bytes - before.bytes, now.busy_ns - before.busy_ns}, users);
    }
    pool_samples();
}

void Routes::read_counters(size_t index) {
    if (links_[index].link->take_counted(counted_)) {
        for (const int peer : counted_)
            read_counters(index, peer);
        return;
    }
    for (int peer = 0; peer < layout_.size; ++peer)
        if (peer != layout_.rank)
            read_counters(index, peer);
}

void Routes::read_counters(size_t index, int peer) {
    Route &route = this->route(peer);
    if ((route.links >> index & 1) == 0)
        return;
    const LinkCounters counters = links_[index].link->counters(peer);
    const LinkSample now{counters.bytes - counters.untimed_bytes, counters.busy_ns};
    const LinkSample before = std::exchange(seen_[index][peer], now);
    if (now.bytes == before.bytes && now.busy_ns == before.busy_ns)
        return;
    route.samples[index].bytes += now.bytes - before.bytes;
    route.samples[index].busy_ns += now.busy_ns - before.busy_ns;
    if (!std::exchange(route.sampled, true))
        sampled_.push_back(layout_.host_of(peer));
    if (!is_unshown_[peer]) {
        is_unshown_[peer] = true;
        unshown_.push_back(peer);
    }
}

/// Tells controllers the least latencies that acknowledgements have shown, one way, where they may be others than when
/// this was done last.
void Routes::show_latencies() {
    for (const int peer : unshown_) {
        is_unshown_[peer] = false;
        Route &route = this->route(peer);
        for (uint32_t mask = std::popcount(route.links) < 2 ? 0 : route.links; mask != 0; mask &= mask - 1) {
            const int index = std::countr_zero(mask);
            double &least = route.trip_ns[index];
            if (const double trip = links_[index].link->pace(peer).round_trip_ns; trip > 0)
                least = least == 0 ? trip : std::min(least, trip);
        }
    }
    for (const int peer : unshown_) {
        Route &route = this->route(peer);
        for (uint32_t mask = route.links; mask != 0; mask &= mask - 1) {
            const int index = std::countr_zero(mask);
            route.controller->saw_latency(index, std::exchange(route.trip_ns[index], 0) / 2);
        }
    }
    unshown_.clear();
}

/// A host's ranks divide its rails, so each rank learns from the mean of what all of them saw. Then they believe the
/// same, and none runs after what another leaves.
void Routes::pool_samples() {
    for (const int host : sampled_) {
        Route &route = routes_[host];
        const bool pooled = records_ != nullptr && host != layout_.host;
        for (uint32_t mask = pooled ? route.links : 0; mask != 0; mask &= mask - 1) {
            const auto index = static_cast<size_t>(std::countr_zero(mask));
            RailRecord &record = records_[static_cast<size_t>(host) * kMaxLinks + index];
            LinkSample &sample = route.samples[index];
            if (sample.bytes == 0)
                continue;
            record.bytes.fetch_add(sample.bytes, std::memory_order_relaxed);
            record.busy_ns.fetch_add(sample.busy_ns, std::memory_order_relaxed);
            record.samples.fetch_add(1, std::memory_order_relaxed);
            const Pooled now{record.bytes.load(std::memory_order_relaxed),
                             record.busy_ns.load(std::memory_order_relaxed),
                             record.samples.load(std::memory_order_relaxed)};
            const Pooled before = std::exchange(route.pooled[index], now);
            const uint64_t samples = now.samples - before.samples;
            sample = {(now.bytes - before.bytes) / samples, (now.busy_ns - before.busy_ns) / samples};
        }
    }
}

/// Whether there is something to tell its controller.
bool Routes::route_learns(Route &route, const Ended &ended) {
    if (std::popcount(route.links) < 2)
        return false;
    // What went whole says nothing of rates.
    if (const int link = route.whole; link >= 0 && !route.shared) {
        const LinkSample &sample = route.samples[link];
        bursts_.took(link, sample.bytes, sample.busy_ns, 2 * links_[link].far.latency_ns, now_ns());
        return false;
    }
    // What was lent for a moment says nothing of what a rail carries in a collective.
    const bool idle = std::ranges::all_of(route.samples, [](const LinkSample &sample) { return sample.bytes == 0; });
    return !idle && !(ended.lent && lending_ != nullptr);
}

/// The phases of one operation overlap in time: what a link delivered holds for both.
void Routes::observe(Route &route, const Ended &ended, size_t bytes) {
    const std::span samples(route.samples.data(), links_.size());
    for (int phase = 0; phase < ended.phases; ++phase)
        if (route.controller->observe(bytes, phase, samples, ended.elapsed_ns) && phase == 0)
            report_change(route, bytes);
    route.slow.observe(samples);
    report_slow(route, bytes);
}

/// One rank of a host says for all what becomes of rails.
bool Routes::tells() const {
    return log().shows(LogLevel::warn) && (records_ == nullptr || layout_.own().local == 0);
}

void Routes::report_slow(Route &route, size_t bytes) {
    while (const auto slow = route.slow.confirmed())
        log().warn("{} to host {} slowed to {:.0f} Mbit/s: share {:.2f} -> {:.2f}", links_[slow->link].name,
                   layout_.members[route.peers.front()].hostname, 8e3 * slow->bytes_per_ns, slow->share,
                   route.controller->vector(bytes, 0).share(slow->link));
}

/// Says which links' shares have changed much since it was last said, for messages of this size.
void Routes::report_change(Route &route, size_t bytes) {
    constexpr double kMuch = 0.1;
    constexpr double kLeastFactor = 1.5;
    constexpr double kLeastMove = 1.1;
    if (!tells())
        return;
    Told &told = route.told[size_class(bytes)];
    const PartitionVector &vector = route.controller->vector(bytes, 0);
    const bool first = told.vector.links == 0;
    const std::string &host = layout_.members[route.peers.front()].hostname;
    bool much = first;
    for (uint32_t mask = route.links; !first && mask != 0; mask &= mask - 1) {
        const int link = std::countr_zero(mask);
        const double before = told.vector.share(link);
        const double now = vector.share(link);
        const double rate = route.controller->rate(link);
        const double factor = told.rate[link] > 0 && rate > 0 ? rate / told.rate[link] : 1;
        much = much || std::abs(now - before) > kMuch;
        // Of a link that slowed down the others' shares tell nothing new; nor does a rate that moves no share. That of
        // one with nearly all moves little where the others' together move much.
        const bool less = now < before / kLeastMove || 1 - now > (1 - before) * kLeastMove;
        const bool more = now > before * kLeastMove || 1 - now < (1 - before) / kLeastMove;
        if ((factor < 1 / kLeastFactor && less) || (factor > kLeastFactor && more)) {
            much = true;
            log().info("{} to host {} {} {:.0f} Mbit/s: share {:.2f} -> {:.2f}", links_[link].name, host,
                       factor < 1 ? "seems to carry only" : "now carries", 8e3 * rate, before, now);
            if (factor < 0.5)
                route.slow.suspect(link, told.rate, before);
        }
    }
    if (!much)
        return;
    told.vector = vector;
    for (uint32_t mask = route.links; mask != 0; mask &= mask - 1)
        told.rate[std::countr_zero(mask)] = route.controller->rate(std::countr_zero(mask));
    if (!log().shows(LogLevel::info))
        return;
    const std::vector<std::string> names = names_of(links_);
    log().info("to host {}: {} for {} B", host, to_string(vector, names), bytes);
}

/// Links that were lost since the last operation, or that carry again.
void Routes::begin(const std::vector<int> &peers) {
    for (const int peer : peers) {
        route(peer).whole = -1;
        route(peer).shared = false;
        for (uint32_t mask = route(peer).links; mask != 0; mask &= mask - 1) {
            const int link = std::countr_zero(mask);
            const bool lost = links_[link].link->state(peer) == LinkState::lost;
            if (lost != ((lost_[peer] >> link & 1) != 0))
                set_lost(link, peer, lost);
        }
    }
}

/// A route uses a link while it carries to all peers of the host.
void Routes::set_lost(int link, int peer, bool lost) {
    const uint32_t bit = 1U << link;
    lost_[peer] = lost ? lost_[peer] | bit : lost_[peer] & ~bit;
    Route &route = this->route(peer);
    route.slow.forget(link);
    uint32_t usable = route.links;
    for (const int other : route.peers)
        usable &= ~lost_[other];
    // With all of them lost the shares stay: cells wait for whichever returns.
    for (uint32_t mask = usable != 0 ? route.links : 0; mask != 0; mask &= mask - 1) {
        const int each = std::countr_zero(mask);
        route.controller->set_usable(each, (usable >> each & 1) != 0);
    }
    log().info("{} to {} {}", links_[link].name, layout_.describe(peer),
               lost ? "carries nothing now: its share goes to the others" : "carries again");
}

int Routes::lost_to(int link) const {
    const auto found =
        std::find_if(lost_.begin(), lost_.end(), [&](uint32_t links) { return (links >> link & 1) != 0; });
    return found == lost_.end() ? -1 : static_cast<int>(found - lost_.begin());
}

double Routes::slowest_rate(int link) const {
    double slowest = 0;
    for (const Route &route : routes_) {
        const double rate = (route.links >> link & 1) != 0 && route.controller ? route.controller->rate(link) : 0;
        if (rate > 0 && (slowest == 0 || rate < slowest))
            slowest = rate;
    }
    return slowest;
}

std::vector<Decision> Routes::explain() const {
    std::vector<Decision> decisions;
    const std::vector<std::string> names = names_of(links_);
    for (const Route &route : routes_) {
        if (std::popcount(route.links) < 2)
            continue;
        for (Decision &decision : route.controller->explain(names)) {
            decision.about += fmt::format(" to host {}", layout_.members[route.peers.front()].hostname);
            decisions.push_back(std::move(decision));
        }
    }
    if (bursts_.any())
        decisions.push_back({"short messages", Bursts::kMostBytes,
                             fmt::format("{} went whole over one rail", bursts_.whole()),
                             "what a rail has saved up while it rested passes at once"});
    if (const std::string lent = own_rail_report(); !lent.empty())
        decisions.push_back({"messages", 0, lent, "who had nothing to send over a rail when others asked"});
    return decisions;
}

std::string Routes::own_rail_report() const {
    if (lending_ == nullptr || own_rail_ < 0)
        return {};
    const LedgerLine &line = lending_->line(own_rail_);
    return fmt::format("rail {} of rank {}: lent for {} chunks, {} refused", links_[own_rail_].name, layout_.rank,
                       line.lent.load(std::memory_order_relaxed), line.refused.load(std::memory_order_relaxed));
}

}  // namespace flx
