#include "apps/flx_perf/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/bench/timing.h"

namespace flx::bench::perf {
namespace {

/// The option of flx_lab that stands first among the arguments; empty if there is none.
std::string_view option_of_lab(int argc, const char *const *argv) {
    constexpr std::array<std::string_view, 4> kOfLab = {"--arrivals", "--seed", "--overlap", "--beside"};
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const std::string_view name = argument.substr(0, argument.find('='));
        if (std::ranges::find(kOfLab, name) != kOfLab.end()) {
            return name;
        }
    }
    return {};
}

}  // namespace

Parsed parse_options(int argc, const char *const *argv, int ranks) {
    constexpr int kMostCalls = 1'000'000'000;
    Options options;
    std::string against = "none";
    std::string memory = "host";

    CommandLine line("flx_perf", "Measures a collective of FLX, and of MPI beside it. Start it with mpirun.", options);
    apps::CommandLine &own = line.own();
    own.option(
           "--memory", memory,
           "host; shared: of flx_malloc, for all sides; or device: GPU memory, each rank on the GPU of its place on "
           "its host")
        .shows_default();
    bool unregistered = false;
    own.flag("--unregistered", unregistered, "device: outputs are not registered with FLX");
    own.flag("--graph", options.graph, "device: time replays of graphs that the calls were captured into");
    own.option("--against", against,
               "none, mpi, or (device) nccl: the same calls of the other at its defaults, in turn with FLX's")
        .shows_default();
    own.flag("--memcpy", options.beside_memcpy,
             "in turn with the rest, a memcpy of the size on each rank at once: the limit of this memory");
    own.flag("--all-algorithms", options.all_algorithms,
             "each algorithm that could serve, with the time that FLX predicts; * is FLX's choice");
    auto blocks = own.option("--blocks", options.blocks,
                             "blocks of timed calls that each side makes in turn; else 7 to 31, 7 with --iterations")
                      .in_range(kFewestBlocks, kMostCalls);
    auto iterations = own.option("--iterations", options.iterations,
                                 "timed calls of each side, rounded up to whole blocks; else as time allows")
                          .in_range(1, kMostCalls);
    auto max_seconds = own.option("--max-seconds", options.max_seconds, "for the timed calls of one size")
                           .shows_default()
                           .in_range(0.001, 86400.0);
    const auto seconds = own.option("--seconds", options.seconds,
                                    "back to back instead of in turn: FLX for so long, then MPI; for throughput")
                             .in_range(0.001, 86400.0);
    own.option("--compute", options.compute_ms,
               "ms that each rank computes before each timed call, which do not count, as programs do")
        .shows_default()
        .in_range(0.0, 10000.0)
        .excludes(seconds);
    own.flag("--check", options.check_every,
             "check every timed call, outside the timing (else the first and the last of each size)");
    own.flag("--check-peer", options.check_peer, "check MPI's results as well, and report them");
    own.option("--csv", options.csv_file, "write the results as CSV");
    own.option("--report", options.page_file, "write a page of the results, as flx_report does: one HTML file");
    own.option("--log-iterations", options.log_file, "write every timed call of FLX as CSV");
    iterations.excludes(max_seconds).excludes(seconds);
    max_seconds.excludes(seconds);
    blocks.excludes(seconds);

    const auto refuse = [&](const std::string &why) {
        line.refuse(why);
        return Parsed{std::nullopt, line.text(), line.exit_code()};
    };
    if (!line.parse(argc, argv, ranks)) {
        if (const std::string_view moved = option_of_lab(argc, argv); !moved.empty() && line.exit_code() != 0) {
            return refuse(fmt::format("{} is an option of flx_lab, which measures that", moved));
        }
        return {std::nullopt, line.text(), line.exit_code()};
    }
    const Collective kind = options.collective;

    if (against != "none" && against != "mpi" && against != "nccl") {
        return refuse(fmt::format("unknown peer '{}' for --against; known are none, mpi, nccl", against));
    }
    if (memory != "host" && memory != "shared" && memory != "device") {
        return refuse(fmt::format("unknown memory '{}'; known are host, shared, device", memory));
    }
    options.device = memory == "device";
    options.shared = memory == "shared";
    options.registered = !unregistered;
    options.against_nccl = against == "nccl";
    if (options.against_nccl != (options.device && against != "none")) {
        return refuse("on device memory FLX is compared with nccl, on host memory with mpi");
    }
    if (!options.device && (options.graph || !options.registered)) {
        return refuse("--graph and --unregistered need --memory device");
    }
    if (options.device &&
        (options.check_every || !options.log_file.empty() || options.seconds > 0 || !is_for_devices(kind))) {
        return refuse(
            "on device memory there are no --check, --log-iterations and --seconds, and of the collectives only "
            "allreduce, reduce_scatter_block, allgather, bcast, reduce, alltoall and sendrecv");
    }
    if (options.device && options.compute_ms > 0) {
        return refuse("--compute is for collectives on host memory");
    }
    if (options.beside_memcpy && (options.device || options.seconds > 0 || !options.log_file.empty())) {
        return refuse("--memcpy is for collectives on host memory in turn, without --seconds and --log-iterations");
    }
    if (options.all_algorithms && (options.device || !options.log_file.empty())) {
        return refuse("--all-algorithms is for collectives on host memory, without --log-iterations");
    }
    options.against_mpi = against == "mpi";
    if (options.check_peer && !options.against_mpi) {
        return refuse("--check-peer needs --against mpi");
    }
    return {options, {}, 0};
}

}  // namespace flx::bench::perf
