/// \file requests.h
/// Operations of FLX behind MPI's own requests, so that they work in every MPI_Wait and MPI_Test.
///
/// One that does not block is a generalized request, completed when FLX's operation has ended. A persistent one is a
/// persistent receive of no bytes on a communicator of this process alone: MPI_Start, which is taken over, begins
/// FLX's operation with it, and a message to itself ends it. Both move in MPI's progress loop, where the library has a
/// function: on whatever thread is inside MPI.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/front/mpi/arguments/staging.h"
#include "runtime/front/mpi/communicators.h"
#include "runtime/include/flx.h"

namespace flx::preload {

/// One that does not block. It is FLX's, or MPI's on mirrors of what MPI cannot read on a GPU.
struct Operation {
    Group *group = nullptr;  ///< null: it is MPI's
    flx_request_t request = FLX_REQUEST_NULL;
    MPI_Request mpi = MPI_REQUEST_NULL;
    Staging staging;
    MPI_Request handle = MPI_REQUEST_NULL;  ///< the program's
    bool persistent = false;
    bool active = false;  ///< of a persistent one
    int tag = 0;          ///< of a persistent one
    int code = MPI_SUCCESS;
};

class Requests {
  public:
    static Requests &instance();

    /// Called in MPI_Init. False where this MPI has no progress loop to which functions can be added.
    bool begin();
    /// Called in MPI_Finalize, when nothing is under way any more.
    void end();

    /// The operation was begun (or, if it is persistent, made): the program's request for it. MPI's code.
    int hand_out(std::unique_ptr<Operation> operation, MPI_Request *handle);

    /// MPI_Start and MPI_Request_free: true if `*handle` is a persistent operation of FLX, and it is done; then `code`
    /// is what the call returns.
    bool start(MPI_Request *handle, int &code);
    bool free(MPI_Request *handle, int &code);
    [[nodiscard]] size_t live_persistent() const { return live_persistent_.load(std::memory_order_relaxed); }

    /// Waits for all of `group`, whose communicator of FLX ends.
    void finish(Group *group);
    /// Replaces `from` by `to` in all active operations.
    void move(Group *from, Group *to);

  private:
    Requests() = default;
    static int progress();
    static int begin_again(Operation &operation);
    static void give_up(Operation &operation);
    int turn();
    bool is_done(Operation &operation, int &code, bool &looked);
    void complete(Operation *operation, int code);
    int join_loop();

    std::mutex mutex_;  ///< of the lists; not waited for in progress()
    std::vector<Operation *> active_;
    size_t next_ = 0;  ///< in `active_`
    std::unordered_map<MPI_Request, std::unique_ptr<Operation>> persistent_;
    MPI_Comm self_ = MPI_COMM_NULL;
    int next_tag_ = 0;
    std::atomic<size_t> live_persistent_{0};
    std::atomic<size_t> live_active_{0};
    void *register_ = nullptr;  ///< MPI's functions that add to its progress loop, and take away
    void *unregister_ = nullptr;
    bool in_loop_ = false;
};

}  // namespace flx::preload
