/// \file request.h
/// What an flx_request_t points to. Belongs to the program, which frees it through a completion or flx_request_free;
/// the communicator's handle knows those that exist, so that a request may outlive it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/communicator/mirror.h"
#include "runtime/cuda/memory/mark.h"
#include "runtime/execute/pending.h"
#include "runtime/plan/operation.h"

struct flx_request {
    flx_comm *comm = nullptr;  ///< null: was freed
    flx::Call call;
    std::vector<size_t> numbers;  ///< the call's arrays
    flx::Pending *pending = nullptr;
    std::unique_ptr<flx::Mirror> mirror;   ///< of a call on GPU memory by way of host memory
    std::unique_ptr<flx::cuda::Mark> end;  ///< of one that GPUs carry out
    unsigned char unread = 0;              ///< a barrier's output
    bool persistent = false;
    bool active = false;    ///< issued, and not seen to be complete
    bool detached = false;  ///< the program has freed it, and it is still active
    flx::Status status;     ///< of one that has none in `pending`

    /// Copies the arrays of `call`, each of `size` numbers.
    void keep_arrays(int size);
};

namespace flx::api {

/// Waits for the requests of a communicator that is about to be freed, and lets go of them.
void release_requests(flx_comm &comm);

}  // namespace flx::api
