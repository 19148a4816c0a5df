#include "apps/flx_perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "apps/bench/timing.h"
#include "apps/flx_perf/overlap.h"

namespace flx::bench::perf {
namespace {

/// One size; nothing if the text is not one.
std::optional<uint64_t> parse_size(std::string_view text) {
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) {
        return std::nullopt;
    }
    std::string_view unit = text.substr(static_cast<size_t>(rest - text.data()));
    int shift = 0;
    if (!unit.empty()) {
        const size_t power = std::string_view("KMGT").find(static_cast<char>(std::toupper(unit[0])));
        if (power != std::string_view::npos) {
            shift = 10 * (static_cast<int>(power) + 1);
            unit.remove_prefix(1);
        }
    }
    const bool known_unit = unit.empty() || unit == "B" || unit == "b" || (shift > 0 && unit == "iB");
    if (!known_unit || number > std::numeric_limits<uint64_t>::max() >> shift) {
        return std::nullopt;
    }
    return number << shift;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(end + 1);
    }
}

std::string add_range(std::string_view item, std::vector<uint64_t> &sizes) {
    const std::vector<std::string_view> parts = split(item, ':');
    if (parts.size() > 3) {
        return fmt::format("size range '{}' is not FROM:TO or FROM:TO:FACTOR", item);
    }
    const auto from = parse_size(parts[0]);
    const auto to = parse_size(parts[1]);
    const auto factor = parts.size() == 3 ? parse_size(parts[2]) : std::optional<uint64_t>(2);
    if (!from || !to || !factor) {
        return fmt::format("size range '{}' is not FROM:TO or FROM:TO:FACTOR", item);
    }
    if (*from == 0 || *from > *to || *factor < 2) {
        return fmt::format("size range '{}' needs 0 < FROM <= TO and a FACTOR of at least 2", item);
    }
    for (uint64_t size = *from;; size *= *factor) {
        sizes.push_back(size);
        if (size > *to / *factor) {
            return {};
        }
    }
}

}  // namespace

std::vector<uint64_t> parse_sizes(std::string_view text, std::string &problem) {
    std::vector<uint64_t> sizes;
    problem.clear();
    for (const std::string_view item : split(text, ',')) {
        if (item.find(':') != std::string_view::npos) {
            problem = add_range(item, sizes);
        } else if (const auto size = parse_size(item)) {
            sizes.push_back(*size);
        } else {
            problem = fmt::format("size '{}' is not a number of bytes such as 8, 1K or 64M", item);
        }
        if (!problem.empty()) {
            return {};
        }
    }
    return sizes;
}

std::string size_text(uint64_t bytes) {
    constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{} {}", bytes, kUnits[unit]);
}

Parsed parse_options(int argc, const char *const *argv, int ranks) {
    constexpr int kMostRanks = 1 << 24;
    constexpr int kMostCalls = 1'000'000'000;
    Options options;
    std::string collective;
    std::string sizes = "8:64M";
    std::string dtype = "f32";
    std::string op = "sum";
    std::string against = "none";
    std::string traffic = "uniform";
    std::string memory = "host";
    std::string beside;

    CLI::App app{"Measures a collective of FLX, and of MPI beside it. Start it with mpirun.", "flx_perf"};
    app.get_formatter()->column_width(30);
    app.add_option("collective", collective, known_collectives())->required();
    app.add_option("--sizes", sizes, "bytes: a list 8,1K,64M, or ranges FROM:TO[:FACTOR]")->capture_default_str();
    app.add_option("--dtype", dtype, known_dtypes())->capture_default_str();
    app.add_option("--op", op, known_ops() + "; only where the collective reduces")->capture_default_str();
    app.add_option("--root", options.root, "of bcast, reduce, gather, gatherv, scatter and scatterv")
        ->capture_default_str()
        ->check(CLI::Range(0, kMostRanks));
    app.add_option("--pattern", traffic,
                   "of alltoallv: uniform, one-pair (rank 0 to the one half way round) or zipf:S (the k-th pair's part "
                   "is as 1/k^S); the size is what a rank sends on average, of one-pair what the one sends")
        ->capture_default_str();
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
    app.add_flag("--in-place", options.in_place, "input and output share memory");
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
    app.add_option("--warmup", options.warmup, "calls of each side before timing")
        ->capture_default_str()
        ->check(CLI::Range(0, kMostCalls));
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
    app.add_option("--json", options.json_file, "write the results as JSON");
    app.add_option("--csv", options.csv_file, "write the results as CSV");
    app.add_option("--log-iterations", options.log_file, "write every timed call of FLX as CSV");
    seed->needs(arrivals);
    arrivals->excludes(max_seconds)->excludes(seconds)->excludes(blocks);
    iterations->excludes(max_seconds)->excludes(seconds);
    max_seconds->excludes(seconds);
    blocks->excludes(seconds);

    const auto refuse = [](const std::string &why) {
        return Parsed{std::nullopt, fmt::format("flx_perf: {}\nflx_perf --help lists the options.\n", why), 2};
    };
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        return {std::nullopt, app.help(), 0};
    } catch (const CLI::ParseError &error) {
        return refuse(error.what());
    }

    const auto kind = parse_collective(collective);
    if (!kind) {
        return refuse(fmt::format("unknown collective '{}'; known are {}", collective, known_collectives()));
    }
    const auto type = parse_dtype(dtype);
    if (!type) {
        return refuse(fmt::format("unknown type '{}'; known are {}", dtype, known_dtypes()));
    }
    const auto reduction = parse_op(op);
    if (!reduction) {
        return refuse(fmt::format("unknown reduction '{}'; known are {}", op, known_ops()));
    }
    if (has_reduction(*kind) && is_float8(*type) && *reduction == FLX_PROD) {
        return refuse(fmt::format("prod does not go with {}; sum, min, max and avg do", dtype));
    }
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
        (options.check_every || !options.log_file.empty() || options.seconds > 0 || !is_for_devices(*kind))) {
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
    if (options.root >= ranks) {
        return refuse(fmt::format("--root {} is not a rank; there are {} ranks", options.root, ranks));
    }
    const auto known_traffic = parse_traffic(traffic);
    if (!known_traffic) {
        return refuse(fmt::format("unknown --pattern '{}'; known are uniform, one-pair, zipf:S", traffic));
    }
    if (known_traffic->kind != Traffic::Kind::kUniform && *kind != Collective::kAlltoallv) {
        return refuse("--pattern is for alltoallv");
    }
    if (options.arrivals > 0) {
        constexpr int64_t kMessages = 100;
        if (*kind != Collective::kSendrecv || options.device || against != "none") {
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
        if (options.device || against != "none" || options.arrivals > 0 || *kind == Collective::kSendrecv) {
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
    if (options.in_place && (*kind == Collective::kAlltoallv || *kind == Collective::kSendrecv)) {
        return refuse(fmt::format("--in-place is not for {}", collective));
    }
    if (is_scan(*kind) && *reduction == FLX_AVG) {
        return refuse(fmt::format("avg is not a reduction of {}", collective));
    }
    options.traffic = *known_traffic;
    options.collective = *kind;
    options.dtype = *type;
    options.op = *reduction;
    options.against_mpi = against == "mpi";
    if (options.check_peer && !options.against_mpi) {
        return refuse("--check-peer needs --against mpi");
    }
    std::string problem;
    options.sizes = parse_sizes(sizes, problem);
    if (!problem.empty()) {
        return refuse(problem);
    }
    if (options.collective == Collective::kBarrier) {
        options.sizes = {0};
    }
    return {options, {}, 0};
}

}  // namespace flx::bench::perf
