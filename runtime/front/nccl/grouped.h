/// \file grouped.h
/// What a group's calls on one communicator amount to: one collective, an all-to-all made of sends and receives, or
/// several: messages, of which FLX may carry some, and collectives for NCCL to carry out as one. Pure.
#pragma once

#include <array>
#include <vector>

#include "runtime/front/nccl/routing.h"

namespace flx::nccl {

/// A call that waits for the end of its group.
struct Deferred {
    Request request;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
};

/// Calls of one communicator in one group.
struct Gathered {
    enum class Form : uint8_t {
        single,    ///< one collective
        alltoall,  ///< sends and receives that are an all-to-all as far as this rank can see: `whole` is it
        several    ///< anything else
    };
    Form form = Form::several;
    Reason why = Reason::grouped;  ///< several: of collectives among them
    Request whole;                 ///< single: the call itself
};

/// `calls`: of one communicator, not empty, in order.
Gathered gather(const std::vector<const Deferred *> &calls, int ranks);

}  // namespace flx::nccl
