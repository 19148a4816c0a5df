/// \file training.h
/// The training runs and what they came to.
#pragma once

#include <flx.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/flx_trainer/idx.h"
#include "apps/flx_trainer/options.h"

namespace flx::trainer {

/// One model's run, equal on all ranks.
struct Run {
    Backend backend = Backend::flx;
    std::vector<double> epoch_losses;   ///< mean over all samples of each epoch
    std::vector<double> step_losses;    ///< mean over each batch
    double reducing_s = 0.0;            ///< sum over steps of the slowest rank's time, all ranks starting together
    double waiting_s = 0.0;             ///< sum over steps of the ranks' mean wait for the last to arrive
    double accuracy = 0.0;              ///< on the test images, per cent
    std::vector<std::uint64_t> hashes;  ///< of all weights, one a rank, after epoch `hashes_epoch`
    std::size_t hashes_epoch = 0;       ///< the first after which they differed, else the last; counted from 0
    bool finite = true;                 ///< all weights of all ranks were numbers after every epoch
};

/// The same training on one rank, as far as it went.
struct Reference {
    std::vector<double> epoch_losses;
    std::vector<double> step_losses;
};

struct Outcome {
    std::vector<Run> runs;  ///< in the order of Options::backends
    Reference reference;    ///< filled on rank 0
    std::size_t parameters = 0;
    std::size_t buckets = 0;
    std::size_t steps_per_epoch = 0;
    double training_s = 0.0;
    double reference_s = 0.0;
    std::vector<LinkBytes> links;  ///< bytes that each link sent, over all ranks; empty without FLX
};

/// Trains one model for each of the options' backends, all from the same weights and over the same batches, step by
/// step in turn, so that what else the machine does hits both alike. Then rank 0 repeats the first epochs alone.
/// Collective over `mpi_comm`. `flx_comm` may be null where no backend is flx. False, with a sentence on rank 0, where
/// the log of iterations cannot be written.
bool train(const Options &options, const Dataset &dataset, MPI_Comm mpi_comm, flx_comm_t flx_comm, Outcome &outcome,
           std::string &error);

}  // namespace flx::trainer
