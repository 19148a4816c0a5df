/// \file load_measure.h
/// Measures collectives on GPUs while copies between host and GPUs begin and end.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/device_calls.h"
#include "apps/bench/links.h"
#include "apps/flx_lab/load.h"

namespace flx::bench::lab {

/// A call that fails ends the program with its sentence.
class LoadMeasurer {
  public:
    /// Collective; null, and why on all ranks, where a rank lacks what it needs. References must outlive the result.
    static std::unique_ptr<LoadMeasurer> make(const Options &options, DeviceCalls &calls, flx_comm_t comm,
                                              MPI_Comm mpi_comm, LinkCounters &links, std::string &why);
    LoadMeasurer() = default;
    LoadMeasurer(const LoadMeasurer &) = delete;
    LoadMeasurer &operator=(const LoadMeasurer &) = delete;
    virtual ~LoadMeasurer() = default;

    /// Collective.
    virtual UnderLoad measure(const Shape &shape) = 0;
};

}  // namespace flx::bench::lab
