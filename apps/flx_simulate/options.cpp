#include "apps/flx_simulate/options.h"

#include <algorithm>
#include <cmath>

#include "apps/common/command_line.h"
#include "runtime/base/config.h"

namespace flx::simulate {

bool parse(int argc, const char *const *argv, Options &options, int &code) {
    constexpr int kMostHosts = 1 << 16;
    apps::CommandLine line(
        "flx_simulate",
        "Says what FLX would choose on a machine that need not exist, how long that would take, and what would be "
        "best. "
        "It runs the planner and the schedules of FLX against a model of hosts and of the network between them.");
    std::vector<std::string> sizes = {"8", "64", "512", "4K", "32K", "256K", "2M", "16M", "128M", "1G"};
    options.collectives = {"allreduce", "allgather", "reduce_scatter_block", "alltoall", "bcast", "barrier"};
    line.option("machine", options.machine,
                "a file of TOML that describes the machine, or what flx_info --json wrote on a real one")
        .required();
    const auto collectives = line.option("collectives", options.collectives, "as in FLX_ALGORITHM").shows_default();
    const auto of_sizes = line.option("--sizes", sizes, "of the whole vector").as_list().shows_default();
    line.option("--hosts", options.hosts, "so many hosts instead of the machine's").in_range(1, kMostHosts);
    const auto all = line.flag("--all", options.all, "print what every candidate would take");
    line.option("--most-worse", options.most_worse,
                "end with code 1 where a choice takes more than so many times as long as the best candidate")
        .in_range(1.0, 1e6);
    line.option("--json", options.json, "write all that is known to this file; -: standard output");
    const auto rules = line.option(
        "--rules", options.rules,
        "write rules for FLX_ALGORITHM to this file, the best candidates where choices take more than --most-worse "
        "times as long, or 1.1; -: standard output");
    const auto plot = line.option(
        "--plot", options.plot,
        "have gnuplot draw time against ranks, a line for each candidate, into this file of SVG: of the first "
        "collective and the least size");
    const auto fault = line.option(
        "--fault", options.fault,
        "RAIL:PART:FROM:TO: from call FROM on, before call TO, a rail of one host has this part of its rate, "
        "0: it is lost; hostNUMBER:PART:FROM:TO: all ranks of this host work at this part of their pace; says what "
        "calls "
        "of the first collective and the largest size lose");
    line.option("--fault-rate", options.fault_rate,
                "BETWEEN:REPAIR, with --fault: hours of one rail, or host, between such faults, and hours that one "
                "lasts; says what a job on this machine loses")
        .needs(fault);
    line.option(
            "--trace", options.trace,
            "a trace that FLX_TRACE made of a program: predicts the calls that are in it, each of them on this machine")
        .excludes(collectives)
        .excludes(of_sizes)
        .excludes(all)
        .excludes(plot)
        .excludes(rules)
        .excludes(fault);
    line.option("--calls", options.calls, "with --fault: calls").in_range(1, 1'000'000).shows_default().needs(fault);
    bool read = line.parse(argc, argv);
    for (const std::string &text : sizes) {
        size_t bytes = 0;
        const Status status = parse_size(text, bytes);
        if (read && !status.ok())
            read = line.refuse("--sizes", status.words());
        options.sizes.push_back(bytes);
    }
    if (read && std::isnan(options.most_worse))
        read = line.refuse("--most-worse", "it is no number");
    if (read && std::ranges::any_of(options.plot, [](unsigned char one) { return one < ' ' || one == 0x7F; }))
        read = line.refuse("--plot", "a control character is in the file's name");
    if (read && options.rules == "-" && options.json == "-")
        read = line.refuse("--rules", "standard output is for --json already");
    if (!read) {
        code = line.say();
        return false;
    }
    std::ranges::sort(options.sizes);
    return true;
}

}  // namespace flx::simulate
