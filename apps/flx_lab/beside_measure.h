/// \file beside_measure.h
/// Measures collectives on GPUs beside matrix products.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/device_calls.h"
#include "apps/flx_lab/beside.h"

namespace flx::bench::lab {

/// With FLX, with FLX where it spares multiprocessors, and with NCCL where it was asked for. A call that fails ends the
/// program with its sentence.
class BesideMeasurer {
  public:
    /// Collective; null, and why on all ranks, where a rank lacks what it needs. References must outlive the result.
    static std::unique_ptr<BesideMeasurer> make(const Options &options, DeviceCalls &calls, flx_comm_t comm,
                                                MPI_Comm mpi_comm, std::string &why);
    BesideMeasurer() = default;
    BesideMeasurer(const BesideMeasurer &) = delete;
    BesideMeasurer &operator=(const BesideMeasurer &) = delete;
    virtual ~BesideMeasurer() = default;

    /// Collective.
    virtual Beside measure(const Shape &shape) = 0;
    /// Of one product.
    [[nodiscard]] virtual double flops() const = 0;
};

}  // namespace flx::bench::lab
