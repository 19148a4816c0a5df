/// \file measure.h
/// How fast FLX and NCCL are, on this communicator's GPUs, when it is made.
#pragma once

#include <functional>

#include "runtime/front/nccl/engine.h"
#include "runtime/front/nccl/routing.h"
#include "runtime/link/bootstrap.h"

namespace flx::nccl {

/// Collective: the same tables on all ranks. Between the same GPUs only the first communicator is measured, as all that
/// are made later have its tables. A rank that has no memory for it, or where a call fails, leaves all sizes that it
/// could not measure to NCCL. `around` does what calls do around the operation itself, whoever carries it out. Once
/// `over` is true NCCL is called no more. Takes some tenths of a second.
using Around = std::function<Status(cudaStream_t, const std::function<Status()> &)>;
Status measure(Engine &engine, Bootstrap &bootstrap, Lane &lane, ncclComm_t comm, int device, const Around &around,
               const std::function<bool()> &over, Tables &tables);

}  // namespace flx::nccl
