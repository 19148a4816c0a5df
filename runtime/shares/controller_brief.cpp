/// Brief operations: what they show of links is mostly noise, so their shares come from what longer ones showed.
#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "runtime/shares/controller.h"
#include "runtime/shares/link_cost.h"

namespace flx {
namespace {

// docs/controller.md says why each has its value.
constexpr double kBriefNs = 20e6;    // operations that should take less are brief
constexpr double kUnsureSlow = 1.6;  // factor to which what they show of a slower rate is not believed

}  // namespace

/// Whether links that deliver as believed carry so much in so short a time that a link which is not full shows no rate
/// of its own: bursts pass at any speed, and acknowledgements come when processes have a core.
bool Controller::is_brief(int slot, double bytes) const {
    if (options_.burst_ns <= 0)
        return false;
    double rates = 0;
    for (int k = 0; k < on_count_; ++k)
        rates += estimate(slot, on_links_[k]).rate();
    return bytes < rates * kBriefNs;
}

/// Rates for a brief operation: those that are sure, as long as what brief ones showed does not contradict them. What
/// is learnt from bursts and late acknowledgements wanders, on each rank elsewhere, and the slowest rank's shares make
/// the time of all.
void Controller::steady(std::span<Lane> lanes) const {
    std::array<double, kMaxLinks> ratio{};
    size_t known = 0;
    for (const Lane &lane : lanes)
        if (links_[lane.link].sure > 0)
            ratio[known++] = links_[lane.link].sure * lane.rate;
    if (known < 2)
        return;
    // All may be slower alike, as where several routes share them; faster is what a burst looks like.
    std::array<double, kMaxLinks> sorted = ratio;
    std::nth_element(sorted.begin(), sorted.begin() + known / 2, sorted.begin() + known);
    const double common = std::min(1.0, sorted[known / 2]);
    for (Lane &lane : lanes) {
        const double sure = links_[lane.link].sure;
        if (sure <= 0)
            continue;
        const double off = std::min(1.0, sure * lane.rate / common);
        // Continuous: between a factor and its square ever more of it is believed.
        const double beyond = std::min(1.0, off * kUnsureSlow);
        const double counts = std::max(off, beyond * beyond);
        lane.rate = common / sure * counts;
        lane.cost = 1 / lane.rate;
    }
}

/// What part of its sure rate each link is used with for a brief operation, beside the one that is used with most.
std::array<double, kMaxLinks> Controller::trusted_parts(int index) const {
    std::array<Lane, kMaxLinks> active;
    const auto used = std::span(active).first(static_cast<size_t>(lanes(index, -1, active)));
    std::array<double, kMaxLinks> part;
    part.fill(1);
    double most = 0;
    for (const Lane &lane : used)
        most = std::max(most, lane.rate * links_[lane.link].sure);
    for (const Lane &lane : used)
        if (links_[lane.link].sure > 0)
            part[lane.link] = lane.rate * links_[lane.link].sure / most;
    return part;
}

/// Takes over what long operations show. A link that fell far behind the others keeps what it had beside them: what is
/// so much slower is believed anyway, and when it returns this is what it returns to.
void Controller::make_sure(int slot) {
    const auto now_of = [&](int link) { return estimates_[slot][link].own ? estimates_[slot][link].cost : 0; };
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < count_; ++i)
        if (links_[i].sure > 0 && now_of(i) > 0)
            least = std::min(least, now_of(i) / links_[i].sure);
    // All others together say by how much rates changed: one of them alone would pass its noise on, each time further.
    uint32_t fell = 0;
    double before = 0;
    double after = 0;
    for (int i = 0; i < count_; ++i) {
        const LinkState &link = links_[i];
        if (link.sure <= 0 || now_of(i) <= 0)
            continue;
        if (now_of(i) > BriefRates::kFellFar * least * link.sure) {
            fell |= 1U << i;
        } else {
            before += 1 / link.sure;
            after += 1 / now_of(i);
        }
    }
    for (int i = 0; i < count_; ++i) {
        if ((fell >> i & 1) != 0)
            links_[i].sure *= before / after;
        else if (now_of(i) > 0)
            links_[i].sure = now_of(i);
    }
}

/// Learns sure rates from many brief operations. True if vectors may have changed.
bool Controller::learn_brief(int index, std::span<const LinkSample> samples, uint64_t time_ns, double delay) {
    if (std::ranges::count_if(samples, [](const LinkSample &sample) { return sample.bytes != 0; }) < 2)
        return false;
    for (size_t i = 0; i < samples.size(); ++i)
        if (links_[i].sure > 0 && shows_rate(samples[i], links_[i].latency))
            brief_rates_.saw(static_cast<int>(i), samples[i].bytes, cost_of(samples[i], links_[i].latency) / delay,
                             BriefRates::ended_early(samples[i].busy_ns, time_ns));
    std::array<double, kMaxLinks> sure{};
    for (int i = 0; i < count_; ++i)
        sure[i] = links_[i].sure;
    uint64_t bytes = 0;
    for (const LinkSample &sample : samples)
        bytes += sample.bytes;
    if (!brief_rates_.ended(static_cast<double>(time_ns), bytes, std::span(sure).first(static_cast<size_t>(count_))))
        return false;
    const auto trusted = trusted_parts(index);
    for (int i = 0; i < count_; ++i) {
        const double factor = brief_rates_.factor(i);
        // Slower than brief operations let it be used already: a small step towards that would let it be used more.
        const bool doubted = factor > 1 && trusted[i] > 1 / (kUnsureSlow * kUnsureSlow);
        links_[i].sure *= doubted ? std::max(factor, 1 / trusted[i]) : factor;
        // What is not measured moves along, or it would seem to be slower than it is sure to be.
        for (auto &estimates : estimates_)
            estimates[i].cost *= brief_rates_.unmeasured(i);
    }
    refresh_all();
    return true;
}

}  // namespace flx
