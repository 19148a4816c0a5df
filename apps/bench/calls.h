/// \file calls.h
/// The same job as one blocking call of FLX and as one of MPI.
#pragma once

#include "apps/bench/collectives.h"

namespace flx::bench {

/// `collective` of FLX with the job's arguments. Its status is the call's.
flx_status_t call_flx(const Job &job, flx_comm_t comm);

/// The same without waiting. FLX_ERR_ARGUMENT for sendrecv, which has no such form.
flx_status_t start_flx(const Job &job, flx_comm_t comm, flx_request_t *request);

/// Whether MPI has a collective for the job: types that it does not have are moved as 16-bit integers but not reduced,
/// averages it does not have, and counts are `int`. The reason where it has none, else null; static storage.
[[nodiscard]] const char *why_mpi_cannot(const Job &job);

/// The job's call of MPI. why_mpi_cannot(job) is null. Returns MPI's error code.
int call_mpi(const Job &job, MPI_Comm comm);

}  // namespace flx::bench
