/// Runs FLX's planner and schedules on a machine that need not exist.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "apps/common/progress.h"
#include "apps/flx_simulate/cells.h"
#include "apps/flx_simulate/options.h"
#include "apps/flx_simulate/report.h"

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
        collectives.push_back(*collective);
    }
    return {};
}

bool write(const std::string &path, const std::string &text) {
    std::FILE *file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
    if (file == nullptr)
        return false;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return (file == stdout ? std::fflush(file) : std::fclose(file)) == 0 && written;
}

/// The same call on 2, 4, 8, … hosts, up to the machine's.
std::string plot(Machine machine, Collective collective, size_t bytes, const std::string &path) {
    flx::simulate::Growth growth;
    const int most = machine.hosts;
    for (int hosts = 2; hosts <= most; hosts *= 2) {
        machine.hosts = hosts;
        growth.ranks.push_back(machine.size());
        growth.cells.push_back(flx::simulate::Experiment(machine, collective).cell(bytes));
    }
    return flx::simulate::draw(machine, growth, path);
}

}  // namespace

int main(int argc, char **argv) {
    Options options;
    int code = 0;
    if (!flx::simulate::parse(argc, argv, options, code))
        return code;
    Machine machine;
    if (const std::string problem = flx::simulate::read_machine(options.machine, machine); !problem.empty())
        return refuse(problem);
    if (options.hosts != 0)
        machine.hosts = options.hosts;
    std::vector<Collective> collectives;
    if (const std::string problem = collectives_of(options, collectives); !problem.empty())
        return refuse(problem);
    flx::apps::Progress progress("simulating", flx::simulate::cells_of(collectives, options.sizes));
    const std::vector<Cell> cells =
        run_all(machine, collectives, options.sizes, [&](size_t done) { progress.update(done); });
    progress.finish();
    std::FILE *out = options.json == "-" ? stderr : stdout;
    fmt::print(out, "{}{}", describe(machine), table(machine, cells, options.all));
    if (!options.json.empty() && !write(options.json, to_json(machine, cells)))
        return refuse(fmt::format("{}: this file cannot be written", options.json));
    if (!options.plot.empty())
        if (const std::string problem = plot(machine, collectives[0], options.sizes[0], options.plot); !problem.empty())
            return refuse(problem);
    if (options.most_worse > 0)
        for (const Cell &cell : cells)
            if (cell.worse() > options.most_worse) {
                fmt::print(stderr, "flx_simulate: {} of {} bytes takes {:.2f} times as long by {} as by {}\n",
                           flx::algorithms::name_of(cell.collective), cell.bytes, cell.worse(), cell.choice().name,
                           cell.best().name);
                code = 1;
            }
    return code;
}
