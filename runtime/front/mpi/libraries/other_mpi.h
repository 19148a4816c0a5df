/// \file other_mpi.h
/// Programs of another MPI than the one that this library was built with: their handles and constants are others, and
/// what they call would be mistaken. Nothing of it can work.
#pragma once

namespace flx::preload {

/// Ends the process with a sentence if another MPI's library is loaded. Done when this library is loaded, and before
/// MPI_Init once more, as a program may load its MPI late. Any thread.
void refuse_other_mpi();

}  // namespace flx::preload
