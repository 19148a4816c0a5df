/// Makes a page of what FLX traced.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/text_file.h"
#include "apps/flx_report/data/bench.h"
#include "apps/flx_report/data/collector.h"
#include "apps/flx_report/options.h"
#include "apps/flx_report/page/page.h"

namespace {

int fail(const std::string &sentence) {
    fmt::print(stderr, "flx_report: {}\n", sentence);
    return 1;
}

std::string cannot(const char *what, const std::string &name) {
    return fmt::format("{}: cannot {} it: {}", name, what, std::strerror(errno));
}

/// Files alone: a folder opens, and reads as if it were empty.
bool open(const std::string &name, std::ifstream &stream) {
    std::error_code ignored;
    if (std::filesystem::is_directory(name, ignored)) {
        errno = EISDIR;
        return false;
    }
    stream.open(name, std::ios::binary);
    return stream.is_open();
}

}  // namespace

int main(int argc, char **argv) {
    flx::report::Options options;
    int code = 0;
    if (!flx::report::parse(argc, argv, options, code))
        return code;
    std::string problem;
    std::vector<flx::report::Bench> benches;
    for (const std::string &name : options.benches) {
        std::ifstream file;
        if (!open(name, file))
            return fail(cannot("read", name));
        std::optional<flx::report::Bench> bench = flx::report::read_bench(file, name, problem);
        if (!bench)
            return fail(problem);
        benches.push_back(std::move(*bench));
    }
    if (options.trace.empty()) {
        std::string origin = "made of";
        for (const flx::report::Bench &bench : benches)
            origin += " " + bench.name;
        if (!flx::apps::replace_text(options.out, flx::report::page_of_results(benches, origin)))
            return fail(cannot("write", options.out));
        fmt::print("{}\n", options.out);
        return 0;
    }
    std::ifstream trace;
    if (!open(options.trace, trace))
        return fail(cannot("read", options.trace));
    const std::optional<flx::report::Summary> summary = flx::report::summarise(trace, options.trace, problem);
    if (!summary)
        return fail(problem);
    const std::string name = std::filesystem::path(options.trace).filename().string();
    if (!flx::apps::replace_text(options.out, flx::report::page_of(*summary, benches, name)))
        return fail(cannot("write", options.out));
    fmt::print("{}\n", options.out);
    return 0;
}
