/// \file machine.h
/// What the figures were measured on, and which settings were not the defaults.
#pragma once

#include <flx.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace flx::bench {

struct Machine {
    std::string text;  ///< one line: host, CPU, ranks
    int ranks = 0;
    int hosts = 0;
    std::string mpi;                        ///< the peer library's own version line: MPI's or NCCL's
    std::vector<std::string> mpi_settings;  ///< `NAME=value`; empty: all defaults
    std::vector<std::string> flx_settings;
};

/// Collective over `comm`; what is local is rank 0's.
[[nodiscard]] Machine describe_machine(MPI_Comm comm);

/// With which all files of results begin: machine, ranks, hosts, settings, and which `mode` of measuring it was.
[[nodiscard]] nlohmann::ordered_json head_of(const Machine &machine, const std::string &mode);

/// `NAME=value NAME=value`, or that all are default.
[[nodiscard]] std::string settings_text(const std::vector<std::string> &settings);

/// Of `NAME=value` strings those that a person set for MPI (Open MPI's, MPICH's and UCX's variables), without the ones
/// that mpirun sets for its own purposes. Sorted.
[[nodiscard]] std::vector<std::string> mpi_settings_of(const std::vector<std::string> &environment);

}  // namespace flx::bench
