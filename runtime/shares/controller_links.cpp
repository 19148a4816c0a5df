/// Samples of links that several routes load, what the controller is told of its links besides samples, and what it
/// says of them.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "runtime/shares/controller.h"

namespace flx {
namespace {

constexpr double kLatencyWrong = 0.5;  // part of the probe's latency below which one seen takes its place

constexpr double kPeersFault = 2.5;  // times its part of the whole, from which on a route is its peers' matter

}  // namespace

LinkSample fair_sample(const LinkSample &own, const LinkSample &all, int routes) {
    if (routes < 2 || all.bytes == 0)
        return own;
    const double busy =
        static_cast<double>(all.busy_ns) * static_cast<double>(own.bytes) / static_cast<double>(all.bytes) * routes;
    return static_cast<double>(own.busy_ns) > kPeersFault * busy ? own
                                                                 : LinkSample{own.bytes, static_cast<uint64_t>(busy)};
}

void Controller::set_usable(int link, bool usable_now) {
    if (link < 0 || link >= count_ || usable(link) == usable_now)
        return;
    LinkState &state = links_[link];
    trial_.link = -1;  // what it compares has changed; the link on trial stays on, unless it is this one
    if (!usable_now) {
        if (!state.stand_in)
            state.before = state.standing;
        state.stand_in = false;
        state.standing = Standing::unusable;
        // What added little to the lost link may add much to the rest.
        for (int i = 0; i < count_; ++i) {
            links_[i].next_offer = 0;
            links_[i].backoff = 0;
        }
    } else if (state.before == Standing::on || state.before == Standing::returned) {
        const bool offers = options_.explore_every > 0 && !options_.frozen;
        state.standing = offers ? Standing::returned : Standing::on;
        state.next_offer = 0;
    } else {
        state.standing = state.before;
        state.next_offer = 0;
    }
    urgent_ = true;
    members_changed();
}

void Controller::saw_latency(int link, double latency_ns) {
    if (link < 0 || link >= count_ || forced_ || options_.frozen ||
        !(latency_ns > 0 && latency_ns < kLatencyWrong * links_[link].latency))
        return;
    // It was of a peer that had no core just then, and what was learnt of the rate with it is worth little.
    links_[link].latency = latency_ns;
    links_[link].last_learnt = 0;
    for (auto &slot : estimates_)
        slot[link].own = false;
    sort_by_latency();
    members_changed();
}

LinkVerdict Controller::verdict(int link, std::span<const std::string> names) const {
    const LinkState &state = links_[link];
    if (forced_ && usable(link)) {
        const bool share = classes_[0].vector.weight[link] > 0;
        return {share, share ? "" : "the forced partition gives it no share"};
    }
    std::string rest;
    for (int i = 0; i < count_; ++i)
        if ((state.rest_links >> i & 1) != 0 && i < static_cast<int>(names.size()))
            rest += (rest.empty() ? "" : ", ") + names[i];
    if (rest.empty())
        rest = "the others";
    switch (state.standing) {
        case Standing::on:
            break;
        case Standing::unusable:
            return {false, "does not work, or may not be used"};
        case Standing::adds_little:
        case Standing::tried:
            if (state.gain < 0)
                return {
                    false,
                    fmt::format(
                        "{}adds nothing, but takes {:.1f} % from the rate of {} ({:.3g} GB/s); it must add {:.2g} %",
                        state.standing == Standing::tried ? "in use it " : "", -100 * state.gain, rest, state.rest,
                        100 * state.needed)};
            return {false, fmt::format("{}adds {:.1f} % to the rate of {} ({:.3g} GB/s); {:.2g} % needed",
                                       state.standing == Standing::tried ? "in use it " : "", 100 * state.gain, rest,
                                       state.rest, 100 * state.needed)};
        case Standing::unmeasured:
            return {false, "not measured yet; offered a small share soon"};
        case Standing::returned:
            return {false, "works again; offered a small share soon"};
    }
    return {};
}

double Controller::rate(int link) const {
    return estimate(links_[link].slot, link).rate();
}

}  // namespace flx
