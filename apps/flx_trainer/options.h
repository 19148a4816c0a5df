/// \file options.h
/// The command line of flx_trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "apps/flx_trainer/exchange.h"

namespace flx::trainer {

/// As Corruption::step: weights are compared right after it, while the damage is still one rank's alone.
constexpr std::size_t kLastOfFirstEpoch = std::numeric_limits<std::size_t>::max();

struct Options {
    std::string data = "/usr/share/datasets/fashion-mnist";
    std::size_t epochs = 10;
    std::size_t batch = 512;  ///< samples over all ranks
    std::size_t bucket_bytes = 256 * 1024;
    double rate = 0.03;
    double momentum = 0.9;
    std::uint64_t seed = 1;
    std::size_t limit = std::numeric_limits<std::size_t>::max();  ///< training samples used
    std::size_t reference_epochs = 2;
    double min_accuracy = 87.0;  ///< per cent
    double loss_tolerance = 1e-3;
    std::vector<Backend> backends = {Backend::flx, Backend::mpi};
    Corruption corruption{Corruption::When::never, 1, kLastOfFirstEpoch};
    std::string json;
    std::string iterations;
};

/// Reads the command line. Without a value the program ends with `exit_code`; what there is to say (help, or what is
/// wrong) has been printed where `speaks` is true.
std::optional<Options> parse_options(int argc, char **argv, bool speaks, int &exit_code);

}  // namespace flx::trainer
