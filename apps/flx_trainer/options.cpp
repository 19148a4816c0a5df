#include "apps/flx_trainer/options.h"

#include "apps/common/command_line.h"

namespace flx::trainer {

std::optional<Options> parse_options(int argc, char **argv, bool speaks, int &exit_code) {
    Options options;
    std::string reduce = "both";
    apps::CommandLine line(
        "flx_trainer",
        "Trains a small network on Fashion-MNIST, data-parallel over the ranks of mpirun, with gradients reduced by "
        "FLX, and checks the outcome against MPI_Allreduce and against one rank.");
    line.option("--data", options.data, "Folder of the four .gz files").shows_default();
    line.option("--epochs", options.epochs, "Passes over the training samples").in_range(1, 1000).shows_default();
    line.option("--batch", options.batch, "Samples of one step over all ranks").in_range(1, 60000).shows_default();
    line.option("--bucket-bytes", options.bucket_bytes, "Bytes of gradients that one call reduces (64K, 1M, ...)")
        .as_size()
        .in_range(std::size_t{4}, std::size_t{1} << 30)
        .shows_default();
    line.option("--lr", options.rate, "Highest learning rate; it rises over 5 % of the steps, then falls to 0")
        .in_range(0.0, 100.0)
        .shows_default();
    line.option("--momentum", options.momentum, "Of the gradient descent").in_range(0.0, 1.0).shows_default();
    line.option("--seed", options.seed, "Of the first weights and of the samples' order").shows_default();
    line.option("--limit", options.limit, "Use the first N training samples only")
        .in_range(1, 60000)
        .shows_default("all");
    line.option("--reduce", reduce, "What adds the gradients; both: two models, step by step in turn")
        .one_of({"flx", "mpi", "both"})
        .shows_default();
    line.option("--reference-epochs", options.reference_epochs,
                "Epochs that rank 0 repeats alone to compare losses; 0: none")
        .shows_default();
    line.option("--loss-tolerance", options.loss_tolerance, "Most that an epoch's mean loss may differ from one rank's")
        .shows_default();
    line.option("--min-accuracy", options.min_accuracy, "Least test accuracy in per cent").shows_default();
    std::string corrupt = "none";
    line.option("--corrupt", corrupt,
                "Damage one chunk of one rank's gradients before or after they are added, to see the checks fail")
        .one_of({"none", "before", "after"})
        .shows_default();
    line.option("--corrupt-rank", options.corruption.rank, "The rank that does it").shows_default();
    line.option("--corrupt-step", options.corruption.step, "The step, counted from 0")
        .shows_default("last of the first epoch");
    line.option("--json", options.json, "Write the outcome to this file");
    line.option("--log-iterations", options.iterations, "Write one CSV line a step to this file");

    if (!line.parse(argc, argv)) {
        exit_code = speaks ? line.say() : line.exit_code();
        return std::nullopt;
    }
    options.corruption.when = corrupt == "before"  ? Corruption::When::before
                              : corrupt == "after" ? Corruption::When::after
                                                   : Corruption::When::never;
    if (reduce == "flx") {
        options.backends = {Backend::flx};
    } else if (reduce == "mpi") {
        options.backends = {Backend::mpi};
    }
    return options;
}

}  // namespace flx::trainer
