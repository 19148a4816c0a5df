#include "apps/flx_simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace flx::simulate {
namespace {

using algorithms::CriticalPath;
using nlohmann::ordered_json;

/// The two things that the end waited for most.
std::string path_text(const Outcome &outcome) {
    if (!outcome.walked || outcome.ns <= 0)
        return "-";
    const CriticalPath &path = outcome.report.path;
    std::vector<std::pair<double, const char *>> parts = {{path.messages, "messages"}, {path.copies, "copies"},
                                                          {path.sums, "sums"},         {path.wire, "wire"},
                                                          {path.queue, "queues"},      {path.latency, "latency"}};
    double all = 0;
    for (const auto &part : parts)
        all += part.first;
    std::ranges::sort(parts, std::greater<>());
    return fmt::format("{} {:.0f} %, {} {:.0f} %", parts[0].second, 100 * parts[0].first / all, parts[1].second,
                       100 * parts[1].first / all);
}

/// As gnuplot reads it: between single quotes nothing has a meaning but those.
std::string in_quotes(std::string_view text) {
    std::string result = "'";
    for (const char one : text)
        result.append(one == '\'' ? 2 : 1, one);
    return result + "'";
}

std::string host_bytes(const Machine &machine, const Outcome &outcome, double algorithms::WalkReport::*bytes) {
    return outcome.walked ? fmt::format("{:.3g}", outcome.report.*bytes / machine.hosts / 1e6) : "-";
}

ordered_json json_of(const Machine &machine, const Cell &cell, const Outcome &outcome) {
    ordered_json json = {{"name", outcome.name},
                         {"us", outcome.ns / 1e3},
                         {"bus_gb_s", bus_bandwidth(cell.collective, cell.bytes, machine.size(), outcome.ns)}};
    if (!outcome.walked)
        return json;
    const algorithms::WalkReport &report = outcome.report;
    json["bytes"] = {{"within_hosts", report.near_bytes}, {"between_hosts", report.far_bytes}};
    json["bytes"]["out_of_groups"] = report.across_bytes;
    json["messages"] = {{"within_hosts", report.near_messages}, {"between_hosts", report.far_messages}};
    const CriticalPath &path = report.path;
    json["path_us"] = {{"messages", path.messages / 1e3}, {"copies", path.copies / 1e3},
                       {"sums", path.sums / 1e3},         {"wire", path.wire / 1e3},
                       {"queues", path.queue / 1e3},      {"latency", path.latency / 1e3}};
    json["path_hops"] = {{"within_hosts", path.near_hops}, {"between_hosts", path.far_hops}};
    return json;
}

/// Numbers that are infinite become null.
ordered_json json_of(const FaultFound &found) {
    const Fault &fault = found.fault;
    ordered_json json = {{"collective", algorithms::name_of(found.collective)},
                         {"bytes", found.bytes},
                         {"calls", found.calls},
                         {fault.of_host ? "host" : "rail", fault.number},
                         {"part", fault.part},
                         {"from", fault.from},
                         {"to", fault.to},
                         {"lost",
                          {{"with_controller", found.lost(&Losses::with_controller)},
                           {"without", found.lost(&Losses::without)},
                           {"best_shares", found.lost(&Losses::least)}}}};
    if (fault.of_host)
        json["times"] = found.times();
    else
        json["recovered_after"] = found.losses.recovered < 0 ? ordered_json() : ordered_json(found.losses.recovered);
    if (found.rate)
        json["job"] = {{"between_h", found.rate->between_h},
                       {"repair_h", found.rate->repair_h},
                       {"parts", found.parts},
                       {"faulty", found.job.faulty},
                       {"lost",
                        {{"with_controller", found.job.with_controller},
                         {"without", found.job.without},
                         {"best_shares", found.job.least}}}};
    return json;
}

}  // namespace

std::string size_text(size_t bytes) {
    constexpr const char *kUnits[] = {"", "K", "M", "G"};
    size_t unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string describe(const Machine &machine) {
    const algorithms::CostModel &costs = machine.costs;
    return fmt::format(
        "{}: {} ranks, {} hosts of {}, {}\n"
        "  within a host {:g} GB/s, {:g} ns; between hosts {} rails, {:g} GB/s together, {:g} ns; a message costs "
        "{:g} + {:g} ns\n",
        machine.name, machine.size(), machine.hosts, machine.ranks, machine.network, costs.near.bytes_per_ns,
        costs.near.latency_ns, machine.rails, costs.far.bytes_per_ns, costs.far.latency_ns, costs.far.send_ns,
        costs.far.receive_ns);
}

std::string table(const Machine &machine, const std::vector<Cell> &cells, bool all) {
    std::string text =
        fmt::format("{:<20} {:>5} {:>11} {:>8}  {:<34} {:<34} {:>6} {:>9} {:>9}  {}\n", "collective", "size", "us",
                    "bus GB/s", "FLX chooses", "the best", "times", "MB out", "MB within", "the end waited for");
    const auto line = [&](const Cell &cell, const Outcome &one, const std::string &best, double times) {
        const std::string name(algorithms::name_of(cell.collective));
        const double bus = bus_bandwidth(cell.collective, cell.bytes, machine.size(), one.ns);
        text += fmt::format("{:<20} {:>5} {:>11.1f} {:>8.3g}  {:<34} {:<34} {:>6.2f} {:>9} {:>9}  {}\n", name,
                            size_text(cell.bytes), one.ns / 1e3, bus, one.name, best, times,
                            host_bytes(machine, one, &algorithms::WalkReport::far_bytes),
                            host_bytes(machine, one, &algorithms::WalkReport::near_bytes), path_text(one));
    };
    for (const Cell &cell : cells) {
        line(cell, cell.choice(), cell.best().name, cell.worse());
        for (const Outcome &one : cell.outcomes)
            if (all)
                line(cell, one, "", one.ns / cell.best().ns);
    }
    return text;
}

std::string fault_text(const FaultFound &found) {
    const Fault &fault = found.fault;
    const auto lost = [&](double Losses::*ns) { return 100 * found.lost(ns); };
    std::string text = fmt::format("{} calls of {}, ", found.calls, algorithms::name_of(found.collective));
    if (fault.of_host)
        text += fmt::format(
            "host {} at {:g} of its pace in calls {} to {}: time lost {:.2f} %; a call takes {:.2f} times as long\n",
            fault.number, fault.part, fault.from, fault.to, lost(&Losses::without), found.times());
    else
        text += fmt::format(
            "rail {} of one host at {:g} of its rate in calls {} to {}: time lost {:.2f} % with the controller, {:.2f} "
            "% without, {:.2f} % with the best shares at once; {}\n",
            fault.number, fault.part, fault.from, fault.to, lost(&Losses::with_controller), lost(&Losses::without),
            lost(&Losses::least),
            found.losses.recovered < 0 ? "no call came within 5 % of those"
                                       : fmt::format("within 5 % of those after {} calls", found.losses.recovered));
    if (!found.rate)
        return text;
    text += fmt::format(
        "each of {:g} {} has this fault every {:g} hours, for {:g} hours: there is one during {:.2f} % of the time; ",
        found.parts, fault.of_host ? "hosts" : "rails", found.rate->between_h, found.rate->repair_h,
        100 * found.job.faulty);
    if (!std::isfinite(found.job.with_controller))
        text += "faults come faster than the controller follows, so a job of such calls does not end\n";
    else if (fault.of_host)
        text += fmt::format("a job of such calls loses {:.3f} %\n", 100 * found.job.without);
    else
        text += fmt::format(
            "a job of such calls loses {:.3f} % with the controller, {:.3f} % without, {:.3f} % with the best shares "
            "at once\n",
            100 * found.job.with_controller, 100 * found.job.without, 100 * found.job.least);
    return text;
}

std::string to_json(const Machine &machine, const std::vector<Cell> &cells, const std::optional<FaultFound> &fault) {
    const algorithms::CostModel &costs = machine.costs;
    const auto tier = [](const algorithms::TierCost &one) {
        return ordered_json{{"latency_ns", one.latency_ns},
                            {"send_ns", one.send_ns},
                            {"receive_ns", one.receive_ns},
                            {"gb_s", one.bytes_per_ns}};
    };
    ordered_json json;
    json["machine"] = {{"name", machine.name},
                       {"hosts", machine.hosts},
                       {"ranks_of_a_host", machine.ranks},
                       {"rails", machine.rails},
                       {"network", machine.network},
                       {"levels", ordered_json::array()},
                       {"near", tier(costs.near)},
                       {"far", tier(costs.far)},
                       {"copy_gb_s", costs.copy_bytes_per_ns},
                       {"add_gb_s", costs.add_bytes_per_ns}};
    for (const algorithms::Level &level : machine.fabric.levels)
        json["machine"]["levels"].push_back(
            {{"hosts", level.hosts}, {"taper", level.taper}, {"hop_ns", level.latency_ns}});
    json["cells"] = ordered_json::array();
    for (const Cell &cell : cells) {
        ordered_json one = {{"collective", algorithms::name_of(cell.collective)},
                            {"bytes", cell.bytes},
                            {"chosen", cell.choice().name},
                            {"best", cell.best().name},
                            {"times", cell.worse()}};
        one["candidates"] = ordered_json::array();
        for (const Outcome &outcome : cell.outcomes)
            one["candidates"].push_back(json_of(machine, cell, outcome));
        json["cells"].push_back(std::move(one));
    }
    if (fault)
        json["fault"] = json_of(*fault);
    return json.dump(1) + "\n";
}

std::string draw(const Machine &machine, const Growth &growth, const std::string &path) {
    std::set<std::string> names;
    for (const Cell &cell : growth.cells)
        for (const Outcome &one : cell.outcomes)
            names.insert(one.name);
    const std::string title = fmt::format("{} of {} on {}", algorithms::name_of(growth.cells[0].collective),
                                          size_text(growth.cells[0].bytes), machine.name);
    std::string script = fmt::format(
        "set terminal svg size 1000,640 dynamic noenhanced background 'white'\nset output {}\nset title {}\n"
        "set logscale xy\nset xlabel 'ranks'\nset ylabel 'microseconds'\nset grid\nset key outside right\nplot ",
        in_quotes(path), in_quotes(title));
    std::string data;
    for (const std::string &name : names) {
        script += fmt::format("{}'-' with linespoints title {}", data.empty() ? "" : ", ", in_quotes(name));
        for (size_t i = 0; i < growth.cells.size(); ++i)
            for (const Outcome &one : growth.cells[i].outcomes)
                if (one.name == name)
                    data += fmt::format("{} {}\n", growth.ranks[i], one.ns / 1e3);
        data += "e\n";
    }
    script += ", '-' with lines linewidth 4 linecolor rgb '#80000000' title 'FLX chooses'\n" + data;
    for (size_t i = 0; i < growth.cells.size(); ++i)
        script += fmt::format("{} {}\n", growth.ranks[i], growth.cells[i].choice().ns / 1e3);
    script += "e\n";
    std::FILE *gnuplot = popen("gnuplot", "w");
    if (gnuplot == nullptr)
        return fmt::format("gnuplot cannot be started: {}", std::strerror(errno));
    const bool written = std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
    return pclose(gnuplot) == 0 && written ? "" : fmt::format("{}: gnuplot did not draw this picture", path);
}

}  // namespace flx::simulate
