#include "apps/flx_perf/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/sizes.h"

namespace flx::bench::perf {
namespace {

constexpr const char *kRow = "{:>9}  {:<18} {:>11} {:>6} {:>8}";
constexpr const char *kPredictedColumns = "{:>9}  {}{:<35} {:>11} {:>11} {:>6} {:>8}";
constexpr const char *kPeerColumns = "  {:>11} {:>6} {:>6}  {:<10}";
constexpr const char *kMemcpyColumns = "  {:>9} {:>6}";

bool has_type(Collective kind) {
    return kind != Collective::kBarrier;
}

std::string type_text(const Options &options) {
    return has_type(options.collective) ? std::string(name_of(options.dtype)) : "none";
}

std::string op_text(const Options &options) {
    return has_reduction(options.collective) ? std::string(name_of(options.op)) : "none";
}

/// Whom FLX is compared with.
std::string peer_text(const Options &options) {
    return options.against_nccl ? "NCCL" : "MPI";
}

bool has_peer(const Options &options) {
    return options.against_mpi || options.against_nccl;
}

const char *memory_name(const Options &options) {
    return options.device ? "device" : options.shared ? "shared" : "host";
}

std::string memory_text(const Options &options) {
    if (!options.device)
        return options.shared ? "memory of flx_malloc" : "host memory";
    return fmt::format("device memory{}{}", options.registered ? ", outputs registered" : "",
                       options.graph ? ", in graphs" : ", on streams");
}

std::string percent(double part) {
    if (part >= 10) {
        return ">999%";
    }
    return fmt::format("{:.0f}%", 100 * part);
}

/// Four significant digits, no exponent.
std::string number(double value) {
    return fmt::format("{:.{}f}", value, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0);
}

std::string shares_text(const std::vector<std::string> &links, const Shares &shares) {
    std::string text;
    for (size_t i = 0; i < links.size(); ++i) {
        if (shares[i] > 0) {
            text += fmt::format("{}{} {:.1f}%", text.empty() ? "" : ", ", links[i], 100 * shares[i]);
        }
    }
    return text.empty() ? "-" : text;
}

nlohmann::ordered_json partition_json(const std::vector<std::string> &links, const Shares &shares) {
    auto list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < links.size(); ++i) {
        list.push_back({{"link", links[i]}, {"share", shares[i]}});
    }
    return list;
}

std::string moved_text(const Results &results) {
    const auto largest = std::max_element(results.results.begin(), results.results.end(),
                                          [](const Result &a, const Result &b) { return a.bytes < b.bytes; });
    std::string text = fmt::format("{}, first call -> last call, each link's share:", size_text(largest->bytes));
    for (size_t i = 0; i < results.links.size(); ++i) {
        text += fmt::format("{} {} {:.3f} -> {:.3f}", i == 0 ? "" : ",", results.links[i], largest->first_call[i],
                            largest->last_call[i]);
    }
    return text + "\n";
}

std::string ratios_text(const Results &results) {
    std::vector<double> all;
    const Result *least = nullptr;
    for (const Result &result : results.results) {
        if (result.chosen && ratio_of(result) > 0) {
            all.push_back(ratio_of(result));
            least = least == nullptr || ratio_of(result) < ratio_of(*least) ? &result : least;
        }
    }
    if (least == nullptr) {
        return {};
    }
    return fmt::format("ratio to {}: geometric mean {:.2f}, least {:.2f} at {}\n", peer_text(results.options),
                       geometric_mean(all), ratio_of(*least), size_text(least->bytes));
}

/// How far FLX's choice is from the fastest of all algorithms.
std::string choices_text(const Results &results) {
    std::string text;
    for (const Result &chosen : results.results) {
        if (!chosen.chosen) {
            continue;
        }
        const Result *best = &chosen;
        for (const Result &other : results.results) {
            best = other.bytes == chosen.bytes && other.us.median < best->us.median ? &other : best;
        }
        text += fmt::format("{}: FLX takes {}", size_text(chosen.bytes), chosen.algorithm);
        text += best == &chosen ? ", the fastest\n"
                                : fmt::format(", {:.2f} times the time of {}\n", chosen.us.median / best->us.median,
                                              best->algorithm);
    }
    return text;
}

}  // namespace

double ratio_of(const Result &result) {
    return result.peer && result.us.median > 0 ? result.peer->us.median / result.us.median : 0;
}

double times_memcpy(const Result &result) {
    return result.memcpy && result.memcpy->median > 0 ? result.us.median / result.memcpy->median : 0;
}

std::string header_text(const Options &options, const Machine &machine) {
    std::string text = fmt::format("{}: {} {}, {}{}\n", name_of(options.collective), type_text(options),
                                   op_text(options), memory_text(options), options.in_place ? ", in place" : "");
    text += fmt::format("machine: {}\n", machine.text);
    text += fmt::format("FLX settings: {}\n", settings_text(machine.flx_settings));
    if (has_peer(options)) {
        text += fmt::format("peer: {}, settings: {}\n", machine.mpi, settings_text(machine.mpi_settings));
    }
    if (options.seconds > 0) {
        text += fmt::format("back to back for {} s a side; us: time over calls; spread: p10 to p90 of 7 parts\n",
                            options.seconds);
    } else {
        const bool fewest = options.iterations > 0 && options.blocks == 0;
        const std::string blocks = options.blocks > 0 ? std::to_string(options.blocks) : fewest ? "7" : "7 to 31";
        text +=
            fmt::format("{} blocks a side, in turn; us: median over blocks; spread: (p90 - p10) / median\n", blocks);
    }
    text += "times are the slowest rank's; busbw: GB/s (10^9) as nccl-tests define it; wrong: elements\n";
    if (has_peer(options)) {
        text += fmt::format("ratio: {} us / FLX us", peer_text(options));
        text += options.seconds > 0
                    ? "\n"
                    : fmt::format("; noise: p10-p90 of {} against itself, block by block\n", peer_text(options));
    }
    if (options.beside_memcpy) {
        text += "memcpy: one of the size on each rank at once, in turn with the rest; times: FLX us / memcpy us\n";
    }
    text += "links: what each carried of the bytes that all ranks sent in the timed calls\n\n";
    if (options.all_algorithms) {
        text += fmt::format(kPredictedColumns, "size", " ", "algorithm", "predicted", "FLX us", "spread", "busbw");
    } else {
        text += fmt::format(kRow, "size", "algorithm", "FLX us", "spread", "busbw");
    }
    if (has_peer(options)) {
        text += fmt::format(kPeerColumns, peer_text(options) + " us", "spread", "ratio",
                            options.seconds > 0 ? "" : "noise");
    }
    if (options.beside_memcpy) {
        text += fmt::format(kMemcpyColumns, "memcpy us", "times");
    }
    return text + fmt::format(" {:>6}  {}\n", "wrong", "links");
}

std::string row_text(const Options &options, const std::vector<std::string> &links, const Result &result) {
    std::string text =
        options.all_algorithms
            ? fmt::format(kPredictedColumns, size_text(result.bytes), result.chosen ? "*" : " ", result.algorithm,
                          result.predicted_us > 0 ? number(result.predicted_us) : "-", number(result.us.median),
                          percent(result.us.spread()), number(result.busbw_GBps))
            : fmt::format(kRow, size_text(result.bytes), result.algorithm, number(result.us.median),
                          percent(result.us.spread()), number(result.busbw_GBps));
    if (result.peer) {
        const std::optional<Summary> &noise = result.peer->noise;
        text += fmt::format(kPeerColumns, number(result.peer->us.median), percent(result.peer->us.spread()),
                            fmt::format("{:.2f}", ratio_of(result)),
                            noise ? fmt::format("{:.2f}-{:.2f}", noise->low, noise->high) : "");
    } else if (has_peer(options)) {
        text += fmt::format(kPeerColumns, "none", "", "", "");
    }
    if (options.beside_memcpy) {
        const double times = times_memcpy(result);
        text += fmt::format(kMemcpyColumns, result.memcpy ? number(result.memcpy->median) : "none",
                            times > 0 ? fmt::format("{:.2f}", times) : "");
    }
    return text + fmt::format(" {:>6}  {}\n", result.wrong, shares_text(links, result.partition));
}

std::string footer_text(const Results &results) {
    if (results.results.empty()) {
        return {};
    }
    std::string text = "\n";
    if (results.options.all_algorithms) {
        text += choices_text(results);
    } else if (has_type(results.options.collective) && !results.links.empty()) {
        text += moved_text(results);
    }
    text += ratios_text(results);
    uint64_t wrong = 0;
    uint64_t peer_wrong = 0;
    std::string why;
    for (const Result &result : results.results) {
        wrong += result.wrong;
        peer_wrong += result.peer ? result.peer->wrong.value_or(0) : 0;
        why = result.why_no_peer.empty() ? why : result.why_no_peer;
    }
    if (!why.empty()) {
        text += fmt::format("sizes without a peer: {}\n", why);
    }
    if (results.options.compute_ms > 0) {
        text += fmt::format("each rank computed {} ms before each timed call\n", results.options.compute_ms);
    }
    text += fmt::format(
        "wrong elements: {} ({})\n", wrong,
        results.options.check_every ? "every timed call checked" : "first and last call of each size checked");
    if (results.options.check_peer) {
        text += fmt::format("wrong elements of MPI: {}\n", peer_wrong);
    }
    return text;
}

std::string json_of(const Results &results) {
    const Options &options = results.options;
    nlohmann::ordered_json json = head_of(results.machine, options.seconds > 0 ? "back to back" : "in turn");
    json["in_place"] = options.in_place;
    json["compute_ms"] = options.compute_ms;
    if (options.device) {
        json["registered"] = options.registered;
        json["graph"] = options.graph;
    }
    json["results"] = nlohmann::ordered_json::array();
    for (const Result &result : results.results) {
        nlohmann::ordered_json row;
        row["collective"] = name_of(options.collective);
        row["memory"] = memory_name(options);
        row["dtype"] = type_text(options);
        row["op"] = op_text(options);
        row["bytes"] = result.bytes;
        row["algorithm"] = result.algorithm;
        if (options.all_algorithms) {
            row["chosen"] = result.chosen;
            row["predicted_us"] = result.predicted_us > 0 ? nlohmann::ordered_json(result.predicted_us) : nullptr;
        }
        row["flx_us"] = result.us.median;
        row["peer"] = !result.peer ? "none" : options.against_nccl ? "nccl" : "mpi";
        row["peer_us"] = nullptr;
        row["ratio"] = nullptr;
        row["busbw_GBps"] = result.busbw_GBps;
        row["wrong"] = result.wrong;
        row["partition"] = partition_json(results.links, result.partition);
        row["iterations"] = result.iterations;
        row["blocks"] = result.blocks;
        row["flx_us_p10"] = result.us.low;
        row["flx_us_p90"] = result.us.high;
        row["first_partition"] = partition_json(results.links, result.first_call);
        row["last_partition"] = partition_json(results.links, result.last_call);
        if (result.peer) {
            row["peer_us"] = result.peer->us.median;
            row["ratio"] = ratio_of(result);
            row["peer_us_p10"] = result.peer->us.low;
            row["peer_us_p90"] = result.peer->us.high;
            row["ratio_p10"] = result.peer->ratio.low;
            row["ratio_p90"] = result.peer->ratio.high;
            if (result.peer->noise) {
                row["noise_p10"] = result.peer->noise->low;
                row["noise_median"] = result.peer->noise->median;
                row["noise_p90"] = result.peer->noise->high;
            }
            if (result.peer->wrong) {
                row["peer_wrong"] = *result.peer->wrong;
            }
        }
        if (result.memcpy) {
            row["memcpy_us"] = result.memcpy->median;
            row["memcpy_us_p10"] = result.memcpy->low;
            row["memcpy_us_p90"] = result.memcpy->high;
            row["times_memcpy"] = times_memcpy(result);
        }
        json["results"].push_back(row);
    }
    return json.dump(2) + "\n";
}

std::string csv_of(const Results &results) {
    const Options &options = results.options;
    std::string text =
        "collective,memory,dtype,op,ranks,bytes,algorithm,flx_us,flx_us_p10,flx_us_p90,peer,peer_us,peer_us_p10,"
        "peer_us_p90,ratio,noise_p10,noise_p90,busbw_GBps,wrong";
    for (const std::string &link : results.links) {
        text += fmt::format(",{}_share", link);
    }
    text += "\n";
    for (const Result &result : results.results) {
        // Names of composed algorithms have commas.
        text += fmt::format("{},{},{},{},{},{},\"{}\",{},{},{}", name_of(options.collective), memory_name(options),
                            type_text(options), op_text(options), results.machine.ranks, result.bytes, result.algorithm,
                            result.us.median, result.us.low, result.us.high);
        if (result.peer) {
            const Summary &us = result.peer->us;
            text += fmt::format(",{},{},{},{},{}", options.against_nccl ? "nccl" : "mpi", us.median, us.low, us.high,
                                ratio_of(result));
        } else {
            text += ",none,,,,";
        }
        if (result.peer && result.peer->noise) {
            text += fmt::format(",{},{}", result.peer->noise->low, result.peer->noise->high);
        } else {
            text += ",,";
        }
        text += fmt::format(",{},{}", result.busbw_GBps, result.wrong);
        for (const double share : result.partition) {
            text += fmt::format(",{:.6f}", share);
        }
        text += "\n";
    }
    return text;
}

std::string log_header(const std::vector<std::string> &links) {
    std::string text = "iteration,seconds,us,wrong";
    for (const std::string &link : links) {
        text += fmt::format(",{0}_share,{0}_bytes,{0}_vector", link);
    }
    return text + ",size\n";
}

std::string log_line(int64_t iteration, const LoggedCall &call, uint64_t bytes) {
    std::string text = fmt::format("{},{:.6f},{:.3f},", iteration, call.seconds, call.us);
    if (call.wrong) {
        text += fmt::format("{}", *call.wrong);
    }
    const std::vector<double> shares = shares_of(call.bytes);
    for (size_t i = 0; i < shares.size(); ++i) {
        text += fmt::format(",{:.6f},{},{:.6f}", shares[i], call.bytes[i], call.vector[i]);
    }
    return text + fmt::format(",{}\n", bytes);
}

}  // namespace flx::bench::perf
