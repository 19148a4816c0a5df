#include "runtime/shares/controller.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/shares/link_cost.h"
#include "runtime/shares/water_fill.h"

namespace flx {
namespace {

// Constants of the controller; docs/controller.md says why each has its value.
constexpr double kSeedSamples = 2;                 // what a probe's rate weighs, in samples
constexpr double kOutlier = 0.25;                  // relative deviation from the mean that may be a change
constexpr double kOutlierSpreads = 3;              // and in mean deviations
constexpr double kNoisy = 0.06;                    // relative mean deviation above which a rate is averaged over
constexpr int kNoisyWindows = 4;                   // so many windows
constexpr double kFar = 2;                         // factor at which two samples are enough
constexpr double kBurstStep = 1.25;                // by which samples of no length may change a rate at once
constexpr double kDelayed = 1.1;                   // factor by which all links are slow at once where they are
constexpr int kDelayedRun = 8;                     // and so many operations in a row after which they became slower
constexpr double kProbeWrong = 4;                  // factor by which a probe is so wrong that it is forgotten
constexpr double kSeedSpread = 0.1;                // of an estimate that has no history
constexpr double kLate = 0.05;                     // predicted delay at which a vector is replaced despite hysteresis
constexpr int kRefreshEvery = 4;                   // least calls between two computations of a vector
constexpr int kRefreshOthers = 16;                 // calls between two computations for a class that is not in use
constexpr uint32_t kYoung = 16;                    // calls during which every one computes it
constexpr size_t kOfferLeast = 8 * kMaxCellBytes;  // least message in which a cell is a small share
constexpr double kOfferCost = 0.01;                // offers may delay operations by this part of the time between them
constexpr double kFirstLook = 4;                   // and one operation by this many times, if only a probe warns
constexpr int kOfferCalls = 4;                     // operations for which an offer waits to be taken
constexpr uint8_t kMostBackoff = 6;
constexpr int kTrialSettle = 2;         // operations of a trial that do not count
constexpr int kTrialCosts = 7;          // and those that do
constexpr uint32_t kTrialBaseline = 4;  // least operations to compare with
constexpr uint64_t kTrialCalls = 4096;  // a trial that its class does not finish ends well after so many calls

constexpr double kMostLatency = 1e12;  // ns: sums and products stay finite

/// 1/n.
constexpr auto kInverse = [] {
    std::array<double, 256> inverse{};
    for (size_t n = 1; n < inverse.size(); ++n)
        inverse[n] = 1.0 / static_cast<double>(n);
    return inverse;
}();

double known_rate(double rate) {
    return std::isfinite(rate) && rate > 0 ? std::clamp(rate, kLeastRate, kMostRate) : 0;
}

double known_latency(double latency) {
    return std::isfinite(latency) && latency > 0 ? std::min(latency, kMostLatency) : 0;
}

int class_index(size_t bytes, int phase) {
    return std::clamp(phase, 0, kMaxPhases - 1) * kSizeClasses + size_class(bytes);
}

/// The middle of a class.
double class_bytes(int index) {
    return std::ldexp(1.5, index % kSizeClasses);
}

float median(std::span<float> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

int size_class(size_t bytes) {
    return bytes == 0 ? 0 : std::min(static_cast<int>(std::bit_width(bytes)) - 1, kSizeClasses - 1);
}

Controller::Controller(std::span<const LinkEstimate> links, const ControllerOptions &options)
    : options_(options), count_(static_cast<int>(std::min<size_t>(links.size(), kMaxLinks))) {
    options_.window = std::clamp(options_.window, 1, 255);
    per_burst_ = options_.burst_ns > 0 ? 1 / options_.burst_ns : 0;
    for (int i = 0; i < count_; ++i) {
        links_[i].latency = known_latency(links[i].latency_ns);
        links_[i].preference = known_latency(links[i].preference);
        links_[i].work = known_latency(links[i].work_ns);
        by_latency_[i] = static_cast<uint8_t>(i);
        for (int slot = 0; slot < kSlots; ++slot)
            source_[slot][i] = static_cast<uint8_t>(slot);
    }
    sort_by_latency();
    choose_links(links.first(static_cast<size_t>(count_)));
    members_changed();
}

Controller::Controller(const PartitionVector &forced, const ControllerOptions &options)
    : options_(options), count_(std::clamp(forced.links, 0, kMaxLinks)), forced_(true), forced_vector_(forced) {
    options_.window = std::clamp(options_.window, 1, 255);
    options_.frozen = true;
    for (int slot = 0; slot < kSlots; ++slot)
        source_[slot].fill(static_cast<uint8_t>(slot));
    members_changed();
}

void Controller::sort_by_latency() {
    std::stable_sort(by_latency_.begin(), by_latency_.begin() + count_,
                     [&](int a, int b) { return links_[a].latency < links_[b].latency; });
}

/// The links among which stage 1 chooses, by what a probe found.
///
/// Slowdown of a link: its rate alone over its rate with all loaded; the inverse is its use u of whatever they share.
/// Without link i, link j's excess slowdown shrinks by i's part of the use of all links that j competes with:
///   slowdown'_j - 1 = (slowdown_j - 1)·(1 - u_i / Σ_{k≠j} u_k).
/// Exact for two links (j is then alone), for links that share nothing, and for links that divide one resource.
struct Controller::Probed {
    int count = 0;
    uint32_t set = 0;  ///< those that are left, as bits
    std::array<double, kMaxLinks> alone{}, slowdown{};

    [[nodiscard]] bool in(int i) const { return (set >> i & 1) != 0; }
    [[nodiscard]] double slowdown_without(int i, int j) const {
        double use = 0;
        for (int k = 0; k < count; ++k)
            if (in(k) && k != j)
                use += 1 / slowdown[k];
        return 1 + (slowdown[j] - 1) * (1 - 1 / slowdown[i] / use);
    }
    /// Rate of all that are left, together.
    [[nodiscard]] double rate() const {
        double all = 0;
        for (int j = 0; j < count; ++j)
            if (in(j))
                all += alone[j] / slowdown[j];
        return all;
    }
    [[nodiscard]] double rate_without(int i) const {
        double rest = 0;
        for (int j = 0; j < count; ++j)
            if (in(j) && j != i)
                rest += alone[j] / slowdown_without(i, j);
        return rest;
    }
    void take_off(int i) {
        std::array<double, kMaxLinks> without = slowdown;
        for (int j = 0; j < count; ++j)
            if (in(j) && j != i)
                without[j] = slowdown_without(i, j);
        slowdown = without;
        set &= ~(1u << i);
    }
};

/// Stage 1's choice of the links that are on, and first rates.
void Controller::choose_links(std::span<const LinkEstimate> links) {
    Probed probed;
    probed.count = count_;
    for (int i = 0; i < count_; ++i) {
        const double together = known_rate(links[i].together_bytes_per_ns);
        probed.alone[i] = std::max(known_rate(links[i].bytes_per_ns), together);
        probed.slowdown[i] = together > 0 ? probed.alone[i] / together : 1;
        if (!links[i].usable) {
            links_[i].standing = Standing::unusable;
            links_[i].before = Standing::unmeasured;
        } else if (probed.alone[i] > 0) {
            probed.set |= 1u << i;
        } else {
            links_[i].standing = Standing::unmeasured;
        }
    }
    leave_little_gains(probed);
    seed_estimates(probed);
    urgent_ = true;  // a link that the probe thought too slow is offered a share in the first operations
    // Without offers nothing else would ever measure them.
    if (options_.explore_every <= 0 || options_.frozen)
        for (int i = 0; i < count_; ++i)
            if (links_[i].standing == Standing::unmeasured)
                links_[i].standing = Standing::on;
}

/// Takes links off one at a time, least gain first, until each that is left adds enough. Rates of the rest are
/// corrected on the way.
void Controller::leave_little_gains(Probed &probed) {
    // The link of least latency serves the smallest messages, whatever its rate.
    int nearest = -1;
    for (int i = 0; i < count_; ++i)
        if (probed.in(i) && (nearest < 0 || links_[i].latency < links_[nearest].latency ||
                             (links_[i].latency == links_[nearest].latency && probed.alone[i] > probed.alone[nearest])))
            nearest = i;
    while (std::popcount(probed.set) > 1) {
        const double all = probed.rate();
        int worst = -1;
        double worst_gain = 0, worst_rest = 0;
        for (int i = 0; i < count_; ++i) {
            if (!probed.in(i) || i == nearest)
                continue;
            const double rest = probed.rate_without(i);
            const double gain = all / rest - 1;
            if (worst < 0 || gain < worst_gain) {
                worst = i;
                worst_gain = gain;
                worst_rest = rest;
            }
        }
        if (worst_gain > options_.min_gain)
            break;
        probed.take_off(worst);
        links_[worst].standing = Standing::adds_little;
        links_[worst].gain = worst_gain;
        links_[worst].needed = options_.min_gain;
        links_[worst].rest = worst_rest;
    }
    for (int i = 0; i < count_; ++i)
        if (links_[i].standing == Standing::adds_little)
            links_[i].rest_links = probed.set;
}

/// What every band and phase believes before it has measured anything.
void Controller::seed_estimates(const Probed &probed) {
    for (int i = 0; i < count_; ++i) {
        const double rate = probed.alone[i] > 0 ? probed.alone[i] / probed.slowdown[i] : 0;
        for (int slot = 0; slot < kSlots && rate > 0; ++slot) {
            Estimate &seed = estimates_[slot][i];
            seed.cost = 1 / rate;
            seed.spread = kSeedSpread * seed.cost;
            seed.count = static_cast<uint8_t>(kSeedSamples);
            links_[i].sure = seed.cost;
        }
    }
}

const PartitionVector &Controller::vector(size_t bytes, int phase) const {
    return classes_[class_index(bytes, phase)].vector;
}

/// The links that are on (and `extra`, if ≥ 0) with what is believed of them, by rising latency.
int Controller::lanes(int index, int extra, std::array<Lane, kMaxLinks> &out) const {
    const int slot = slot_of(index);
    int count = 0;
    const auto add = [&](int link) {
        const Estimate &believed = estimate(slot, link);
        out[count++] = {links_[link].latency,    believed.rate(),  believed.cost, link,
                        links_[link].preference, links_[link].work};
    };
    for (int k = 0; k < on_count_; ++k) {
        if (extra >= 0 && links_[extra].latency < links_[on_links_[k]].latency) {
            add(extra);
            extra = -1;
        }
        add(on_links_[k]);
    }
    if (extra >= 0)
        add(extra);

    // A link that is on without ever having been measured counts as the slowest that was.
    double slowest = 0;
    bool all_known = true;
    for (int k = 0; k < count; ++k) {
        all_known = all_known && out[k].rate > 0;
        if (out[k].rate > 0 && (slowest == 0 || out[k].rate < slowest))
            slowest = out[k].rate;
    }
    if (!all_known)
        for (int k = 0; k < count; ++k)
            if (out[k].rate == 0) {
                out[k].rate = slowest > 0 ? slowest : 1;
                out[k].cost = 1 / out[k].rate;
            }
    if (is_brief(slot, class_bytes(index)))
        steady(std::span(out).first(static_cast<size_t>(count)));
    return count;
}

Finish Controller::finish_time(int index, int extra) const {
    std::array<Lane, kMaxLinks> active;
    std::array<double, kMaxLinks> share;
    const int count = lanes(index, extra, active);
    return water_fill(active, count, class_bytes(index), options_.min_gain, share.data());
}

double Controller::finish_without(int index, int link) const {
    std::array<Lane, kMaxLinks> active;
    std::array<double, kMaxLinks> share;
    int count = lanes(index, -1, active);
    count = static_cast<int>(
        std::remove_if(active.begin(), active.begin() + count, [link](const Lane &lane) { return lane.link == link; }) -
        active.begin());
    return count == 0 ? std::numeric_limits<double>::infinity()
                      : water_fill(active, count, class_bytes(index), options_.min_gain, share.data()).sum();
}

/// Recomputes one class's vector; adopts it if it differs enough, or `always`. True if the vector changed.
bool Controller::refresh(int index, bool always) {
    ClassState &state = classes_[index];
    state.refresh_in = static_cast<uint8_t>(std::max(kRefreshEvery, 2 * on_count_ - kRefreshEvery));
    if (on_count_ == 0) {
        state.vector = {};
        state.vector.links = count_;
        return true;
    }
    std::array<Lane, kMaxLinks> active;
    std::array<double, kMaxLinks> sorted;
    const int count = lanes(index, -1, active);
    const double bytes = class_bytes(index);
    const double finish = water_fill(active, count, bytes, options_.min_gain, sorted.data()).filled;
    if (!always) {
        double moved = 0, late = 0;
        for (int k = 0; k < count; ++k) {
            const uint32_t weight = state.vector.weight[active[k].link];
            const double share = weight * (1.0 / PartitionVector::kWhole);
            moved = std::max(moved, std::abs(share - sorted[k]));
            if (weight != 0)
                late = std::max(late, active[k].latency + share * bytes * active[k].cost);
        }
        if (moved <= options_.hysteresis && late <= finish * (1 + kLate))
            return false;
    }
    std::array<double, kMaxLinks> shares{};
    for (int k = 0; k < count; ++k)
        shares[active[k].link] = sorted[k];
    const PartitionVector next = make_partition(std::span<const double>(shares.data(), static_cast<size_t>(count_)));
    const bool changed = next != state.vector;
    state.vector = next;
    return changed;
}

void Controller::refresh_all() {
    for (int index = 0; index < kClasses; ++index)
        refresh(index, true);
}

/// After any change of who may carry: finds stand-ins, rebuilds the list of links that are on, and all vectors.
void Controller::members_changed() {
    offer_.link = -1;
    if (forced_) {
        use_forced();
        return;
    }
    settle_stand_in();
    const auto together = [&] {
        uint32_t links = 0;
        for (int k = 0; k < on_count_; ++k)
            links |= 1U << on_links_[k];
        return links;
    };
    const uint32_t before = together();
    on_count_ = 0;
    for (int k = 0; k < count_; ++k)
        if (on(by_latency_[k]))
            on_links_[on_count_++] = by_latency_[k];
    if (together() != before)
        brief_rates_.forget();
    for (ClassState &state : classes_)
        state.costs_known = 0;
    refresh_all();
}

/// The forced vector as far as its links work, for every class. Where none does the others share.
void Controller::use_forced() {
    std::array<double, kMaxLinks> shares{};
    double sum = 0;
    for (int i = 0; i < count_; ++i)
        sum += shares[i] = usable(i) ? forced_vector_.weight[i] : 0;
    for (int i = 0; i < count_ && sum == 0; ++i)
        shares[i] = usable(i) ? 1 : 0;
    const auto next = make_partition(std::span<const double>(shares.data(), static_cast<size_t>(count_)));
    for (ClassState &state : classes_)
        state.vector = next;
}

/// Where no link is on, one that works stands in; where one is that does not stand in, those that did are off again.
void Controller::settle_stand_in() {
    bool regular = false;
    for (int i = 0; i < count_; ++i)
        regular = regular || (on(i) && !links_[i].stand_in);
    if (regular) {
        for (int i = 0; i < count_; ++i)
            if (links_[i].stand_in) {
                links_[i].standing = links_[i].before;
                links_[i].stand_in = false;
            }
        return;
    }
    int best = -1;
    for (int i = 0; i < count_; ++i) {
        if (on(i))
            return;
        // A link that was in use before beats any other; then the faster one.
        const auto rank = [&](int link) { return std::pair(links_[link].standing == Standing::returned, rate(link)); };
        if (usable(i) && (best < 0 || rank(i) > rank(best)))
            best = i;
    }
    if (best < 0)
        return;
    // One that was in use, or was never judged, is on for good.
    LinkState &link = links_[best];
    link.stand_in = link.standing == Standing::adds_little || link.standing == Standing::tried;
    link.before = link.standing;
    link.standing = Standing::on;
}

/// Takes a first measurement in this band and phase (or a new one after a long silence).
void Controller::adopt(int slot, int link, double cost, bool forget_others) {
    Estimate &mine = estimates_[slot][link];
    mine = {};
    mine.cost = cost;
    mine.spread = kSeedSpread * cost;
    mine.own = true;
    mine.count = static_cast<uint8_t>(kSeedSamples);
    // Bands and phases that have no measurement of their own follow the nearest that has: same phase first.
    for (int s = 0; s < kSlots; ++s) {
        if (forget_others && s != slot)
            estimates_[s][link].own = false;
    }
    for (int s = 0; s < kSlots; ++s) {
        int nearest = slot, least = std::numeric_limits<int>::max();
        for (int other = 0; other < kSlots; ++other) {
            const int distance = 2 * std::abs(s % kBands - other % kBands) + (s / kBands != other / kBands);
            if (estimates_[other][link].own && distance < least) {
                nearest = other;
                least = distance;
            }
        }
        source_[s][link] = static_cast<uint8_t>(nearest);
    }
}

/// The factor by which the links were all slower than believed in one operation: that of the link that was least so.
/// A process that has no core, here or at the other end, makes all its links look slow alike, and none fast; one link's
/// own trouble leaves the others as they are. Taken for the links' own, delays would blow shares about, since no two
/// links see quite the same. Where it lasts, the rates are lower by that factor, which leaves the shares.
double Controller::common_delay(int slot, std::span<const LinkSample> samples, int offered) {
    int compared = 0;
    double factor = std::numeric_limits<double>::infinity();
    Delay &delay = delays_[slot];
    for (int k = 0; k < on_count_; ++k) {
        const int link = on_links_[k];
        if (link == offered || link >= static_cast<int>(samples.size()) || samples[link].bytes < kLearnBytes)
            continue;
        const auto busy = static_cast<double>(samples[link].busy_ns);
        const double expected = estimate(slot, link).cost * static_cast<double>(samples[link].bytes);
        const double took = std::max(busy - links_[link].latency, 0.25 * busy);
        if (took < kDelayed * expected) {  // nearly always the first: what follows costs a division for each link
            delay.run = 0;
            return 1;
        }
        if (expected > 0) {
            factor = std::min(factor, took / expected);
            ++compared;
        }
    }
    if (compared < 2) {
        delay.run = 0;
        return 1;
    }
    delay.least = delay.run == 0 ? factor : std::min(delay.least, factor);
    if (++delay.run < kDelayedRun)
        return factor;
    for (Estimate &estimate : estimates_[slot]) {
        estimate.cost *= delay.least;
        estimate.spread *= delay.least;
    }
    delay.run = 0;
    return factor / delay.least;
}

/// What only the probe has seen is not believed any more: such links count as the slowest that was measured.
void Controller::forget_probe() {
    probe_wrong_ = false;
    for (int link = 0; link < count_; ++link) {
        LinkState &state = links_[link];
        if (state.last_learnt != 0 || (!on(link) && state.standing != Standing::adds_little))
            continue;
        for (auto &slot : estimates_)
            slot[link] = {};
        state.sure = 0;
        state.standing = Standing::on;
    }
    members_changed();
}

/// Whether a link carried for so long that no burst explains its rate. Not where it was idle in between for longer than
/// it was busy: each time another burst may have passed.
bool Controller::lasting(const LinkSample &sample) const {
    return per_burst_ > 0 && static_cast<double>(sample.busy_ns) >= options_.burst_ns &&
           2 * sample.busy_ns >= elapsed_ns_;
}

/// What one sample of one link says that it costs, ns per byte; nothing: it says nothing. The rest as for learn.
std::optional<double> Controller::shown_cost(int slot, int link, const LinkSample &sample, double delay,
                                             bool ended_early) const {
    const LinkState &state = links_[link];
    if (sample.bytes < kLeastBytes || sample.busy_ns == 0)
        return std::nullopt;
    double cost = cost_of(sample, state.latency);
    if (delay > 1)
        cost /= delay;
    if (!shows_rate(sample, state.latency)) {
        // Mostly latency. Yet a link that was faster even so is faster, and must not stay at a small share for want of
        // a larger sample.
        cost = static_cast<double>(sample.busy_ns) / static_cast<double>(sample.bytes);
        if (options_.burst_ns == 0 || cost * (1 + kOutlier) > estimate(slot, link).cost)
            return std::nullopt;
    }
    // A link that was done long before the others may have let a burst pass: nothing but that it is as fast as it is
    // sure to be.
    if (ended_early && state.sure > 0)
        cost = std::max(cost, std::min(estimate(slot, link).cost, state.sure));
    return cost;
}

/// One sample of one link, in an operation in which all took `delay` times as long as usual; `ended_early`: it was done
/// long before the others. True if its rate was found to have changed at one point.
bool Controller::learn(int slot, int link, const LinkSample &sample, double delay, bool ended_early) {
    const std::optional<double> shown = shown_cost(slot, link, sample, delay, ended_early);
    if (!shown)
        return false;
    LinkState &state = links_[link];
    const bool first = state.last_learnt == 0;
    state.last_learnt = calls_;
    state.slot = static_cast<uint8_t>(slot);
    Estimate &believed = estimates_[slot][link];
    double cost = *shown;
    if (!believed.own) {
        const double start = estimate(slot, link).cost;
        if (first && lasting(sample) && std::max(cost, start) > (1 + kOutlier) * std::min(cost, start)) {
            // A probe takes some ms, and may be wrong by any factor on a busy machine.
            probe_wrong_ = start > 0 && std::max(cost, start) > kProbeWrong * std::min(cost, start);
            adopt(slot, link, cost, false);
            return true;
        }
        adopt(slot, link, start > 0 ? start : cost, false);
    }

    // Divisions would be most of what a sample costs: deviations are kept in ns per byte, rates computed when wanted.
    const double before = believed.cost;
    const double bound = before + std::max(kOutlier * before, kOutlierSpreads * believed.spread);
    const int side = cost > bound ? 1 : cost * bound < before * before ? -1 : 0;
    if (side == 0) {
        believed.run = 0;
    } else {
        if (take_outlier(believed, side, cost, sample))
            return true;
        // One hiccup counts, but only as much as the bound.
        cost = side > 0 ? bound : before * before / bound;
    }
    take_into_mean(believed, cost, static_cast<double>(sample.busy_ns));
    return false;
}

/// One more outlier, which costs more (`side` 1) or less (-1) than is believed. True if that, with those before it in a
/// row, is no hiccup but a change of the link: something else is believed then.
bool Controller::take_outlier(Estimate &believed, int side, double cost, const LinkSample &sample) const {
    const double before = believed.cost;
    const bool far = cost > kFar * before || cost * kFar < before;
    if (believed.run * side <= 0) {
        believed.run = 0;
        believed.run_sum = 0;
        believed.run_busy = 0;
        believed.run_far = true;
    }
    believed.run = static_cast<int8_t>(believed.run + side);
    believed.run_sum += cost;
    believed.run_busy += static_cast<double>(sample.busy_ns);
    believed.run_far = believed.run_far && far;
    const int length = std::abs(believed.run);
    // What is not far off, and perhaps only a burst or a late acknowledgement, need not be followed at once.
    const bool jumps = side < 0 || believed.run_far || believed.run_busy >= options_.burst_ns;
    if (jumps && (length >= 3 || (length == 2 && believed.run_far))) {
        const double found = believed.run_sum / length;
        believed.run = 0;
        if (believed.run_busy < options_.burst_ns) {
            // Perhaps only a burst, or a peer that lost its core for a while. Taken at its word, a link that has
            // little to do would be flooded, the others would then have little to do, and so on in turn.
            const double step = kBurstStep * (1 + believed.run_busy / options_.burst_ns);
            believed.cost = std::clamp(found, before / step, before * step);
            believed.spread *= believed.cost / before;
            return true;
        }
        // Not noise: the link has changed, and what was known before says nothing.
        believed.cost = found;
        believed.spread = kSeedSpread * found;
        believed.count = static_cast<uint8_t>(length);
        return true;
    }
    if (side < 0 && lasting(sample)) {
        // Nothing makes a link deliver for so long what it cannot carry: it was believed too slow.
        believed.cost = 2 * before * cost / (before + cost);
        believed.spread *= believed.cost / before;
        believed.count = std::min(believed.count, static_cast<uint8_t>(options_.window));
        return true;
    }
    return false;
}

/// The mean and the mean deviation of the last samples; brief ones count less.
void Controller::take_into_mean(Estimate &believed, double cost, double busy_ns) const {
    const double before = believed.cost;
    const int window =
        believed.spread > kNoisy * before ? std::min(kNoisyWindows * options_.window, 255) : options_.window;
    believed.count = static_cast<uint8_t>(std::min(believed.count + 1, window));
    double weight = kInverse[believed.count];
    if (busy_ns < weight * options_.burst_ns)
        weight = busy_ns * per_burst_;
    believed.spread += weight * (std::abs(cost - before) - believed.spread);
    believed.cost += weight * (cost - before);
}

bool Controller::observe(size_t bytes, int phase, std::span<const LinkSample> samples, uint64_t elapsed_ns) {
    const int index = class_index(bytes, phase);
    const int slot = slot_of(index);
    ClassState &state = classes_[index];
    ++calls_;
    ++state.calls;
    elapsed_ns_ = elapsed_ns;
    const int offered = offer_.link >= 0 && offer_.index == index ? offer_.link : -1;
    const int count = std::min(count_, static_cast<int>(samples.size()));
    const double delay = options_.burst_ns > 0 ? common_delay(slot, samples, offered) : 1;
    bool moved = false, learnt = false;
    uint64_t total = 0, busiest = 0;
    for (const LinkSample &sample : samples.first(static_cast<size_t>(count)))
        total += sample.bytes;
    const bool brief = is_brief(slot, static_cast<double>(total));
    for (int i = 0; i < count; ++i)
        if (samples[i].bytes != 0)
            busiest = std::max(busiest, samples[i].busy_ns);
    for (int i = 0; i < count; ++i)
        if (samples[i].bytes != 0 && i != offered && usable(i))
            moved |= learn(slot, i, samples[i], delay, brief && BriefRates::ended_early(samples[i].busy_ns, busiest));
    if (!brief)
        make_sure(slot);
    if (options_.frozen || on_count_ == 0)
        return false;
    // Phases of one operation have the same samples, which count once.
    if (brief && index < kSizeClasses && offered < 0 && trial_.link < 0)
        learnt =
            learn_brief(index, samples.first(static_cast<size_t>(count)), elapsed_ns > 0 ? elapsed_ns : busiest, delay);
    if (offered >= 0)
        return finish_offer(slot, offered < count ? samples[offered] : LinkSample{});
    if (probe_wrong_)
        forget_probe();

    if (total > 0)
        note_cost(index, total, elapsed_ns > 0 ? elapsed_ns : busiest);
    bool changed = follow_rates(index, moved) || learnt;
    if ((urgent_ || state.calls >= state.next_offer) && options_.explore_every > 0 && bytes >= kOfferLeast &&
        offer_.link < 0) {
        make_offer(index);
        changed = changed || offer_.link >= 0;
    }
    return changed;
}

/// What an operation of this class cost, which matters only where a link may be tried, or is.
void Controller::note_cost(int index, uint64_t bytes, uint64_t time_ns) {
    const bool trying = trial_.link >= 0 && trial_.index == index;
    if (on_count_ == count_ && !trying)
        return;
    ClassState &state = classes_[index];
    const auto cost = static_cast<float>(static_cast<double>(time_ns) / static_cast<double>(bytes));
    state.costs[state.costs_at] = cost;
    state.costs_at = static_cast<uint8_t>((state.costs_at + 1) % kCosts);
    state.costs_known = static_cast<uint8_t>(std::min<int>(state.costs_known + 1, kCosts));
    if (trying)
        step_trial(cost);
}

/// The vector of this class is computed anew when a rate `moved`, else now and then. Classes that are not in use now
/// follow the rates too, one at a time. True if this class's changed.
bool Controller::follow_rates(int index, bool moved) {
    ClassState &state = classes_[index];
    bool changed = false;
    if (moved || state.calls <= kYoung || state.refresh_in == 0)
        changed = refresh(index, false);
    else
        --state.refresh_in;
    if (calls_ % kRefreshOthers == 0) {
        cursor_ = (cursor_ + 1) % kClasses;
        if (cursor_ != index && !(offer_.link >= 0 && offer_.index == cursor_))
            refresh(cursor_, false);
    }
    return changed;
}

/// Gives an idle link, if there is one whose turn it is, a small share of this class's next operation.
void Controller::make_offer(int index) {
    ClassState &state = classes_[index];
    const auto every = static_cast<uint64_t>(options_.explore_every);
    state.next_offer = state.calls + static_cast<uint32_t>(every);
    if (trial_.link >= 0) {
        if (calls_ - trial_.begun > kTrialCalls)
            trial_.link = -1;
        return;
    }
    const int slot = slot_of(index);
    const double bytes = class_bytes(index);
    const double finish = finish_time(index, -1).filled;
    // The cut gives a cell to every share of a cell or more; a class's least message decides.
    const double cell = static_cast<double>(kMaxCellBytes) / std::ldexp(1.0, index % kSizeClasses);
    bool waiting = false;
    for (int step = 0; step < count_; ++step) {
        const int link = (offer_cursor_ + step) % count_;
        LinkState &candidate = links_[link];
        if (!usable(link) || candidate.latency >= finish || (on(link) && candidate.stand_in))
            continue;
        // What only the probe has seen is looked at soon: on a busy machine a probe may be wrong by any factor.
        const bool probed_only = candidate.last_learnt == 0;
        if (on(link) && ((calls_ - candidate.last_learnt < every && !probed_only) || state.vector.share(link) >= cell))
            continue;
        if (calls_ < candidate.next_offer)
            continue;
        const bool judged = !on(link) && candidate.standing != Standing::returned;
        if (judged && state.costs_known < kTrialBaseline) {
            waiting = true;
            continue;
        }
        // Small enough to end with the others at the rate believed; one cell if nothing is believed. If even a cell
        // would end late, only where that is little beside all operations since the last offer.
        const double believed = estimate(slot, link).rate();
        double share = cell;
        if (believed > 0) {
            share = std::max(cell, std::min(options_.explore_share, (finish - candidate.latency) * believed / bytes));
            const double delay = candidate.latency + share * bytes / believed - finish;
            const double allowed = kOfferCost * static_cast<double>(calls_ - candidate.last_offer);
            if (delay > (probed_only ? kFirstLook : allowed) * finish)
                continue;
        }
        share = std::min(share, 0.5);
        std::array<double, kMaxLinks> shares{};
        const double rest = (1 - share) / (PartitionVector::kWhole - state.vector.weight[link]);
        for (int i = 0; i < count_; ++i)
            shares[i] = i == link ? share + 1.0 / PartitionVector::kWhole : state.vector.weight[i] * rest;
        offer_.link = link;
        offer_.index = index;
        offer_.seen = 0;
        offer_.saved = state.vector;
        state.vector = make_partition(std::span<const double>(shares.data(), static_cast<size_t>(count_)));
        offer_cursor_ = (link + 1) % count_;
        return;
    }
    urgent_ = waiting;
}

/// The operation with the offered share is over: judges the link by what it delivered.
bool Controller::finish_offer(int slot, const LinkSample &sample) {
    const int link = offer_.link, index = offer_.index;
    LinkState &state = links_[link];
    const bool delivered = sample.bytes >= kLeastBytes && sample.busy_ns > 0;
    // Operations that were planned before the offer do not carry it.
    if (!delivered && ++offer_.seen < kOfferCalls)
        return false;
    classes_[index].vector = offer_.saved;
    offer_.link = -1;
    state.last_offer = calls_;
    state.next_offer = calls_ + (static_cast<uint64_t>(options_.explore_every) << state.backoff);
    if (!delivered)
        return true;
    // A burst says only that the link may be as fast as any other.
    double cost = cost_of(sample, state.latency);
    if (static_cast<double>(sample.busy_ns) < options_.burst_ns) {
        double least = std::numeric_limits<double>::infinity();
        for (int i = 0; i < count_; ++i)
            if (i != link && on(i) && estimate(slot, i).cost > 0)
                least = std::min(least, estimate(slot, i).cost);
        if (std::isfinite(least))
            cost = std::max(cost, least);
    }
    adopt(slot, link, cost, true);
    state.last_learnt = calls_;
    state.slot = static_cast<uint8_t>(slot);
    if (on(link)) {
        refresh(index, true);
        return true;
    }
    if (state.standing == Standing::returned) {
        state.standing = Standing::on;
        members_changed();
        return true;
    }
    const double gain = finish_time(index, -1).sum() / finish_time(index, link).sum() - 1;
    if (gain <= options_.min_gain) {
        record(link, Standing::adds_little, gain, options_.min_gain);
        return true;
    }
    // It looks worth while; whether the others stay as fast beside it only a trial shows.
    ClassState &observed = classes_[index];
    std::array<float, kCosts> costs = observed.costs;
    record(link, Standing::on, gain, 0);
    trial_ = {};
    trial_.link = link;
    trial_.index = index;
    trial_.begun = calls_;
    trial_.predicted = gain;
    trial_.before = median(std::span<float>(costs.data(), observed.costs_known));
    members_changed();
    return true;
}

/// One operation of the trial. Its end decides by medians: half of the predicted gain at least must have come, since
/// a link that only takes from the others brings about none of it and one of its own brings all.
void Controller::step_trial(float cost) {
    if (trial_.seen >= kTrialSettle)
        trial_.costs[trial_.seen - kTrialSettle] = cost;
    if (++trial_.seen < kTrialSettle + kTrialCosts)
        return;
    const int link = trial_.link;
    trial_.link = -1;
    const double now = median(std::span<float>(trial_.costs.data(), kTrialCosts));
    const double gain = now > 0 ? trial_.before / now - 1 : 0;
    // What its own samples now promise counts, where an offer's burst had promised more.
    const double predicted =
        std::min(trial_.predicted, finish_without(trial_.index, link) / finish_time(trial_.index, -1).sum() - 1);
    const double needed = std::max(options_.min_gain, predicted / 2);
    if (gain >= needed) {
        links_[link].backoff = 0;
        return;
    }
    LinkState &state = links_[link];
    state.backoff = std::min<uint8_t>(state.backoff + 1, kMostBackoff);
    state.next_offer = calls_ + (static_cast<uint64_t>(options_.explore_every) << state.backoff);
    record(link, Standing::tried, gain, needed);
    members_changed();
}

/// Notes a judgement of `link`, and against whom.
void Controller::record(int link, Standing standing, double gain, double needed) {
    LinkState &state = links_[link];
    state.standing = standing;
    state.gain = gain;
    state.needed = needed;
    state.rest = 0;
    state.rest_links = 0;
    for (int i = 0; i < count_; ++i)
        if (i != link && on(i)) {
            state.rest += rate(i);
            state.rest_links |= 1u << i;
        }
}

}  // namespace flx
