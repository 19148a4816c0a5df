/// \file overlap_measure.h
/// Measures a non-blocking collective beside a computation.
#pragma once

#include <mpi.h>

#include <functional>

#include "apps/flx_lab/overlap.h"

namespace flx::bench::lab {

/// Collective; all ranks get the same. `row` is called after each size. A rank on which FLX fails returns its status at
/// once; FLX_ERR_SYSTEM too where there is no memory for the buffers.
flx_status_t measure_overlap(const Options &options, flx_comm_t comm, MPI_Comm mpi, OverlapResults &results,
                             const std::function<void(const Overlap &)> &row);

}  // namespace flx::bench::lab
