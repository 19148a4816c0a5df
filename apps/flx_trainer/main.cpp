/// flx_trainer: data-parallel training of a small network on Fashion-MNIST, with gradients reduced by FLX.
#include <flx.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "apps/flx_trainer/idx.h"
#include "apps/flx_trainer/options.h"
#include "apps/flx_trainer/report.h"
#include "apps/flx_trainer/training.h"

namespace {

using namespace flx::trainer;

// Exit codes; 1 is a check that failed, a failed flx_* call aborts the program.
constexpr int kBadInput = 2;

int complain(int rank, const std::string &sentence) {
    if (rank == 0 && !sentence.empty()) {
        fmt::print(stderr, "flx_trainer: {}\n", sentence);
    }
    return kBadInput;
}

// Loads on every rank; what rank 0 complains about is the lowest failing rank's sentence. Collective.
bool load(const Options &options, int rank, int ranks, Dataset &dataset, std::string &error) {
    int failed = read_fashion_mnist(options.data, dataset, error) ? ranks : rank;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (failed == ranks) {
        return true;
    }
    int length = static_cast<int>(error.size());
    MPI_Bcast(&length, 1, MPI_INT, failed, MPI_COMM_WORLD);
    error.resize(static_cast<std::size_t>(length));
    MPI_Bcast(error.data(), length, MPI_CHAR, failed, MPI_COMM_WORLD);
    return false;
}

int run(int argc, char **argv, int rank, int ranks) {
    int exit_code = 0;
    auto options = parse_options(argc, argv, rank == 0, exit_code);
    if (!options) {
        return exit_code;
    }
    Dataset dataset;
    std::string error;
    if (!load(*options, rank, ranks, dataset, error)) {
        return complain(rank, error);
    }
    const std::size_t samples = std::min(options->limit, dataset.train.count);
    const std::size_t steps_per_epoch = (samples + options->batch - 1) / options->batch;
    const std::size_t steps = options->epochs * steps_per_epoch;
    Corruption &fault = options->corruption;
    if (fault.step == kLastOfFirstEpoch) {
        fault.step = steps_per_epoch - 1;
    }
    if (fault.when != Corruption::When::never && (fault.rank < 0 || fault.rank >= ranks || fault.step >= steps)) {
        return complain(rank, fmt::format("--corrupt-rank must be 0 to {} and --corrupt-step 0 to {} in this run.",
                                          ranks - 1, steps - 1));
    }

    const bool uses_flx =
        std::find(options->backends.begin(), options->backends.end(), Backend::flx) != options->backends.end();
    flx_comm_t flx_comm = nullptr;
    if (uses_flx) {
        require(flx_comm_create(MPI_COMM_WORLD, nullptr, &flx_comm), "flx_comm_create");
    }
    Outcome outcome;
    const bool trained = train(*options, dataset, MPI_COMM_WORLD, flx_comm, outcome, error);
    if (uses_flx) {
        require(flx_comm_free(&flx_comm), "flx_comm_free");
    }
    if (!trained) {
        return complain(rank, error);
    }
    if (rank == 0) {
        const auto checks = judge(*options, outcome);
        print_report(*options, ranks, outcome, checks);
        if (std::any_of(checks.begin(), checks.end(), [](const Check &check) { return !check.passed; })) {
            exit_code = 1;
        }
        if (!options->json.empty() && !write_json(options->json, *options, ranks, outcome, checks, error)) {
            exit_code = complain(rank, error);
        }
    }
    MPI_Bcast(&exit_code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return exit_code;
}

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int exit_code = run(argc, argv, rank, ranks);
    MPI_Finalize();
    return exit_code;
}
