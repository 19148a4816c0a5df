#include "apps/flx_perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/bench/timing.h"
#include "apps/flx_perf/overlap.h"

namespace flx::bench::perf {
Parsed parse_options(int argc, const char *const *argv, int ranks) {
    constexpr int kMostCalls = 1'000'000'000;
    Options options;
    std::string against = "none";
    std::string memory = "host";
    std::string beside;

    CommandLine line("flx_perf", "Measures a collective of FLX, and of MPI beside it. Start it with mpirun.", options);
    CLI::App &app = line.app();
    auto *arrivals =
        app.add_option(
               "--arrivals", options.arrivals,
               "of sendrecv: so many messages a second at random times (Poisson), from random ranks of the first "
               "half to random ones of the second, of random sizes between the least and the most of --sizes; "
               "with FLX_LEND=own and with FLX_LEND as it is, in turn; --iterations messages, else 100")
            ->check(CLI::Range(0.001, 1e6));
    auto *seed = app.add_option("--seed", options.seed, "of --arrivals")->capture_default_str();
    app.add_flag("--overlap", options.overlap,
                 "the call that does not wait, beside a computation that takes as long; with FLX_PROGRESS_THREAD=on "
                 "unless it is set; --iterations rounds, else 9");
    app.add_option(
           "--memory", memory,
           "host; shared: of flx_malloc, for all sides; or device: GPU memory, each rank on the GPU of its place on "
           "its host")
        ->capture_default_str();
    bool unregistered = false;
    app.add_flag("--unregistered", unregistered, "device: outputs are not registered with FLX");
    app.add_flag("--graph", options.graph, "device: time replays of graphs that the calls were captured into");
    app.add_option("--against", against,
                   "none, mpi, or (device) nccl: the same calls of the other at its defaults, in turn with FLX's")
        ->capture_default_str();
    app.add_option("--beside", beside,
                   "device: product, while bf16 matrix products (cuBLAS) run on another stream; what each costs the "
                   "other, with FLX, with FLX_CUDA_BLOCKS=0 and with NCCL; or copies, while copies between host and "
                   "GPUs begin and end, one at a time each way; how shares follow them, beside shares that stay; or "
                   "queue, the same where a copy each way always waits for the one before it");
    app.add_flag("--memcpy", options.beside_memcpy,
                 "in turn with the rest, a memcpy of the size on each rank at once: the limit of this memory");
    app.add_flag("--all-algorithms", options.all_algorithms,
                 "each algorithm that could serve, with the time that FLX predicts; * is FLX's choice");
    auto *blocks =
        app.add_option("--blocks", options.blocks,
                       "blocks of timed calls that each side makes in turn; else 7 to 31, 7 with --iterations")
            ->check(CLI::Range(kFewestBlocks, kMostCalls));
    auto *iterations = app.add_option("--iterations", options.iterations,
                                      "timed calls of each side, rounded up to whole blocks; else as time allows")
                           ->check(CLI::Range(1, kMostCalls));
    auto *max_seconds = app.add_option("--max-seconds", options.max_seconds, "for the timed calls of one size")
                            ->capture_default_str()
                            ->check(CLI::Range(0.001, 86400.0));
    auto *seconds = app.add_option("--seconds", options.seconds,
                                   "back to back instead of in turn: FLX for so long, then MPI; for throughput")
                        ->check(CLI::Range(0.001, 86400.0));
    app.add_flag("--check", options.check_every,
                 "check every timed call, outside the timing (else the first and the last of each size)");
    app.add_flag("--check-peer", options.check_peer, "check MPI's results as well, and report them");
    app.add_option("--csv", options.csv_file, "write the results as CSV");
    app.add_option("--log-iterations", options.log_file, "write every timed call of FLX as CSV");
    seed->needs(arrivals);
    arrivals->excludes(max_seconds)->excludes(seconds)->excludes(blocks);
    iterations->excludes(max_seconds)->excludes(seconds);
    max_seconds->excludes(seconds);
    blocks->excludes(seconds);

    const auto refuse = [&](const std::string &why) {
        line.refuse(why);
        return Parsed{std::nullopt, line.text(), line.exit_code()};
    };
    if (!line.parse(argc, argv, ranks)) {
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
    options.beside_product = beside == "product";
    options.queued_copies = beside == "copies" ? 1 : beside == "queue" ? 2 : 0;
    if (!beside.empty() && !options.beside_product && options.queued_copies == 0) {
        return refuse(fmt::format("unknown work '{}' for --beside; known are product, copies, queue", beside));
    }
    if (options.queued_copies > 0 && (against != "none" || !options.registered)) {
        return refuse("--beside copies is without --against and --unregistered");
    }
    if (!beside.empty() && (!options.device || options.graph || !options.csv_file.empty())) {
        return refuse("--beside needs --memory device, is without --graph, and writes --json only");
    }
    if (options.arrivals > 0) {
        constexpr int64_t kMessages = 100;
        if (kind != Collective::kSendrecv || options.device || against != "none") {
            return refuse("--arrivals is for sendrecv on host memory, without --against");
        }
        if (options.check_every || !options.csv_file.empty() || !options.log_file.empty()) {
            return refuse("--arrivals checks every message, and writes --json only");
        }
        if (ranks < 2) {
            return refuse("--arrivals needs two ranks or more");
        }
        options.iterations = options.iterations > 0 ? options.iterations : kMessages;
    }
    if (options.overlap) {
        if (options.device || against != "none" || options.arrivals > 0 || kind == Collective::kSendrecv) {
            return refuse("--overlap is for collectives on host memory, without --against and --arrivals");
        }
        if (options.check_every || options.seconds > 0 || !options.csv_file.empty() || !options.log_file.empty()) {
            return refuse("--overlap checks the last round, and writes --json only");
        }
        options.iterations = options.iterations > 0 ? options.iterations : kOverlapRounds;
    }
    if (options.shared && (options.overlap || options.arrivals > 0)) {
        return refuse("--memory shared is without --overlap and --arrivals");
    }
    if (options.beside_memcpy && (options.device || options.overlap || options.arrivals > 0 || options.seconds > 0 ||
                                  !options.log_file.empty())) {
        return refuse(
            "--memcpy is for collectives on host memory in turn, without --overlap, --arrivals, --seconds and "
            "--log-iterations");
    }
    if (options.all_algorithms &&
        (options.device || options.overlap || options.arrivals > 0 || !options.log_file.empty())) {
        return refuse(
            "--all-algorithms is for collectives on host memory, without --overlap, --arrivals and --log-iterations");
    }
    options.against_mpi = against == "mpi";
    if (options.check_peer && !options.against_mpi) {
        return refuse("--check-peer needs --against mpi");
    }
    return {options, {}, 0};
}

}  // namespace flx::bench::perf
