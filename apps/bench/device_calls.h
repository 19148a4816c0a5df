/// \file device_calls.h
/// Runs a collective of FLX on GPU memory, and NCCL's beside it, and times both.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "apps/bench/links.h"
#include "apps/flx_perf/beside.h"
#include "apps/flx_perf/load.h"
#include "apps/flx_perf/report.h"

namespace flx::bench::perf {

/// As Measurer, for `Options::device`. A call that fails ends the program with its sentence.
class DeviceMeasurer {
  public:
    DeviceMeasurer() = default;
    DeviceMeasurer(const DeviceMeasurer &) = delete;
    DeviceMeasurer &operator=(const DeviceMeasurer &) = delete;
    virtual ~DeviceMeasurer() = default;

    virtual Result measure(const Shape &shape, const std::function<void(double)> &done) = 0;
    /// The same, while matrix products run on another stream; with FLX, with FLX where it spares multiprocessors, and
    /// with NCCL.
    virtual Beside beside(const Shape &shape) = 0;
    [[nodiscard]] virtual double product_flops() const = 0;
    /// While copies between host and GPUs begin and end.
    virtual UnderLoad under_load(const Shape &shape) = 0;
    /// For the header: GPUs, and NCCL with its settings.
    virtual void describe(Machine &machine) const = 0;
};

/// Makes this rank's GPU, the one of its place among the ranks of its host, the current device. Before the communicator
/// is made. Why not, or an empty text.
std::string take_device(MPI_Comm mpi_comm);

/// Collective; null, and why on all ranks, where a rank lacks what it needs. References must outlive the result.
std::unique_ptr<DeviceMeasurer> make_device_measurer(const Options &options, flx_comm_t flx_comm, MPI_Comm mpi_comm,
                                                     LinkCounters &links, std::string &why);

}  // namespace flx::bench::perf
