/// Runs FLX's planner and schedules on a machine that need not exist.
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/progress.h"
#include "apps/common/text_file.h"
#include "apps/flx_simulate/cells.h"
#include "apps/flx_simulate/faults.h"
#include "apps/flx_simulate/options.h"
#include "apps/flx_simulate/program.h"
#include "apps/flx_simulate/report.h"
#include "apps/flx_simulate/rules.h"

namespace {

using flx::algorithms::Collective;
using flx::simulate::Cell;
using flx::simulate::Machine;
using flx::simulate::Options;

int refuse(const std::string &sentence) {
    fmt::print(stderr, "flx_simulate: {}\n", sentence);
    return 1;
}

/// A sentence: which of the names is no collective that the planner has candidates for.
std::string collectives_of(const Options &options, std::vector<Collective> &collectives) {
    for (const std::string &name : options.collectives) {
        const auto collective = flx::algorithms::parse_collective(name);
        if (!collective || !(flx::algorithms::has_schedules(*collective) || *collective == Collective::alltoall)) {
            std::vector<std::string_view> names;
            for (const Collective one : flx::algorithms::kScheduled)
                names.push_back(flx::algorithms::name_of(one));
            return fmt::format("\"{}\" is none of {}, alltoall", name, fmt::join(names, ", "));
        }
        if (std::ranges::find(collectives, *collective) == collectives.end())
            collectives.push_back(*collective);
    }
    return {};
}

/// The same call on 2, 4, 8, … hosts, and on all of the machine's.
std::string plot(Machine machine, Collective collective, size_t bytes, const std::string &path) {
    flx::simulate::Growth growth;
    const int most = machine.hosts;
    const auto add = [&](int hosts) {
        machine.hosts = hosts;
        machine.part = hosts != most;
        if (flx::simulate::sizes_of(collective, {bytes}, machine.size()).empty())
            return;
        growth.ranks.push_back(machine.size());
        growth.cells.push_back(flx::simulate::Experiment(machine, collective).cell(bytes));
    };
    for (int hosts = 2; hosts < most; hosts *= 2)
        add(hosts);
    add(most);
    if (growth.cells.empty())
        return fmt::format("{} of {} bytes: there is no such call of two hosts' ranks, so there is nothing to draw",
                           flx::algorithms::name_of(collective), bytes);
    return flx::simulate::draw(machine, growth, path);
}

flx::simulate::Losses losses_of(const Options &options, const Machine &machine, const Cell &cell,
                                const flx::simulate::Fault &fault) {
    flx::simulate::Experiment experiment(machine, cell.collective);
    if (fault.of_host)
        return run_slow_host(fault, options.calls, cell.choice().ns,
                             experiment.ns_beside(cell.bytes, {fault.number, 1 / fault.part}));
    std::map<long, double> known;  // by the logarithm of the rate, in half per cents
    const auto time_of = [&](double rate) {
        const double step = std::log(rate) / std::log(1.005);
        const auto [found, made] = known.try_emplace(std::lround(step), 0);
        if (made)
            found->second = experiment.ns_at(cell.bytes, rate);
        return found->second;
    };
    const flx::algorithms::WalkReport &report = cell.choice().report;
    const double bytes = cell.choice().walked ? report.far_bytes / machine.hosts : static_cast<double>(cell.bytes);
    return run_faults(machine, fault, options.calls, bytes, time_of);
}

/// Of calls of one cell.
flx::simulate::FaultFound find_losses(const Options &options, const Machine &machine, const Cell &cell,
                                      const flx::simulate::Fault &fault,
                                      const std::optional<flx::simulate::FaultRate> &rate) {
    flx::simulate::FaultFound found{.fault = fault,
                                    .collective = cell.collective,
                                    .bytes = cell.bytes,
                                    .calls = options.calls,
                                    .call_ns = cell.choice().ns,
                                    .losses = losses_of(options, machine, cell, fault),
                                    .rate = rate,
                                    .parts = static_cast<double>(machine.hosts) * (fault.of_host ? 1 : machine.rails),
                                    .job = {}};
    if (rate)
        found.job = lost_time(found.losses, options.calls, *rate, found.parts);
    return found;
}

std::string no_call(const std::vector<Collective> &collectives, const Machine &machine) {
    std::vector<std::string_view> names;
    for (const Collective one : collectives)
        names.push_back(flx::algorithms::name_of(one));
    return fmt::format("{}: of none of the sizes there is a call on {} ranks; a block has a byte or more",
                       fmt::join(names, ", "), machine.size());
}

/// From where on a choice is worth a rule.
double limit_of(const Options &options) {
    constexpr double kMostWorse = 1.1;
    return options.most_worse != 0 ? options.most_worse : kMostWorse;
}

/// The exit code: whether choices are as good as was asked.
int judge(const Options &options, const std::vector<Cell> &cells) {
    int code = 0;
    if (options.most_worse != 0)
        for (const Cell &cell : cells)
            if (!(cell.worse() <= options.most_worse)) {
                fmt::print(stderr, "flx_simulate: {} of {} bytes takes {:.2f} times as long by {} as by {}\n",
                           flx::algorithms::name_of(cell.collective), cell.bytes, cell.worse(), cell.choice().name,
                           cell.best().name);
                code = 1;
            }
    return code;
}

/// A program's calls, by its trace.
int simulate_program(const Options &options, const Machine &machine) {
    std::ifstream trace(options.trace, std::ios::binary);
    if (!trace.is_open())
        return refuse(fmt::format("{} cannot be read: {}", options.trace, std::strerror(errno)));
    flx::simulate::Program program;
    if (const std::string problem = read_program(trace, options.trace, program); !problem.empty())
        return refuse(problem);
    std::optional<flx::apps::Progress> progress;
    const flx::simulate::ProgramTimes times = run_program(machine, program, [&](size_t done, size_t all) {
        if (!progress)
            progress.emplace("simulating", all);
        progress->update(done);
    });
    progress.reset();
    if (times.rows.empty()) {
        std::string reasons;
        for (const auto &[why, calls] : times.left_out)
            reasons += fmt::format("{}{} {}", reasons.empty() ? ": " : "; ", calls, why);
        return refuse(fmt::format("{}: there is no call that can be predicted{}", options.trace, reasons));
    }
    fmt::print(options.json == "-" ? stderr : stdout, "{}{}", describe(machine), program_text(machine, program, times));
    if (!options.json.empty() && !flx::apps::write_text(options.json, program_json(machine, program, times)))
        return refuse(fmt::format("{}: this file cannot be written", options.json));
    std::vector<Cell> cells;
    for (const flx::simulate::ProgramRow &row : times.rows)
        cells.push_back(row.cell);
    return judge(options, cells);
}

int simulate(const Options &options) {
    Machine machine;
    if (const std::string problem = flx::simulate::read_machine(options.machine, machine); !problem.empty())
        return refuse(problem);
    if (options.hosts != 0)
        machine.hosts = options.hosts;
    std::vector<Collective> collectives;
    if (const std::string problem = collectives_of(options, collectives); !problem.empty())
        return refuse(problem);
    if (const std::string problem = too_many_ranks(machine); !problem.empty())
        return refuse(problem);
    if (const std::string problem = take_rules(machine); !problem.empty())
        return refuse(problem);
    if (!options.rules.empty() && machine.hosts == 1)
        return refuse("--rules is for machines of several hosts; within one FLX tries its ways");
    if (!options.trace.empty())
        return simulate_program(options, machine);
    flx::simulate::Fault fault;
    std::optional<flx::simulate::FaultRate> rate;
    if (!options.fault_rate.empty())
        if (const std::string problem = flx::simulate::parse_rate(options.fault_rate, rate.emplace()); !problem.empty())
            return refuse(problem);
    if (!options.fault.empty()) {
        if (const std::string problem = parse_fault(options.fault, machine, options.calls, fault); !problem.empty())
            return refuse(problem);
        if (flx::simulate::cells_of(machine, {collectives[0]}, options.sizes) == 0)
            return refuse(no_call({collectives[0]}, machine));
    }
    const size_t count = flx::simulate::cells_of(machine, collectives, options.sizes);
    if (count == 0)
        return refuse(no_call(collectives, machine));
    flx::apps::Progress progress("simulating", count);
    const std::vector<Cell> cells =
        run_all(machine, collectives, options.sizes, [&](size_t done) { progress.update(done); });
    progress.finish();
    std::FILE *out = options.json == "-" || options.rules == "-" ? stderr : stdout;
    fmt::print(out, "{}{}", describe(machine), table(machine, cells, options.all));
    std::optional<flx::simulate::FaultFound> found;
    if (!options.fault.empty())
        found = find_losses(options, machine,
                            cells[flx::simulate::cells_of(machine, {collectives[0]}, options.sizes) - 1], fault, rate);
    if (!options.json.empty() && !flx::apps::write_text(options.json, to_json(machine, cells, found)))
        return refuse(fmt::format("{}: this file cannot be written", options.json));
    if (!options.rules.empty() && !flx::apps::write_text(options.rules, rules_text(machine, cells, limit_of(options))))
        return refuse(fmt::format("{}: this file cannot be written", options.rules));
    if (!options.plot.empty())
        if (const std::string problem = plot(machine, collectives[0], options.sizes[0], options.plot); !problem.empty())
            return refuse(problem);
    if (found)
        fmt::print(out, "{}", fault_text(*found));
    return judge(options, cells);
}

}  // namespace

int main(int argc, char **argv) {
    try {
        Options options;
        int code = 0;
        return flx::simulate::parse(argc, argv, options, code) ? simulate(options) : code;
    } catch (const std::bad_alloc &) {
        return refuse("there is not enough memory; fewer hosts or ranks need less");
    } catch (const std::exception &error) {
        return refuse(error.what());
    }
}
