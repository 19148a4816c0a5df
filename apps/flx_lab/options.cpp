#include "apps/flx_lab/options.h"

#include <fmt/format.h>

#include "apps/flx_lab/overlap.h"

namespace flx::bench::lab {
namespace {

constexpr int64_t kMessages = 100;

/// Reads what is beside, and completes the rest. An empty text, or what does not go together.
std::string settle(Options &options, const std::string &beside, const std::string &against, int ranks) {
    options.beside_product = beside == "product";
    options.queued_copies = beside == "copies" ? 1 : beside == "queue" ? 2 : 0;
    options.against_nccl = against == "nccl";
    if (!beside.empty() && !options.device()) {
        return fmt::format("unknown work '{}' for --beside; known are product, copies, queue", beside);
    }
    if (against != "none" && !options.against_nccl) {
        return fmt::format("unknown peer '{}' for --against; known are none, nccl", against);
    }
    if ((options.arrivals > 0 ? 1 : 0) + (options.overlap ? 1 : 0) + (options.device() ? 1 : 0) != 1) {
        return "one of --arrivals, --overlap and --beside says what is measured";
    }
    if (options.against_nccl && !options.beside_product) {
        return "--against nccl is for --beside product";
    }
    if (options.arrivals > 0 && options.collective != Collective::kSendrecv) {
        return "--arrivals is for sendrecv";
    }
    if (options.arrivals > 0 && ranks < 2) {
        return "--arrivals needs two ranks or more";
    }
    if (options.overlap && options.collective == Collective::kSendrecv) {
        return "--overlap is for collectives";
    }
    if (options.device() && !is_for_devices(options.collective)) {
        return "--beside is for allreduce, reduce_scatter_block, allgather, bcast, reduce, alltoall and sendrecv";
    }
    if (options.device() && options.iterations > 0) {
        return "--iterations is for --arrivals and --overlap";
    }
    if (options.iterations == 0) {
        options.iterations = options.overlap ? kOverlapRounds : kMessages;
    }
    return {};
}

}  // namespace

Parsed parse_options(int argc, const char *const *argv, int ranks) {
    constexpr int kMostCalls = 1'000'000'000;
    Options options;
    std::string against = "none";
    std::string beside;

    CommandLine line("flx_lab",
                     "Measures FLX in what programs do besides: messages that come at random, computations, other "
                     "traffic. Start it with mpirun.",
                     options);
    apps::CommandLine &own = line.own();
    const auto arrivals =
        own.option("--arrivals", options.arrivals,
                   "of sendrecv: so many messages a second at random times (Poisson), from random ranks of the first "
                   "half to random ones of the second, of random sizes between the least and the most of --sizes; "
                   "with FLX_LEND=own and with FLX_LEND as it is, in turn; every message is checked")
            .in_range(0.001, 1e6);
    own.option("--seed", options.seed, "of --arrivals").shows_default().needs(arrivals);
    own.flag("--overlap", options.overlap,
             "the call that does not wait, beside a computation that takes as long; with FLX_PROGRESS_THREAD=on "
             "unless it is set; the last round is checked");
    own.option("--beside", beside,
               "on GPU memory, each rank on the GPU of its place on its host: product, while bf16 matrix products "
               "(cuBLAS) run on another stream; what each costs the other, with FLX and with FLX_CUDA_BLOCKS=0; or "
               "copies, while copies between host and GPUs begin and end, one at a time each way; how shares follow "
               "them, beside shares that stay; or queue, the same where a copy each way always waits for the one "
               "before it");
    own.option("--against", against, "of --beside product: none or nccl, the same with NCCL at its defaults")
        .shows_default();
    own.option("--iterations", options.iterations, "messages of --arrivals, else 100; rounds of --overlap, else 9")
        .in_range(1, kMostCalls);

    if (line.parse(argc, argv, ranks)) {
        const std::string problem = settle(options, beside, against, ranks);
        if (problem.empty()) {
            return {options, {}, 0};
        }
        line.refuse(problem);
    }
    return {std::nullopt, line.text(), line.exit_code()};
}

}  // namespace flx::bench::lab
