#include "apps/flx_schedule/options.h"

#include <CLI/CLI.hpp>

#include "runtime/base/config.h"

namespace flx::schedule {
namespace {

/// Sizes as knobs have them: `64K`, `1M`.
CLI::Option *add_size(CLI::App &app, const char *names, size_t &result, const char *doc) {
    return app
        .add_option_function<std::string>(
            names,
            [&result](const std::string &text) {
                if (const Status status = parse_size(text, result); !status.ok())
                    throw CLI::ValidationError(status.words());
            },
            doc)
        ->type_name("SIZE");
}

}  // namespace

bool parse(int argc, const char *const *argv, Options &options, int &code) {
    constexpr int kMostRanks = 1024;
    CLI::App app(
        "Writes a schedule of FLX as a file, which FLX_ALGORITHM=COLLECTIVE:file:FILE follows, as GOAL for LogGOPSim, "
        "or "
        "as a picture; and says whether a schedule is right, also one of a file.");
    int ranks = 4;
    options.bytes = size_t{1} << 20;
    auto *collective = app.add_option("collective", options.collective, "as in FLX_ALGORITHM: allreduce, bcast, …");
    auto *algorithm = app.add_option("algorithm", options.algorithm, "as there: ring, 'leaders(direct,ring)', …");
    auto *imported =
        app.add_option("--import", options.import_file, "the schedule of this file instead: FLX's JSON, or MSCCL's XML")
            ->excludes(collective)
            ->excludes(algorithm);
    auto *size = app.add_option("--ranks", ranks, "ranks, all on one host")
                     ->check(CLI::Range(1, kMostRanks))
                     ->capture_default_str()
                     ->excludes(imported);
    auto *hosts = app.add_option("--hosts", options.ranks_of, "ranks of each host, such as 4,4")
                      ->delimiter(',')
                      ->check(CLI::Range(1, kMostRanks))
                      ->excludes(size)
                      ->excludes(imported);
    app.add_option("--root", options.root, "of bcast, reduce, gather and scatter")->capture_default_str();
    add_size(app, "--bytes", options.bytes, "of the whole vector, for GOAL; else 1M");
    app.add_option("--element", options.element, "bytes of an element, for GOAL")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    add_size(app, "--cell", options.cell, "GOAL: bytes of a message at most; else a block is one");
    app.add_flag("--in-place", options.in_place, "GOAL: of a call in place");
    app.add_option("--name", options.name, "what the schedule is called; else as the algorithm");
    app.add_option("--json", options.json, "write FLX's JSON to this file; -: standard output");
    app.add_option("--goal", options.goal, "write GOAL to this file");
    app.add_option("--svg", options.svg, "write a picture to this file");
    try {
        app.parse(argc, argv);
        if (options.import_file.empty() && (options.collective.empty() || options.algorithm.empty()))
            throw CLI::RequiredError("a collective and an algorithm, or --import,");
        if (options.bytes % options.element != 0)
            throw CLI::ValidationError("--bytes", "it must be whole elements");
        if (options.cell % options.element != 0)
            throw CLI::ValidationError("--cell", "it must be whole elements");
    } catch (const CLI::ParseError &error) {
        code = app.exit(error);
        return false;
    }
    options.hosts = hosts->count() != 0;
    if (!options.hosts)
        options.ranks_of = {ranks};
    return true;
}

}  // namespace flx::schedule
