#include "apps/flx_lab/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/sizes.h"

namespace flx::bench::lab {
namespace {

double median_of(const std::vector<double> &values, double unit) {
    return summarise(values).median * unit;
}

}  // namespace

std::vector<double> Overlap::ratios() const {
    std::vector<double> of;
    for (size_t i = 0; i < together.size(); ++i) {
        const double longer = std::max(communication[i], computation[i]);
        if (longer > 0) {
            of.push_back(together[i] / longer);
        }
    }
    return of;
}

std::string overlap_header(const Options &options, const Machine &machine) {
    return fmt::format(
        "{} without waiting, beside a computation that takes as long, {} rounds\n"
        "machine: {}\n"
        "FLX: {}\n"
        "call: until it returned; over longer: both together over the longer one, 1 is ideal, 2 no overlap\n\n"
        "{:>10}{:>12}{:>12}{:>16}{:>12}{:>12}{:>14}{:>16}{:>8}\n",
        name_of(options.collective), options.iterations, machine.text, settings_text(machine.flx_settings), "size",
        "call us", "most us", "collective ms", "compute ms", "both ms", "over longer", "10-90 %", "wrong");
}

std::string overlap_row(const Overlap &overlap) {
    constexpr double kMs = 1e3;
    constexpr double kUs = 1e6;
    const Summary ratio = summarise(overlap.ratios());
    const double most = overlap.issue.empty() ? 0 : *std::max_element(overlap.issue.begin(), overlap.issue.end());
    return fmt::format("{:>10}{:>12.1f}{:>12.1f}{:>16.3f}{:>12.3f}{:>12.3f}{:>14.2f}{:>16}{:>8}\n",
                       size_text(overlap.bytes), median_of(overlap.issue, kUs), most * kUs,
                       median_of(overlap.communication, kMs), median_of(overlap.computation, kMs),
                       median_of(overlap.together, kMs), ratio.median,
                       fmt::format("{:.2f}-{:.2f}", ratio.low, ratio.high), overlap.wrong);
}

nlohmann::ordered_json overlap_json(const Options &options, const OverlapResults &results) {
    nlohmann::ordered_json json = head_of(results.machine, "overlap");
    json["collective"] = name_of(options.collective);
    json["rounds"] = options.iterations;
    json["results"] = nlohmann::ordered_json::array();
    for (const Overlap &size : results.sizes) {
        json["results"].push_back({{"bytes", size.bytes},
                                   {"call_us", median_of(size.issue, 1e6)},
                                   {"collective_us", median_of(size.communication, 1e6)},
                                   {"compute_us", median_of(size.computation, 1e6)},
                                   {"both_us", median_of(size.together, 1e6)},
                                   {"over_longer", summarise(size.ratios()).median},
                                   {"wrong", size.wrong}});
    }
    return json;
}

}  // namespace flx::bench::lab
