/// \file passed_on.h
/// What the names of non-blocking and persistent collectives share, in C and in Fortran.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "collectives.h"

namespace flx::preload {

/// Of `count` elements; 0 where MPI will find fault with the arguments.
size_t bytes_of(int64_t count, MPI_Datatype type);
/// Over the ranks of `comm`; 0 for an intercommunicator.
int64_t total_of(const int *counts, MPI_Comm comm);
/// Why a call that does not block goes to MPI.
Reason reason_to_pass(Collective collective, MPI_Comm comm);

/// Counts a call that goes to MPI because it does not block. A persistent one counts when it is made. `bytes` is a
/// function: it is asked only where its arguments mean something, which between groups depends on the rank.
template <typename Bytes>
void pass_on(Collective collective, Form form, MPI_Comm comm, Bytes &&bytes) {
    const Reason why = reason_to_pass(collective, comm);
    statistics().count(collective, form, why, why == Reason::not_blocking ? bytes() : 0);
}

}  // namespace flx::preload
