/// \file water_fill.h
/// How one message is shared among links so that they end together: the controller's formula (docs/controller.md).
#pragma once

#include <algorithm>
#include <cstddef>
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

/// Water-filling over `lanes` (rising latency, at least one; latency, rate > 0, cost = 1 / rate, work, link,
/// preference: of none or all). Writes each lane's share, returns the finish time.
///
/// Lane k carries (T - latency_k)·rate_k bytes, so T = (bytes + Σ latency·rate) / Σ rate over the lanes in use. Each
/// lane more than one takes its work besides, from whoever sends and receives. The best single lane comes first; then
/// always the one with which the message ends soonest, as long as that is sooner than without. Where no lane has work,
/// all are used whose latency is below T.
template <typename Lanes>
double water_fill(const Lanes &lanes, int count, double bytes, double min_gain, double *share) {
    double single = std::numeric_limits<double>::infinity();
    int best = 0;
    for (int k = 0; k < count; ++k) {
        share[k] = 0;
        const double alone = lanes[k].latency + bytes * lanes[k].cost;
        if (alone < single) {
            single = alone;
            best = k;
        }
    }
    double rates = lanes[best].rate;
    double held = bytes + lanes[best].latency * rates;
    double filled = single;
    double work = 0;
    share[best] = 1;
    for (int added = best; added >= 0;) {
        added = -1;
        double soonest = filled + work;
        for (int k = 0; k < count; ++k) {
            if (share[k] != 0 || lanes[k].latency >= filled)
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
        share[added] = 1;
        rates += lanes[added].rate;
        held += lanes[added].latency * lanes[added].rate;
        filled = held / rates;
        work += lanes[added].work;
        // What came later may have made one superfluous.
        for (int k = 0; k < count; ++k)
            if (share[k] != 0 && lanes[k].latency >= filled) {
                share[k] = 0;
                rates -= lanes[k].rate;
                held -= lanes[k].latency * lanes[k].rate;
                filled = held / rates;
                work -= lanes[k].work;
                k = -1;
            }
    }
    const double finish = filled + work;
    const bool small = bytes < kSmallBytes && single <= finish + kSmallGainNs;
    if (small || single <= finish * (1 + min_gain)) {
        if (small && lanes[best].preference > 0)
            best = choose_single(lanes, count, bytes);
        for (int k = 0; k < count; ++k)
            share[k] = k == best ? 1 : 0;
        return lanes[best].latency + bytes * lanes[best].cost;
    }
    for (int k = 0; k < count; ++k)
        share[k] = share[k] != 0 ? std::max(0.0, (filled - lanes[k].latency) * lanes[k].rate / bytes) : 0;
    return finish;
}

}  // namespace flx
