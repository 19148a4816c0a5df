#include "runtime/shares/slow_links.h"

#include <algorithm>
#include <limits>

#include "runtime/shares/link_cost.h"

namespace flx {
namespace {

constexpr double kSlow = 2;    // a link is slow where it took so many times as long as it did,
constexpr double kFine = 1.5;  // and is not where it took less than this

}  // namespace

bool SlowLinks::any() const {
    return std::ranges::any_of(links_, [](const Suspicion &one) { return one.rate > 0; });
}

void SlowLinks::suspect(int link, std::span<const double> rates, double share) {
    if (links_[link].rate > 0)
        return;
    if (!any())
        std::ranges::copy(rates, rates_.begin());
    links_[link] = {};
    links_[link].rate = rates_[link];
    links_[link].share = share;
}

/// How many times as long the sample took as it would have before; 0: it says nothing.
double SlowLinks::slowdown(int link, const LinkSample &sample) const {
    if (sample.bytes < kLeastBytes)
        return 0;
    return rates_[link] * static_cast<double>(sample.busy_ns) / static_cast<double>(sample.bytes);
}

void SlowLinks::observe(std::span<const LinkSample> samples) {
    if (!any())
        return;
    for (int link = 0; link < static_cast<int>(samples.size()); ++link)
        if (links_[link].rate > 0 && samples[link].busy_ns >= kLeastBusyNs)
            judge(link, samples);
}

void SlowLinks::judge(int link, std::span<const LinkSample> samples) {
    const double own = slowdown(link, samples[link]);
    if (own == 0)
        return;
    double others = std::numeric_limits<double>::infinity();  // processes without a core make all links slow
    for (int other = 0; other < static_cast<int>(samples.size()); ++other)
        if (const double factor = slowdown(other, samples[other]); other != link && factor > 0)
            others = std::min(others, factor);
    if (own < kFine) {
        forget(link);
        return;
    }
    if (own < kSlow * std::max(1.0, others))
        return;
    Suspicion &suspicion = links_[link];
    suspicion.bytes += samples[link].bytes;
    suspicion.busy_ns += samples[link].busy_ns;
    if (suspicion.busy_ns < kLookNs)
        return;
    suspicion.seen = static_cast<double>(suspicion.bytes) / static_cast<double>(suspicion.busy_ns);
    suspicion.bytes = suspicion.busy_ns = 0;
    ++suspicion.looks;
}

std::optional<SlowLinks::Slow> SlowLinks::confirmed() {
    for (int link = 0; link < kMaxLinks; ++link) {
        if (links_[link].looks < kLooks)
            continue;
        const Slow slow{link, links_[link].seen, links_[link].share};
        forget(link);
        return slow;
    }
    return std::nullopt;
}

}  // namespace flx
