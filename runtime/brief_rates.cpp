#include "brief_rates.h"

#include <algorithm>
#include <cmath>

namespace flx {
namespace {

// docs/controller.md says why each has its value.
constexpr int kLeastCount = 8;     // operations after which shares have settled, and again after which some is learnt,
constexpr double kLeastNs = 60e6;  // and their time, in which a shaper's bucket runs out if too much is put on it
constexpr double kFull = 0.75;     // part of the operations in which a link that is full works until the end
constexpr double kNotFull = 0.25;  // and at most of those of one that is not
constexpr double kFirst = 0.03;    // quantum by which a link that is not full is faster, at first
constexpr double kMost = 0.12;
constexpr double kLeast = 0.003;
constexpr double kNear = 0.02;  // quantum of a link that is about as fast as is believed
constexpr double kGrowNear = 1.15;
constexpr double kGrow = 1.5;
constexpr double kShrink = 0.5;
constexpr double kSame = 0.01;      // relative difference that is none
constexpr double kStep = 1.1;       // by which what is believed moves at once
constexpr double kUnproven = 1.05;  // by which a link is not believed to be slower than it was shown to be
constexpr double kForget = 1.01;
constexpr double kFellFar = 4;  // a link that is slowed by so much is expected back, and keeps what is believed of it

}  // namespace

void BriefRates::forget() {
    for (Seen &link : links_) {
        link.quantum = kFirst;
        link.bytes = link.proven = 0;
    }
    all_ns_ = 0;
    begin(true);
}

void BriefRates::begin(bool settling) {
    settling_ = settling;
    operations_ = 0;
    time_ns_ = 0;
    for (Seen &link : links_)
        link.early = link.worked = 0;
}

/// What a link delivered, it can: seen from now on it may only seem to be slower, because its acknowledgements wait
/// behind what the peer sends. That is forgotten slowly.
void BriefRates::prove() {
    for (Seen &link : links_) {
        const double took = link.bytes > 0 ? all_ns_ / link.bytes : 0;
        if (took > 0)
            link.proven = link.proven > 0 ? std::min(link.proven * kForget, took) : took;
        link.bytes = 0;
    }
    all_ns_ = 0;
}

void BriefRates::saw(int link, uint64_t bytes, double cost, bool ended_early) {
    Seen &seen = links_[link];
    seen.bytes += static_cast<double>(bytes);
    if (settling_)
        return;
    if (ended_early)
        ++seen.early;
    else if (++seen.worked <= kMostCosts)
        seen.costs[seen.worked - 1] = static_cast<float>(cost);
}

/// What a link that was full costs: the median.
double BriefRates::found(Seen &link) {
    const int known = std::min(link.worked, kMostCosts);
    const auto middle = link.costs.begin() + known / 2;
    std::nth_element(link.costs.begin(), middle, link.costs.begin() + known);
    return *middle;
}

bool BriefRates::ended(double time_ns, std::span<const double> believed) {
    time_ns_ += time_ns;
    all_ns_ += time_ns;
    if (++operations_ < kLeastCount || time_ns_ < kLeastNs)
        return false;
    if (settling_) {
        begin(false);
        return false;
    }
    prove();
    bool full = false;
    for (size_t i = 0; i < believed.size(); ++i) {
        Seen &link = links_[i];
        link.factor = 1;
        link.faster = false;
        const double off = link.worked >= kFull * operations_ && believed[i] > 0 ? found(link) / believed[i] : 0;
        if (off <= 0 || off > kFellFar)
            continue;
        full = true;
        link.quantum = std::max(kLeast, link.quantum * kShrink);
        // One that works until the end only because all others let a burst pass lets one pass, too.
        const double slowest = std::max(1.0, kUnproven * link.proven / believed[i]);
        if (std::abs(off - 1) > kSame)
            link.factor = off < 1 ? std::max(off, 1 / (1 + link.quantum)) : std::min({off, kStep, slowest});
    }
    for (size_t i = 0; full && i < believed.size(); ++i) {
        Seen &link = links_[i];
        link.faster = link.early >= kLeastCount / 2 && link.worked <= kNotFull * operations_;
        if (!link.faster)
            continue;
        link.quantum = std::min(kMost, link.quantum * (link.quantum < kNear ? kGrowNear : kGrow));
        link.factor = 1 / (1 + link.quantum);
    }
    begin(full);
    return full;
}

}  // namespace flx
