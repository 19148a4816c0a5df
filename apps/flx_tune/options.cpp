#include "apps/flx_tune/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/bench/sizes.h"
#include "apps/common/command_line.h"
#include "apps/flx_tune/calls.h"

namespace flx::tune {

bench::Parsed<Options> parse(int argc, char **argv) {
    constexpr uint64_t kLargest = uint64_t{1} << 30;
    bench::Parsed<Options> parsed;
    Options options;
    std::string largest = "4M";
    apps::CommandLine line(
        "flx_tune",
        "Calls MPI's collectives in many sizes, so that what FLX and MPI take is known before a program asks:\n"
        "mpirun -n N flx-run [--stats] -- flx_tune. What it finds is kept where FLX_CACHE says, for programs "
        "with as many ranks on as many hosts.");
    line.option("--collectives", options.collectives,
                fmt::format("which, with commas between: {}; all without this", fmt::join(names(), ", ")))
        .as_list();
    line.option("--largest", largest, "bytes of the largest calls, over all ranks").shows_default();
    line.option("--seconds", options.seconds, "how long it goes on").in_range(1.0, 86400.0).shows_default();
    const auto refuse = [&](const std::string &why) {
        parsed.text = fmt::format("flx_tune: {}\n", why);
        parsed.exit_code = 2;
        return parsed;
    };
    if (!line.parse(argc, argv)) {
        if (!line.problem().empty())
            return refuse(line.problem());
        parsed.text = line.text();
        return parsed;
    }
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
