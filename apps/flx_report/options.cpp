#include "apps/flx_report/options.h"

#include <filesystem>

#include "apps/common/command_line.h"

namespace flx::report {

bool parse(int argc, const char *const *argv, Options &options, int &code) {
    apps::CommandLine line(
        "flx_report",
        "Makes a page of a trace of FLX: what a program called, which ways and links that took, and who waited for "
        "whom. The page is one HTML file that needs no network.");
    line.option("trace", options.trace, "the trace, as JSON; it may be left out where there is --bench");
    line.option("--out", options.out, "the page; else the trace's name with .html, or that of the first results");
    line.option("--bench", options.benches,
                "results of flx_perf --json: FLX beside its peer and the links' ceiling; may be given again")
        .repeats();
    bool read = line.parse(argc, argv);
    if (read && options.trace.empty() && options.benches.empty())
        read = line.lacks("a trace, or --bench,");
    if (!read) {
        code = line.say();
        return false;
    }
    if (options.out.empty())
        options.out = std::filesystem::path(options.trace.empty() ? options.benches.front() : options.trace)
                          .replace_extension(".html")
                          .string();
    return true;
}

}  // namespace flx::report
