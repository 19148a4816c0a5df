/// \file water_fill.h
/// How one message is shared among links so that they end together: the controller's formula (docs/controller.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace flx {

/// Messages below this are small. What their shares would cost, a chunk more to send and to receive for each link, is
/// in no rate; and what they gain is less than it seems, as sockets, shapers and switches let short bursts pass at any
/// speed. So sharing must save so much time.
inline constexpr double kSmallBytes = 16 << 10;
inline constexpr double kSmallGainNs = 1e6;

/// The lane for a small message: the preferred one (least `preference`, which is the same for both ends, so that what
/// goes back goes the same way; then the first link), of those that are not much slower than another is believed to be.
template <typename Lanes>
int choose_single(const Lanes &lanes, int count, double bytes) {
    constexpr double kMuch = 2;
    constexpr double kMuchNs = 100e3;
    double least = std::numeric_limits<double>::infinity();
    for (int k = 0; k < count; ++k)
        least = std::min(least, bytes * lanes[k].cost);
    int best = -1;
    for (int k = 0; k < count; ++k) {
        if (bytes * lanes[k].cost > kMuch * least + kMuchNs)
            continue;
        if (best < 0 || lanes[k].preference < lanes[best].preference ||
            (lanes[k].preference == lanes[best].preference && lanes[k].link < lanes[best].link))
            best = k;
    }
    return best;
}

/// When a message that is shared so ends: `filled` ns after its beginning by what the lanes deliver, and `work` ns that
/// lanes beyond one take from whoever sends and receives.
struct Finish {
    double filled = 0;
    double work = 0;
    [[nodiscard]] double sum() const { return filled + work; }
};

/// The lane over which a message that takes one alone ends soonest; the first of several.
template <typename Lanes>
int best_alone(const Lanes &lanes, int count, double bytes) {
    const auto takes = [&](int k) { return lanes[k].latency + bytes * lanes[k].cost; };
    int best = 0;
    for (int k = 1; k < count; ++k)
        if (takes(k) < takes(best))
            best = k;
    return best;
}

/// Water-filling over `lanes` (at least one; latency in ns, rate > 0 in bytes/ns, cost = 1 / rate, work in ns, link,
/// preference: of none or all). Writes each lane's share.
///
/// Lane k carries (T - latency_k)·rate_k bytes, so T = (bytes + Σ latency·rate) / Σ rate over the lanes in use. Each
/// lane more than one takes its work besides. The best single lane comes first; then always the one with which the
/// message ends soonest, as long as that is sooner than without. Where no lane has work, all are used whose latency is
/// below T.
template <typename Lanes>
Finish water_fill(const Lanes &lanes, int count, double bytes, double min_gain, double *share) {
    int best = best_alone(lanes, count, bytes);
    const double single = lanes[best].latency + bytes * lanes[best].cost;
    uint32_t used = 1U << best;
    uint32_t left_out = 0;  // lanes that others made superfluous
    double rates = lanes[best].rate;
    double held = bytes + lanes[best].latency * rates;
    double filled = single;
    double work = lanes[best].work;
    for (;;) {
        int added = -1;
        double soonest = filled + work;
        for (int k = 0; k < count; ++k) {
            if (((used | left_out) >> k & 1) != 0 || lanes[k].latency >= filled)
                continue;
            const double with =
                (held + lanes[k].latency * lanes[k].rate) / (rates + lanes[k].rate) + work + lanes[k].work;
            if (with < soonest) {
                soonest = with;
                added = k;
            }
        }
        if (added < 0)
            break;
        used |= 1U << added;
        rates += lanes[added].rate;
        held += lanes[added].latency * lanes[added].rate;
        filled = held / rates;
        work += lanes[added].work;
        for (int k = 0; k < count; ++k)
            if ((used >> k & 1) != 0 && k != added && lanes[k].latency >= filled) {
                used &= ~(1U << k);
                left_out |= 1U << k;
                rates -= lanes[k].rate;
                held -= lanes[k].latency * lanes[k].rate;
                filled = held / rates;
                work -= lanes[k].work;
                k = -1;  // from the first one again: the message ends sooner than before
            }
    }
    // Of the lanes in use one would have its work anyway.
    const Finish finish{filled, work - lanes[std::countr_zero(used)].work};
    const bool small = bytes < kSmallBytes && single <= finish.sum() + kSmallGainNs;
    if (small || single <= finish.sum() * (1 + min_gain)) {
        if (small && lanes[best].preference > 0)
            best = choose_single(lanes, count, bytes);
        for (int k = 0; k < count; ++k)
            share[k] = k == best ? 1 : 0;
        return {lanes[best].latency + bytes * lanes[best].cost, 0};
    }
    for (int k = 0; k < count; ++k)
        share[k] = (used >> k & 1) != 0 ? std::max(0.0, (filled - lanes[k].latency) * lanes[k].rate / bytes) : 0;
    return finish;
}

}  // namespace flx
