#include "apps/flx_tune/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/bench/sizes.h"
#include "apps/flx_tune/calls.h"

namespace flx::tune {

bench::Parsed<Options> parse(int argc, char **argv) {
    constexpr uint64_t kLargest = uint64_t{1} << 30;
    bench::Parsed<Options> parsed;
    Options options;
    std::string largest = "4M";
    CLI::App app(
        "Calls MPI's collectives in many sizes, so that what FLX and MPI take is known before a program asks:\n"
        "mpirun -n N flx-run [--stats] -- flx_tune. What it finds is kept where FLX_CACHE says, for programs "
        "with as many ranks on as many hosts.");
    app.name("flx_tune");
    app.add_option("--collectives", options.collectives,
                   fmt::format("which, with commas between: {}; all without this", fmt::join(names(), ", ")))
        ->delimiter(',');
    app.add_option("--largest", largest, "bytes of the largest calls, over all ranks")->capture_default_str();
    app.add_option("--seconds", options.seconds, "how long it goes on")
        ->check(CLI::Range(1.0, 86400.0))
        ->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        parsed.text = app.help();
        return parsed;
    } catch (const CLI::ParseError &error) {
        parsed.text = fmt::format("flx_tune: {}\n", error.what());
        parsed.exit_code = 2;
        return parsed;
    }
    const auto refuse = [&](const std::string &why) {
        parsed.text = fmt::format("flx_tune: {}\n", why);
        parsed.exit_code = 2;
        return parsed;
    };
    std::string problem;
    const std::vector<uint64_t> sizes = bench::parse_sizes(largest, problem);
    if (sizes.size() != 1 || sizes[0] < 4 || sizes[0] > kLargest)
        return refuse(fmt::format("--largest {}: one size is wanted, of 4 bytes to 1G", largest));
    options.largest = sizes[0];
    const std::vector<std::string> known = names();
    for (const std::string &name : options.collectives)
        if (std::find(known.begin(), known.end(), name) == known.end())
            return refuse(fmt::format("--collectives: {} is none; {} are known", name, fmt::join(known, ", ")));
    if (options.collectives.empty())
        options.collectives = known;
    parsed.options = std::move(options);
    return parsed;
}

}  // namespace flx::tune
