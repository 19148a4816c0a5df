/// Makes a trace of what the ranks of a program wrote under FLX_TRACE, where they did not do so themselves: one of them
/// was killed, or made no communicator of FLX's, or the launcher said no rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "runtime/record/trace_files.h"

int main(int argc, char **argv) {
    CLI::App app(
        "Makes the trace FILE of its parts in FILE.parts. Programs that are started with FLX_TRACE=FILE do so "
        "themselves "
        "when their last rank ends; this is for those of which a rank did not end as programs do.");
    std::string file;
    app.add_option("FILE", file, "as FLX_TRACE named it")->required();
    CLI11_PARSE(app, argc, argv);
    flx::record::TraceMade made;
    if (const flx::Status status = flx::record::make_trace(file, made); !status.ok()) {
        fmt::print(stderr, "flx_trace: {}\n", status.sentence());
        return 1;
    }
    fmt::print("{}: {} calls of {} ranks\n", file, made.calls, made.ranks);
    for (const std::string &note : made.notes)
        fmt::print("{}\n", note);
    return 0;
}
