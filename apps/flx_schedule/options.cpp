#include "apps/flx_schedule/options.h"

#include "apps/common/command_line.h"
#include "runtime/base/config.h"

namespace flx::schedule {
namespace {

/// Sizes as knobs have them: `64K`, `1M`.
void add_size(apps::CommandLine &line, const char *names, size_t &result, const char *help) {
    const apps::Check take = [&result](const std::string &text) {
        const Status status = parse_size(text, result);
        return status.ok() ? "" : status.words();
    };
    line.option(names, take, help).names_value("SIZE");
}

}  // namespace

bool parse(int argc, const char *const *argv, Options &options, int &code) {
    constexpr int kMostRanks = 1024;
    apps::CommandLine line(
        "flx_schedule",
        "Writes a schedule of FLX as a file, which FLX_ALGORITHM=COLLECTIVE:file:FILE follows, as GOAL for LogGOPSim, "
        "or as a picture; and says whether a schedule is right, also one of a file.");
    int ranks = 4;
    options.bytes = size_t{1} << 20;
    const auto collective = line.option("collective", options.collective, "as in FLX_ALGORITHM: allreduce, bcast, …");
    const auto algorithm = line.option("algorithm", options.algorithm, "as there: ring, 'leaders(direct,ring)', …");
    const auto imported =
        line.option("--import", options.import_file, "the schedule of this file instead: FLX's JSON, or MSCCL's XML")
            .excludes(collective)
            .excludes(algorithm);
    const auto size = line.option("--ranks", ranks, "ranks, all on one host")
                          .in_range(1, kMostRanks)
                          .shows_default()
                          .excludes(imported);
    const auto hosts = line.option("--hosts", options.ranks_of, "ranks of each host, such as 4,4")
                           .as_list()
                           .in_range(1, kMostRanks)
                           .excludes(size)
                           .excludes(imported);
    line.option("--root", options.root, "of bcast, reduce, gather and scatter").shows_default();
    add_size(line, "--bytes", options.bytes, "of the whole vector, for GOAL; else 1M");
    line.option("--element", options.element, "bytes of an element, for GOAL").in_range(1, 1 << 20).shows_default();
    add_size(line, "--cell", options.cell, "GOAL: bytes of a message at most; else a block is one");
    line.flag("--in-place", options.in_place, "GOAL: of a call in place");
    line.option("--name", options.name, "what the schedule is called; else as the algorithm");
    line.option("--json", options.json, "write FLX's JSON to this file; -: standard output");
    line.option("--goal", options.goal, "write GOAL to this file");
    line.option("--svg", options.svg, "write a picture to this file");
    bool read = line.parse(argc, argv);
    if (read && options.import_file.empty() && (options.collective.empty() || options.algorithm.empty()))
        read = line.lacks("a collective and an algorithm, or --import,");
    if (read && options.bytes % options.element != 0)
        read = line.refuse("--bytes", "it must be whole elements");
    if (read && options.cell % options.element != 0)
        read = line.refuse("--cell", "it must be whole elements");
    if (!read) {
        code = line.say();
        return false;
    }
    options.hosts = hosts.given();
    if (!options.hosts)
        options.ranks_of = {ranks};
    return true;
}

}  // namespace flx::schedule
