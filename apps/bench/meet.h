/// \file meet.h
#pragma once

#include <mpi.h>

namespace flx::bench {

/// A barrier that leaves the cores to ranks which are still at work: who waits for more than a millisecond sleeps.
/// Collective; not for what must begin at the same time.
void meet(MPI_Comm comm);

}  // namespace flx::bench
