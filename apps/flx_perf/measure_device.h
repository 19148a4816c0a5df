/// \file measure_device.h
/// Times a collective of FLX on GPU memory, and NCCL's beside it.
#pragma once

#include "apps/bench/device_calls.h"
#include "apps/bench/links.h"
#include "apps/flx_perf/report.h"

namespace flx::bench::perf {

/// As Measurer::measure, for `Options::device`. `comm` and `links` are those of `calls`. Collective.
Result measure_device(const Options &options, DeviceCalls &calls, flx_comm_t comm, MPI_Comm mpi_comm,
                      LinkCounters &links, const Shape &shape);

}  // namespace flx::bench::perf
