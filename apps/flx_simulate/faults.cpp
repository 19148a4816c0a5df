#include "apps/flx_simulate/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/shares/controller.h"

namespace flx::simulate {
namespace {

/// A host's rails, at their rates of the moment.
class Rails {
  public:
    explicit Rails(const Machine &machine) : latency_ns_(machine.costs.far.latency_ns), rates_(machine.rates) {}

    void set_part(int rail, double part) { parts_[rail] = part; }
    [[nodiscard]] double rate(int rail) const {
        const auto found = parts_.find(rail);
        return rates_[static_cast<size_t>(rail)] * (found == parts_.end() ? 1 : found->second);
    }
    [[nodiscard]] int count() const { return static_cast<int>(rates_.size()); }
    [[nodiscard]] double all() const {
        double sum = 0;
        for (int rail = 0; rail < count(); ++rail)
            sum += rate(rail);
        return sum;
    }
    /// What each rail carries of one part of a vector; that of a lost one goes by the next that works.
    [[nodiscard]] std::vector<double> carried(const PartitionVector &vector) const {
        std::vector<double> shares(rates_.size(), 0);
        for (int rail = 0; rail < count(); ++rail) {
            int by = rail;
            for (int tried = 0; rate(by) == 0 && tried < count(); ++tried)
                by = (by + 1) % count();
            shares[static_cast<size_t>(by)] += vector.share(rail);
        }
        return shares;
    }
    /// Bytes/ns of all together when each carries its share: the last one ends it.
    [[nodiscard]] double together(const PartitionVector &vector) const {
        const std::vector<double> shares = carried(vector);
        double last = 0;
        for (int rail = 0; rail < count(); ++rail)
            if (shares[static_cast<size_t>(rail)] > 0)
                last = std::max(last, shares[static_cast<size_t>(rail)] / rate(rail));
        return 1 / last;
    }
    [[nodiscard]] std::vector<LinkSample> samples(const PartitionVector &vector, double bytes) const {
        const std::vector<double> shares = carried(vector);
        std::vector<LinkSample> samples(rates_.size());
        for (int rail = 0; rail < count(); ++rail) {
            const double own = shares[static_cast<size_t>(rail)] * bytes;
            if (own >= 1)
                samples[static_cast<size_t>(rail)] = {static_cast<uint64_t>(own),
                                                      static_cast<uint64_t>(latency_ns_ + own / rate(rail))};
        }
        return samples;
    }
    [[nodiscard]] std::vector<LinkEstimate> probed() const {
        std::vector<LinkEstimate> estimates;
        for (int rail = 0; rail < count(); ++rail)
            estimates.push_back(
                {.latency_ns = latency_ns_, .bytes_per_ns = rate(rail), .together_bytes_per_ns = rate(rail)});
        return estimates;
    }

  private:
    double latency_ns_;
    std::vector<double> rates_;
    std::map<int, double> parts_;
};

/// Numbers with colons between them, and nothing else. False where there are others, or too large ones.
template <typename... Numbers>
bool read_numbers(std::string_view text, Numbers &...numbers) {
    const char *at = text.data();
    const char *const end = text.data() + text.size();
    bool first = true;
    const auto read = [&](auto &number) {
        if (!first && (at == end || *at++ != ':'))
            return false;
        first = false;
        const auto [rest, error] = std::from_chars(at, end, number);
        at = rest;
        return error == std::errc();
    };
    return (read(numbers) && ...) && at == end;
}

}  // namespace

std::string parse_fault(const std::string &text, const Machine &machine, int calls, Fault &fault) {
    constexpr double kLeastPart = 1e-3;
    constexpr std::string_view kHost = "host";
    fault.of_host = text.starts_with(kHost);
    const std::string_view numbers = std::string_view(text).substr(fault.of_host ? kHost.size() : 0);
    const bool read = read_numbers(numbers, fault.number, fault.part, fault.from, fault.to);
    const bool part = (fault.part == 0 && !fault.of_host) || (fault.part >= kLeastPart && fault.part <= 1);
    if (!read || !part || fault.from < 0 || fault.to <= fault.from)
        return fmt::format(
            "\"{}\" is no RAIL:PART:FROM:TO, such as 0:0.25:100:300, and no hostNUMBER:PART:FROM:TO; PART "
            "is from {} to 1, and of a rail 0 as well",
            text, kLeastPart);
    if (fault.from >= calls)
        return fmt::format("\"{}\" begins after the last call; calls are 0 to {}, and --calls makes them more", text,
                           calls - 1);
    if (fault.of_host)
        return fault.number >= 0 && fault.number < machine.hosts
                   ? ""
                   : fmt::format("\"{}\" names a host that the machine has not; there are host0 to host{}", text,
                                 machine.hosts - 1);
    if (machine.hosts == 1)
        return "on a machine of one host nothing goes over rails, so it has no faults of rails";
    if (machine.burst != 0)
        return "faults of rails are not known of a machine whose shapers let bursts pass; leave burst out";
    if (machine.rails < 2 || machine.rails > kMaxLinks)
        return fmt::format("faults of rails need a machine of 2 to {} rails, and this one has {}", kMaxLinks,
                           machine.rails);
    if (fault.number < 0 || fault.number >= machine.rails)
        return fmt::format("\"{}\" names a rail that the machine has not; there are 0 to {}", text, machine.rails - 1);
    return {};
}

Losses run_faults(const Machine &machine, const Fault &fault, int calls, double bytes,
                  const std::function<double(double)> &time_of) {
    Rails rails(machine);
    ControllerOptions options;
    options.burst_ns = 40e6;  // as between hosts (runtime/shares/routes_making.cpp)
    Controller controller(rails.probed(), options);
    const auto message = static_cast<size_t>(bytes);
    const PartitionVector first = controller.vector(message, 0);
    Losses losses;
    for (int call = 0; call < calls; ++call) {
        if (call == fault.from || call == fault.to) {
            const double part = call == fault.from ? fault.part : 1;
            rails.set_part(fault.number, part);
            if (call == fault.to && fault.part == 0)
                controller.set_usable(fault.number, true);
        }
        const PartitionVector now = controller.vector(message, 0);
        const double with = time_of(rails.together(now));
        const double least = time_of(rails.all());
        losses.undisturbed += time_of(machine.costs.far.bytes_per_ns);
        const double without = time_of(rails.together(first));
        losses.with_controller += with;
        losses.without += without;
        losses.least += least;
        if (call >= fault.from && call < fault.to) {
            losses.last_with = with;
            losses.last_without = without;
            losses.last_least = least;
        }
        constexpr double kNear = 1.05;
        if (call >= fault.from && call < fault.to && losses.recovered < 0 && with <= kNear * least)
            losses.recovered = call - fault.from;
        controller.observe(message, 0, rails.samples(now, bytes));
        if (call == fault.from && fault.part == 0)
            controller.set_usable(fault.number, false);
    }
    const double ns = losses.undisturbed / calls;
    const int faulty = std::min(fault.to, calls) - fault.from;
    losses.adapting = std::max(losses.with_controller - losses.undisturbed - faulty * (losses.last_with - ns), 0.0);
    return losses;
}

Losses run_slow_host(const Fault &fault, int calls, double ns, double slow_ns) {
    const double all = ns * calls + (std::min(fault.to, calls) - fault.from) * (slow_ns - ns);
    return {.undisturbed = ns * calls,
            .with_controller = all,
            .without = all,
            .least = all,
            .recovered = 0,
            .last_with = slow_ns,
            .last_without = slow_ns,
            .last_least = slow_ns,
            .adapting = 0};
}

std::string parse_rate(const std::string &text, FaultRate &rate) {
    constexpr double kMostHours = 1e9;
    const auto good = [](double hours) { return hours > 0 && hours <= kMostHours; };
    if (read_numbers(text, rate.between_h, rate.repair_h) && good(rate.between_h) && good(rate.repair_h))
        return {};
    return fmt::format(
        "\"{}\" is no BETWEEN:REPAIR, such as 500000:24: hours of one rail or host between faults, and hours "
        "that a fault lasts, more than 0 and up to {}",
        text, kMostHours);
}

LostTime lost_time(const Losses &losses, int calls, const FaultRate &rate, double parts) {
    const double ns = losses.undisturbed / calls;
    const double cycle_h = rate.between_h + rate.repair_h;
    LostTime lost;
    lost.faulty = 1 - std::pow(rate.between_h / cycle_h, parts);
    constexpr double kNsOfHour = 3.6e12;
    const double adapting = parts / cycle_h * losses.adapting / kNsOfHour;
    // Hours are those of a clock: while a fault is there, ns / call of them go into what would be done without it.
    const auto longer = [&](double call, double at_once) {
        const double in_vain = lost.faulty * (1 - ns / call) + at_once;
        return in_vain < 1 ? in_vain / (1 - in_vain) : std::numeric_limits<double>::infinity();
    };
    lost.with_controller = longer(losses.last_with, adapting);
    lost.without = longer(losses.last_without, 0);
    lost.least = longer(losses.last_least, 0);
    return lost;
}

}  // namespace flx::simulate
