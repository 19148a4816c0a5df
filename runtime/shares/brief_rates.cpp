#include "runtime/shares/brief_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flx {
namespace {

// docs/controller.md says why each has its value.
constexpr int kLeastCount = 8;     // operations after which shares have settled, and again after which some is learnt,
constexpr double kLeastNs = 60e6;  // and their time, in which a shaper's bucket runs out if too much is put on it
constexpr double kFull = 0.75;     // part of the operations in which a link that is full works until the end
constexpr double kNotFull = 0.25;  // and at most of those of one that is not
constexpr double kFirst = 0.02;    // quantum by which a link that is not full is faster, at first
constexpr double kMost = 0.12;
constexpr double kLeast = 0.003;
constexpr double kNear = 0.02;  // quantum of a link that is about as fast as is believed
constexpr double kGrowNear = 1.3;
constexpr double kGrow = 1.5;
constexpr double kGrowBetter = 2;  // after a change that made operations quicker
constexpr double kShrink = 0.5;
constexpr double kSame = 0.01;      // relative difference that is none
constexpr double kStep = 1.1;       // by which what is believed moves at once
constexpr double kUnproven = 1.05;  // by which a link is not believed to be slower than it was shown to be
constexpr double kForget = 1.01;
constexpr double kAlike = 0.005;    // relative time of operations that is no difference, at least
constexpr double kSlower = 1.03;    // factor of it with the same shares, for which there must be a reason
constexpr double kWeight = 0.25;    // of the last round in what operations take with the same shares
constexpr double kOtherSize = 1.1;  // factor of their bytes, from which times are not compared
constexpr int kFirstPause = 1;      // rounds in which nothing is changed: at first,
constexpr int kPause = 1;           // after a change that made no difference,
constexpr int kMostPause = 15;      // and at most after changes that were mistakes
constexpr int kSearch = 16;         // rounds without a pause after operations became slower

}  // namespace

void BriefRates::forget() {
    for (Seen &link : links_) {
        link.quantum = kFirst;
        link.bytes = link.proven = 0;
        link.moved = link.moved_unmeasured = 1;
    }
    all_ns_ = 0;
    best_ = 0;
    returning_ = false;
    pause_ = after_mistake_ = kFirstPause;
    search_ = 0;
    begin(true);
}

void BriefRates::begin(bool settling) {
    settling_ = settling;
    operations_ = 0;
    time_ns_ = 0;
    bytes_ = 0;
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

/// Of the first `known` of `costs`, which it reorders; the second quarter ends at the median.
double BriefRates::quarter(Costs &costs, int known, int number) {
    const auto place = costs.begin() + known * number / 4;
    std::nth_element(costs.begin(), place, costs.begin() + known);
    return *place;
}

bool BriefRates::ended(double time_ns, uint64_t bytes, std::span<const double> believed) {
    time_ns_ += time_ns;
    all_ns_ += time_ns;
    bytes_ += static_cast<double>(bytes);
    if (operations_ < kMostCosts)
        costs_[operations_] = static_cast<float>(time_ns / static_cast<double>(bytes));
    if (++operations_ < kLeastCount || time_ns_ < kLeastNs)
        return false;
    if (settling_) {
        begin(false);
        return false;
    }
    const Judgement found = judge();
    if (found == Judgement::worse) {
        prove();
        go_back();
        return true;
    }
    if (returning_)
        pause_ = after_mistake_ = std::min(2 * after_mistake_ + 1, kMostPause);
    returning_ = false;
    if (found == Judgement::slower) {
        search_ = kSearch;
        for (Seen &link : links_)
            link.proven = link.bytes = 0;  // what it delivered before, it may not deliver now
    }
    if (found == Judgement::better || search_ > 0)
        pause_ = after_mistake_ = 0;
    search_ = std::max(0, search_ - 1);
    if (pause_ > 0) {
        --pause_;
        begin(false);
        return false;
    }
    prove();
    const bool learnt = learn(believed, found == Judgement::better);
    pause_ = search_ > 0 ? 0 : kPause;
    begin(learnt);
    return learnt;
}

/// What operations took beside what they took with the best shares so far. Worse: shares are others, and that is why.
/// Slower: they are the same, so it is the links or the peers.
BriefRates::Judgement BriefRates::judge() {
    const int known = std::min(operations_, kMostCosts);
    const double cost = quarter(costs_, known, 2);
    const double spread = quarter(costs_, known, 3) - quarter(costs_, known, 1);
    const double bytes = bytes_ / operations_;
    const bool moved = std::any_of(links_.begin(), links_.end(), [](const Seen &link) { return link.moved != 1; });
    const auto keep = [&] {
        best_ = cost;
        best_bytes_ = bytes;
        for (Seen &link : links_)
            link.moved = link.moved_unmeasured = 1;
    };
    if (best_ <= 0 || bytes > kOtherSize * best_bytes_ || best_bytes_ > kOtherSize * bytes) {
        keep();
        return Judgement::alike;
    }
    const double noise = std::max(kAlike * best_, 2 * spread / std::sqrt(known));
    if (!moved) {
        if (cost > kSlower * best_ + noise) {
            keep();
            return Judgement::slower;
        }
        best_ += kWeight * (cost - best_);
        return Judgement::alike;
    }
    if (cost > best_ + noise)
        return Judgement::worse;
    if (cost >= best_ - noise)
        return Judgement::alike;
    keep();
    return Judgement::better;
}

/// Back to the shares with which operations were quickest.
void BriefRates::go_back() {
    for (Seen &link : links_) {
        if (link.moved != 1)
            link.quantum = std::max(kLeast, link.quantum * kShrink);
        link.factor = 1 / std::exchange(link.moved, 1);
        link.unmeasured = 1 / std::exchange(link.moved_unmeasured, 1);
    }
    returning_ = true;
    begin(true);
}

/// From what links did in the operations since shares have settled.
bool BriefRates::learn(std::span<const double> believed, bool better) {
    bool full = false;
    for (size_t i = 0; i < believed.size(); ++i) {
        Seen &link = links_[i];
        link.factor = link.unmeasured = 1;
        const bool worked = link.worked >= kFull * operations_ && believed[i] > 0;
        const double off = worked ? quarter(link.costs, std::min(link.worked, kMostCosts), 2) / believed[i] : 0;
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
        if (link.early >= kLeastCount / 2 && link.worked <= kNotFull * operations_) {
            const double grow = better ? kGrowBetter : link.quantum < kNear ? kGrowNear : kGrow;
            link.quantum = std::min(kMost, link.quantum * grow);
            link.factor = link.unmeasured = 1 / (1 + link.quantum);
        }
        link.moved *= link.factor;
        link.moved_unmeasured *= link.unmeasured;
    }
    return full;
}

}  // namespace flx
