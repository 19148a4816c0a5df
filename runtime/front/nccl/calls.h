/// \file calls.h
/// A call on its way: at once to FLX or NCCL, or kept until the end of its group.
#pragma once

#include <vector>

#include "runtime/front/nccl/communicators.h"

namespace flx::nccl {

/// Any collective, send or receive.
ncclResult_t submit(const Request &request, ncclComm_t handle, cudaStream_t stream);

/// NCCL's form of a request, carried out by NCCL.
ncclResult_t pass_on(const Request &request, ncclComm_t comm, cudaStream_t stream);

/// Whether this thread is in a group.
bool in_group();
/// A communicator that the group makes is finished at its end.
void add_to_group(Creation creation);

}  // namespace flx::nccl
