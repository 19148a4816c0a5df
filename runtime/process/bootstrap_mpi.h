/// \file bootstrap_mpi.h
/// The default bootstrap, and the only place in the core that calls MPI, through mpi_part.h. runtime/api/comm.cpp makes
/// it.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>

#include "runtime/link/bootstrap.h"

namespace flx {

/// A bootstrap with the ranks of `comm`, which is duplicated. Collective over `comm`; `meanwhile` as in
/// Bootstrap::meet. FLX_ERR_ARGUMENT where MPI is not initialised, is finalised, or `comm` is null or an
/// intercommunicator.
Status make_mpi_bootstrap(MPI_Comm comm, const std::function<Status()> &meanwhile, std::unique_ptr<Bootstrap> &result);

/// Whether the program may call MPI from several threads at once. After make_mpi_bootstrap.
bool mpi_allows_threads();

}  // namespace flx
