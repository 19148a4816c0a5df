#include "apps/flx_report/data/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

namespace flx::report {
namespace {

using nlohmann::json;

double number(const json &from, const char *name) {
    const auto found = from.find(name);
    return found != from.end() && found->is_number() ? std::clamp(found->get<double>(), 0.0, 1e18) : 0;
}

std::string text(const json &from, const char *name) {
    const auto found = from.find(name);
    return found != from.end() && found->is_string() ? found->get<std::string>() : std::string();
}

BenchRow row_of(const json &from) {
    BenchRow row;
    row.collective = text(from, "collective");
    row.memory = text(from, "memory");
    row.algorithm = text(from, "algorithm");
    row.peer = text(from, "peer");
    row.bytes = number(from, "bytes");
    row.flx_us = number(from, "flx_us");
    row.flx_low_us = number(from, "flx_us_p10");
    row.flx_high_us = number(from, "flx_us_p90");
    row.peer_us = number(from, "peer_us");
    row.peer_low_us = number(from, "peer_us_p10");
    row.peer_high_us = number(from, "peer_us_p90");
    row.busbw_GBps = number(from, "busbw_GBps");
    row.wrong = number(from, "wrong");
    if (const auto links = from.find("partition"); links != from.end() && links->is_array())
        for (const json &link : *links)
            if (link.is_object() && number(link, "share") > 0)
                row.shares.emplace_back(text(link, "link"), number(link, "share"));
    return row;
}

/// Of the host that has the least: what its rails deliver together, in MB/s.
double rails_rate(const Summary &summary, int64_t hosts) {
    std::map<std::string, double> sums;
    for (const auto &[key, link] : summary.links)
        if (!is_near(key.second) && link.rate_MBps > 0)
            sums[key.first] += link.rate_MBps;
    if (sums.empty() || static_cast<int64_t>(sums.size()) != hosts)
        return 0;
    return std::min_element(sums.begin(), sums.end(), [](const auto &a, const auto &b) { return a.second < b.second; })
        ->second;
}

}  // namespace

std::optional<Bench> read_bench(std::istream &stream, const std::string &name, std::string &problem) {
    const std::string all{std::istreambuf_iterator<char>(stream), {}};
    json file;
    try {
        file = json::parse(all);
    } catch (const json::parse_error &error) {
        const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, all.size()));
        problem = fmt::format("{}:{}: this is no JSON", name, 1 + std::count(all.begin(), end, '\n'));
        return std::nullopt;
    } catch (const json::exception &) {
        problem = fmt::format("{}: a number in it is too large", name);
        return std::nullopt;
    }
    Bench bench;
    const auto rows = file.is_object() ? file.find("results") : file.end();
    if (file.is_object() && rows != file.end() && rows->is_array())
        for (const json &entry : *rows) {
            const auto chosen = entry.find("chosen");
            const bool is_choice = chosen == entry.end() || !chosen->is_boolean() || chosen->get<bool>();
            if (entry.is_object() && is_choice && number(entry, "flx_us") > 0)
                bench.rows.push_back(row_of(entry));
        }
    if (bench.rows.empty()) {
        problem = fmt::format("{}:1: these are no results of flx_perf --json", name);
        return std::nullopt;
    }
    bench.name = name;
    bench.machine = text(file, "machine");
    bench.mpi = text(file, "mpi");
    bench.mode = text(file, "mode");
    bench.ranks = static_cast<int64_t>(std::min(number(file, "ranks"), 1e9));
    bench.hosts = static_cast<int64_t>(std::min(number(file, "hosts"), 1e9));
    return bench;
}

double ceiling_busbw(const Summary &summary, const Bench &bench, const std::string &collective) {
    if (bench.hosts < 2 || bench.ranks % bench.hosts != 0)
        return 0;
    const double rails = rails_rate(summary, bench.hosts) / 1e3;
    const auto n = static_cast<double>(bench.ranks);
    const auto hosts = static_cast<double>(bench.hosts);
    // Bus bandwidth counts (n-1)/n of the vector for each of the directions that it goes; between hosts (H-1)/H of it
    // has to cross.
    if (collective == "allreduce" || collective == "reduce_scatter_block" || collective == "reduce_scatter" ||
        collective == "allgather" || collective == "allgatherv")
        return rails * ((n - 1) / n) * (hosts / (hosts - 1));
    // Each rank of a host sends a part of its own to each rank elsewhere.
    if (collective == "alltoall")
        return rails * (n - 1) * hosts / (n * n / hosts * (hosts - 1));
    if (collective == "bcast" || collective == "reduce")
        return rails;
    return 0;
}

}  // namespace flx::report
