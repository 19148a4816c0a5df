/// \file posting.h
/// Sends and receives of one group that FLX carries out: all at once, beside what NCCL carries out of the group.
///
/// The peer of a message may have it in a group with others than this rank has. So neither part of a group may wait for
/// the other, or ranks could wait in a circle: where NCCL has a part too, FLX's runs on a stream of its own, which
/// begins where the group does, and the group ends when both have.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cuda/protocol/mailbox.h"
#include "runtime/front/nccl/grouped.h"

namespace flx::nccl {

struct Communicator;

/// What FLX carries out of calls of one communicator, and what NCCL does, and why.
struct Divided {
    struct Passed {
        const Deferred *call = nullptr;
        Reason why = Reason::none;
    };
    std::vector<const Deferred *> posted;
    std::vector<Passed> passed;
};
/// `route`: for a message to another rank. Messages to `rank` itself go with the others that FLX carries, if there are
/// any. Both in an order that keeps those of each pair of ranks.
Divided divide(const std::vector<const Deferred *> &calls, int rank, Reason collectives,
               const std::function<Reason(const Request &)> &route);

/// As many as FLX takes at once; one such round after the other. Each has the same number for every pair of ranks, so
/// that rounds of both ends meet.
std::vector<std::vector<cuda::Message>> rounds_of(const std::vector<cuda::Message> &messages, size_t most);

/// One group's, of one communicator. Each step with the communicator's mutex, after its before() for all streams.
class Posting {
  public:
    /// `first`: the stream whose end is the operation's. `beside`: NCCL has a part of the group.
    Posting(Communicator &comm, const std::vector<const Deferred *> &calls, cudaStream_t first, bool beside);
    /// Before NCCL's part is put on the streams.
    Status begin();
    /// After it has been: NCCL may have to meet its peers for that, while nothing of this group waits on the GPU.
    Status end();

  private:
    Communicator &comm_;
    cudaStream_t runner_;
    std::vector<cudaStream_t> others_;
    std::vector<cuda::Message> messages_;
};

}  // namespace flx::nccl
