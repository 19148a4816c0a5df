/// \file grouped.h
/// What a group's calls on one communicator amount to: one collective, an all-to-all made of sends and receives, or
/// several: messages, of which FLX may carry some, and collectives for NCCL to carry out as one. Pure.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/front/nccl/routing.h"

namespace flx::nccl {

/// A copy of what a program said for one call: it may take its own away before the group ends, but for what `ext`
/// leads to, which NCCL asks it to keep.
class KeptConfig {
  public:
    explicit KeptConfig(const ncclCollConfig_t *config);
    /// NCCL's to judge, where it is none that NCCL would take.
    [[nodiscard]] const ncclCollConfig_t *get() const;

  private:
    const ncclCollConfig_t *theirs_;
    std::vector<char> bytes_;
    std::string algorithm_;
};

/// A call that waits for the end of its group.
struct Deferred {
    Request request;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::shared_ptr<const KeptConfig> config = nullptr;  ///< what the request's points to
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
