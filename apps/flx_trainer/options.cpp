#include "apps/flx_trainer/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <sstream>

namespace flx::trainer {

std::optional<Options> parse_options(int argc, char **argv, bool speaks, int &exit_code) {
    Options options;
    std::string reduce = "both";
    CLI::App app(
        "Trains a small network on Fashion-MNIST, data-parallel over the ranks of mpirun, with gradients reduced by "
        "FLX, and checks the outcome against MPI_Allreduce and against one rank.",
        "flx_trainer");
    app.add_option("--data", options.data, "Folder of the four .gz files")->capture_default_str();
    app.add_option("--epochs", options.epochs, "Passes over the training samples")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_option("--batch", options.batch, "Samples of one step over all ranks")
        ->check(CLI::Range(1, 60000))
        ->capture_default_str();
    app.add_option("--bucket-bytes", options.bucket_bytes, "Bytes of gradients that one call reduces (64K, 1M, ...)")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::size_t{4}, std::size_t{1} << 30))
        ->capture_default_str();
    app.add_option("--lr", options.rate, "Highest learning rate; it rises over 5 % of the steps, then falls to 0")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    app.add_option("--momentum", options.momentum, "Of the gradient descent")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--seed", options.seed, "Of the first weights and of the samples' order")->capture_default_str();
    app.add_option("--limit", options.limit, "Use the first N training samples only")
        ->check(CLI::Range(1, 60000))
        ->default_str("all");
    app.add_option("--reduce", reduce, "What adds the gradients; both: two models, step by step in turn")
        ->check(CLI::IsMember({"flx", "mpi", "both"}))
        ->capture_default_str();
    app.add_option("--reference-epochs", options.reference_epochs,
                   "Epochs that rank 0 repeats alone to compare losses; 0: none")
        ->capture_default_str();
    app.add_option("--loss-tolerance", options.loss_tolerance,
                   "Most that an epoch's mean loss may differ from one rank's")
        ->capture_default_str();
    app.add_option("--min-accuracy", options.min_accuracy, "Least test accuracy in per cent")->capture_default_str();
    const std::map<std::string, Corruption::When> whens = {
        {"none", Corruption::When::never}, {"before", Corruption::When::before}, {"after", Corruption::When::after}};
    app.add_option("--corrupt", options.corruption.when,
                   "Damage one chunk of one rank's gradients before or after they are added, to see the checks fail")
        ->transform(CLI::CheckedTransformer(whens).description("{none,before,after}"))
        ->default_str("none");
    app.add_option("--corrupt-rank", options.corruption.rank, "The rank that does it")->capture_default_str();
    app.add_option("--corrupt-step", options.corruption.step, "The step, counted from 0")
        ->default_str("last of the first epoch");
    app.add_option("--json", options.json, "Write the outcome to this file");
    app.add_option("--log-iterations", options.iterations, "Write one CSV line a step to this file");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        std::ostringstream out;
        std::ostringstream err;
        exit_code = app.exit(error, out, err);
        if (speaks) {
            std::cout << out.str() << std::flush;
            std::cerr << err.str() << std::flush;
        }
        return std::nullopt;
    }
    if (reduce == "flx") {
        options.backends = {Backend::flx};
    } else if (reduce == "mpi") {
        options.backends = {Backend::mpi};
    }
    return options;
}

}  // namespace flx::trainer
