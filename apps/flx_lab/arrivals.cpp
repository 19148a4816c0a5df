#include "apps/flx_lab/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "apps/bench/sizes.h"
#include "apps/bench/timing.h"

namespace flx::bench::lab {
namespace {

constexpr uint64_t kPage = 4096;

/// In [0, 1). The library's distributions differ from one standard library to another.
double part(std::mt19937_64 &random) {
    constexpr int kLost = 11;
    return std::ldexp(static_cast<double>(random() >> kLost), kLost - 64);
}

double at(const ArrivalsWay &way, double quantile_part) {
    std::vector<double> sorted = way.seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : 1e3 * quantile(sorted, quantile_part);
}

double mean(const ArrivalsWay &way) {
    if (way.seconds.empty()) {
        return 0;
    }
    return 1e3 * std::accumulate(way.seconds.begin(), way.seconds.end(), 0.0) / static_cast<double>(way.seconds.size());
}

constexpr double kMiddle = 0.5;
constexpr double kWorst = 0.99;

double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

}  // namespace

std::vector<Arrived> arrivals_of(const Options &options, int ranks) {
    const auto [least, most] = std::minmax_element(options.sizes.begin(), options.sizes.end());
    const auto half = static_cast<uint64_t>(ranks / 2);
    const auto rest = static_cast<uint64_t>(ranks) - half;
    const double span = std::log(static_cast<double>(std::max<uint64_t>(1, *most)) /
                                 static_cast<double>(std::max<uint64_t>(1, *least)));
    std::mt19937_64 random(options.seed);
    std::vector<Arrived> trace;
    double now = 0;
    for (int64_t i = 0; i < options.iterations; ++i) {
        Arrived message;
        now -= std::log(1 - part(random)) / options.arrivals;
        message.seconds = now;
        auto bytes = static_cast<uint64_t>(static_cast<double>(*least) * std::exp(span * part(random)));
        bytes = bytes > kPage ? bytes / kPage * kPage : bytes;
        message.bytes = std::clamp(bytes, *least, *most);
        message.from = static_cast<int>(random() % half);
        message.to = static_cast<int>(half + random() % rest);
        trace.push_back(message);
    }
    return trace;
}

std::vector<Arrived> round_of(const std::vector<Arrived> &trace, int round) {
    const size_t first = trace.size() * round / kArrivalRounds;
    const size_t last = trace.size() * (round + 1) / kArrivalRounds;
    std::vector<Arrived> part(trace.begin() + static_cast<ptrdiff_t>(first),
                              trace.begin() + static_cast<ptrdiff_t>(last));
    const double start = first == 0 ? 0 : trace[first - 1].seconds;
    for (Arrived &message : part) {
        message.seconds -= start;
    }
    return part;
}

std::string arrivals_text(const Options &options, const ArrivalsResult &result) {
    const auto [least, most] = std::minmax_element(options.sizes.begin(), options.sizes.end());
    uint64_t bytes = 0;
    for (const Arrived &message : result.trace) {
        bytes += message.bytes;
    }
    const int half = result.machine.ranks / 2;
    std::string text = fmt::format(
        "arrivals: {} messages, {} a second, of {} to {}, {:.1f} MiB on average, seed {}, from ranks 0-{} to {}-{}\n"
        "machine: {}\n",
        result.trace.size(), options.arrivals, size_text(*least), size_text(*most),
        static_cast<double>(bytes) / static_cast<double>(std::max<size_t>(1, result.trace.size())) / (1 << 20),
        options.seed, half - 1, half, result.machine.ranks - 1, result.machine.text);
    text += "latency: from when a message is there to be sent until its receiver has it\n\n";
    text += fmt::format("{:<14}{:>12}{:>12}{:>12}{:>8}\n", "FLX_LEND", "P50 ms", "P99 ms", "mean ms", "wrong");
    for (const ArrivalsWay *way : {&result.bound, &result.lent}) {
        text += fmt::format("{:<14}{:>12.1f}{:>12.1f}{:>12.1f}{:>8}\n", way->lend, at(*way, kMiddle), at(*way, kWorst),
                            mean(*way), way->wrong);
    }
    text += fmt::format("{:<14}{:>12.2f}{:>12.2f}{:>12.2f}\n", result.lent.lend + " / " + result.bound.lend,
                        ratio(at(result.lent, kMiddle), at(result.bound, kMiddle)),
                        ratio(at(result.lent, kWorst), at(result.bound, kWorst)),
                        ratio(mean(result.lent), mean(result.bound)));
    return text;
}

nlohmann::ordered_json arrivals_json(const Options &options, const ArrivalsResult &result) {
    nlohmann::ordered_json json = head_of(result.machine, "arrivals");
    json["arrivals_per_second"] = options.arrivals;
    json["seed"] = options.seed;
    json["messages"] = result.trace.size();
    json["bytes"] = std::accumulate(result.trace.begin(), result.trace.end(), uint64_t{0},
                                    [](uint64_t sum, const Arrived &message) { return sum + message.bytes; });
    json["results"] = nlohmann::ordered_json::array();
    for (const ArrivalsWay *way : {&result.bound, &result.lent}) {
        json["results"].push_back({{"lend", way->lend},
                                   {"p50_ms", at(*way, kMiddle)},
                                   {"p99_ms", at(*way, kWorst)},
                                   {"mean_ms", mean(*way)},
                                   {"wrong", way->wrong}});
    }
    json["trace"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < result.trace.size(); ++i) {
        const Arrived &message = result.trace[i];
        json["trace"].push_back({{"seconds", message.seconds},
                                 {"bytes", message.bytes},
                                 {"from", message.from},
                                 {"to", message.to},
                                 {"own_ms", 1e3 * result.bound.seconds[i]},
                                 {"lent_ms", 1e3 * result.lent.seconds[i]}});
    }
    json["p50_ratio"] = ratio(at(result.lent, kMiddle), at(result.bound, kMiddle));
    json["p99_ratio"] = ratio(at(result.lent, kWorst), at(result.bound, kWorst));
    return json;
}

}  // namespace flx::bench::lab
