#include "apps/flx_lab/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/sizes.h"
#include "apps/bench/timing.h"

namespace flx::bench::lab {
namespace {

constexpr std::array<const char *, 3> kPhases = {"idle", "copies", "idle again"};

double median_of(const std::vector<LoadCall> &calls, size_t begin, size_t end) {
    std::vector<double> seconds;
    for (size_t i = begin; i < std::min(end, calls.size()); ++i)
        seconds.push_back(calls[i].seconds);
    return summarise(seconds).median;
}

double busbw(const UnderLoad &size, double seconds) {
    return seconds > 0 ? size.bus_bytes / seconds / 1e9 : 0;
}

}  // namespace

StaticShare best_static(const UnderLoad &size, bool loaded) {
    StaticShare best;
    for (const StaticShare &share : size.statics) {
        const double seconds = loaded ? share.loaded : share.idle;
        const double least = loaded ? best.loaded : best.idle;
        if (seconds > 0 && (least == 0 || seconds < least))
            best = share;
    }
    return best;
}

Following following(const UnderLoad &size, int phase) {
    constexpr size_t kFive = 5;
    const std::vector<LoadCall> &calls = size.phases.at(phase);
    const StaticShare best = best_static(size, phase == 1);
    const double least = phase == 1 ? best.loaded : best.idle;
    Following result;
    const double late = median_of(calls, calls.size() / 2, calls.size());
    result.ratio = late > 0 ? least / late : 0;
    for (size_t i = 0; i + kFive <= calls.size() && result.after < 0; ++i)
        if (least >= kCloseEnough * median_of(calls, i, i + kFive))
            result.after = static_cast<int>(i);
    return result;
}

std::string load_header(const Options &options, const Machine &machine) {
    return fmt::format(
        "{} of {} on GPUs, {} calls; {} while copies between host and every GPU run both ways{}; {} without\n"
        "machine: {}\n"
        "FLX: {}\n\n",
        name_of(options.collective), name_of(options.dtype), kLoadCalls, kLoadCalls,
        options.queued_copies > 1 ? ", the next ones always waiting" : "", kLoadCalls, machine.text,
        settings_text(machine.flx_settings));
}

std::string load_text(const UnderLoad &size) {
    std::string text = fmt::format("{}: copies of {:.1f} GB/s each way on a GPU; shares that stay, GB/s idle / loaded:",
                                   size_text(size.bytes), size.copies / 1e9);
    for (const StaticShare &share : size.statics)
        text += fmt::format(" {:.1f}%: {:.1f} / {:.1f}", 100 * share.forced, busbw(size, share.idle),
                            busbw(size, share.loaded));
    text += "\n";
    for (size_t phase = 0; phase < size.phases.size(); ++phase) {
        text += fmt::format("  {}, GB/s (share over PCIe) by call:", kPhases[phase]);
        for (const LoadCall &call : size.phases[phase])
            text += fmt::format(" {:.0f} ({:.1f}%)", busbw(size, call.seconds), 100 * call.share);
        const StaticShare best = best_static(size, phase == 1);
        const Following found = following(size, static_cast<int>(phase));
        text += fmt::format("\n  {}: {:.3f} of the best share that stays ({:.1f}%, {:.1f} GB/s); {}\n", kPhases[phase],
                            found.ratio, 100 * best.forced, busbw(size, phase == 1 ? best.loaded : best.idle),
                            found.after < 0 ? fmt::format("never {} of it", kCloseEnough)
                                            : fmt::format("{} of it from call {} on", kCloseEnough, found.after));
    }
    return text + fmt::format("  wrong elements: {}\n", size.wrong);
}

nlohmann::ordered_json load_json(const Options &options, const UnderLoadResults &results) {
    nlohmann::ordered_json json =
        head_of(results.machine, options.queued_copies > 1 ? "beside queue" : "beside copies");
    json["collective"] = name_of(options.collective);
    json["dtype"] = name_of(options.dtype);
    json["results"] = nlohmann::ordered_json::array();
    for (const UnderLoad &size : results.sizes) {
        nlohmann::ordered_json row;
        row["bytes"] = size.bytes;
        row["copies_GBps"] = size.copies / 1e9;
        row["static"] = nlohmann::ordered_json::array();
        for (const StaticShare &share : size.statics)
            row["static"].push_back({{"share", share.forced},
                                     {"idle_busbw_GBps", busbw(size, share.idle)},
                                     {"loaded_busbw_GBps", busbw(size, share.loaded)}});
        row["phases"] = nlohmann::ordered_json::array();
        for (size_t phase = 0; phase < size.phases.size(); ++phase) {
            const Following found = following(size, static_cast<int>(phase));
            nlohmann::ordered_json calls = nlohmann::ordered_json::array();
            for (const LoadCall &call : size.phases[phase])
                calls.push_back({{"busbw_GBps", busbw(size, call.seconds)}, {"pcie_share", call.share}});
            row["phases"].push_back({{"phase", kPhases[phase]},
                                     {"ratio_to_best_static", found.ratio},
                                     {"close_after_calls", found.after},
                                     {"calls", calls}});
        }
        row["wrong"] = size.wrong;
        json["results"].push_back(row);
    }
    return json;
}

}  // namespace flx::bench::lab
