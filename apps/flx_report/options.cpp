#include "apps/flx_report/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

namespace flx::report {

bool parse(int argc, const char *const *argv, Options &options, int &code) {
    CLI::App app(
        "Makes a page of a trace of FLX: what a program called, which ways and links that took, and who waited for "
        "whom. "
        "The page is one HTML file that needs no network.");
    app.add_option("trace", options.trace, "the trace, as JSON; it may be left out where there is --bench");
    app.add_option("--out", options.out, "the page; else the trace's name with .html, or that of the first results");
    app.add_option("--bench", options.benches,
                   "results of flx_perf --json: FLX beside its peer and the links' ceiling; may be given again")
        ->allow_extra_args(false);
    try {
        app.parse(argc, argv);
        if (options.trace.empty() && options.benches.empty())
            throw CLI::RequiredError("a trace, or --bench,");
    } catch (const CLI::ParseError &error) {
        code = app.exit(error);
        return false;
    }
    if (options.out.empty())
        options.out = std::filesystem::path(options.trace.empty() ? options.benches.front() : options.trace)
                          .replace_extension(".html")
                          .string();
    return true;
}

}  // namespace flx::report
