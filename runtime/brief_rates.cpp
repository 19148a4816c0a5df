#include "brief_rates.h"

#include <algorithm>
#include <cmath>

namespace flx {
namespace {

// docs/controller.md says why each has its value.
constexpr int kLeastCount = 16;    // operations after which something is learnt,
constexpr double kLeastNs = 80e6;  // and their time, in which a shaper's bucket runs out if too much is put on it
constexpr int kEnough = 6;         // operations that show a link's rate
constexpr double kFirst = 0.03;    // quantum by which a link that never worked until the end is faster
constexpr double kMost = 0.1;
constexpr double kLeast = 0.005;
constexpr double kGrow = 1.2;
constexpr double kShrink = 0.5;
constexpr double kSame = 0.03;  // relative difference that is none
constexpr double kStep = 1.1;   // by which what is believed moves at once
constexpr double kFellFar = 4;  // a link that is slowed by so much is expected back: the controller keeps what it was

}  // namespace

void BriefRates::forget() {
    operations_ = 0;
    time_ns_ = 0;
    for (Seen &link : links_) {
        link.early = link.worked = 0;
        link.quantum = kFirst;
    }
}

void BriefRates::saw(int link, double cost, bool ended_early) {
    Seen &seen = links_[link];
    if (ended_early)
        ++seen.early;
    else if (seen.worked < kMostCosts)
        seen.costs[seen.worked++] = static_cast<float>(cost);
}

bool BriefRates::ended(double time_ns) {
    time_ns_ += time_ns;
    if (++operations_ < kLeastCount || time_ns_ < kLeastNs)
        return false;
    operations_ = 0;
    time_ns_ = 0;
    bool learnt = false;
    for (Seen &link : links_) {
        link.found = 0;
        link.faster = link.worked == 0 && link.early >= kEnough;
        if (link.worked >= kEnough) {
            const auto middle = link.costs.begin() + link.worked / 2;
            std::nth_element(link.costs.begin(), middle, link.costs.begin() + link.worked);
            link.found = *middle;
            link.quantum = std::max(kLeast, link.quantum * kShrink);
        } else if (link.faster) {
            link.quantum = std::min(kMost, link.quantum * kGrow);
        }
        learnt = learnt || link.faster || link.found > 0;
        link.early = link.worked = 0;
    }
    return learnt;
}

double BriefRates::factor(int link, double believed) const {
    const Seen &seen = links_[link];
    if (seen.faster)
        return 1 / (1 + seen.quantum);
    const double off = seen.found / believed;
    if (seen.found <= 0 || std::abs(off - 1) <= kSame || off > kFellFar)
        return 1;
    return std::clamp(off, 1 / kStep, kStep);
}

}  // namespace flx
