/// \file replay.h
/// Plays a trace of arrivals, with rails bound to their ranks and with rails that are lent.
#pragma once

#include <mpi.h>

#include "apps/flx_lab/arrivals.h"

namespace flx::bench::lab {

/// Collective. Two communicators that differ in FLX_LEND carry the same messages in turn. Each rank serves its messages
/// in the order in which they arrive, one at a time; senders wait for an arrival, and what comes while they are busy
/// waits too. A rank on which FLX fails returns its status at once.
flx_status_t replay(const Options &options, MPI_Comm comm, ArrivalsResult &result);

}  // namespace flx::bench::lab
