/// \file communicators.h
/// The communicators that the program made with NCCL, and FLX's side of each: how it comes to be, and how it ends.
/// Handles stay NCCL's own.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/front/nccl/agreement.h"
#include "runtime/front/nccl/engine.h"
#include "runtime/front/nccl/grouped.h"
#include "runtime/front/nccl/order.h"
#include "runtime/front/nccl/outputs.h"
#include "runtime/front/nccl/real.h"
#include "runtime/front/nccl/rendezvous.h"

namespace flx::nccl {

struct Communicator {
    enum class State : uint8_t {
        passive,    ///< all goes to NCCL, for `why`
        preparing,  ///< by a thread, of a communicator that does not block
        active      ///< FLX serves what it does better
    };

    ncclComm_t handle = nullptr;
    int rank = 0;
    int ranks = 1;
    int device = -1;  ///< negative: nothing was made on one
    std::string key;  ///< as key_of()
    std::atomic<unsigned> splits{0};
    std::atomic<unsigned> shrinks{0};
    std::atomic<State> state{State::passive};
    std::atomic<Reason> why{Reason::none};  ///< it is passive
    std::atomic<bool> suspended{false};     ///< by the program: whatever it calls now is for NCCL to judge

    std::mutex mutex;  ///< of what follows; calls on one communicator from several threads are the program's error, but
                       ///< for ncclCommGetAsyncError and ncclCommAbort
    std::shared_ptr<Lane> lane;
    std::unique_ptr<Bootstrap> bootstrap;
    std::unique_ptr<Agreement> agreement;
    std::unique_ptr<Outputs> outputs;
    Tables tables;
    Order order;
    Event last = nullptr;
    Event captured = nullptr;
    Event fork = nullptr;                  ///< within one operation
    std::array<cudaStream_t, 2> asides{};  ///< FLX's, beside NCCL's part of a group: now; in a capture
    Offer messages;                        ///< so far, per peer
    std::vector<std::pair<ncclWindow_t, std::pair<const char *, size_t>>> windows;  ///< symmetric ones
    cuda::GraphUse graphs;              ///< of its events and streams, by calls of it, whoever has them
    bool closed = false;                ///< by all ranks in good order, so that graphs are replayed no more
    Status failure;                     ///< that ended FLX's part
    std::thread preparation;            ///< with the mutex: who frees it may come before it is noted here
    std::atomic<bool> prepares{false};  ///< that thread, or the program's, makes it or closes it
    std::atomic<bool> stop{false};      ///< the preparation is to end

    /// What an abort ends, which takes no other mutex than this one: it is held for moments.
    struct Ends {
        std::mutex mutex;  ///< also of what makes the communicator active, which it is never again after an abort
        std::shared_ptr<Lane> lane;
        std::shared_ptr<Rendezvous> rendezvous;
        bool over = false;
    } ends;

    [[nodiscard]] bool active() const { return state.load(std::memory_order_acquire) == State::active; }
    /// Whether FLX may be given a call. With the mutex.
    [[nodiscard]] bool serves() const { return active() && lane != nullptr; }
    /// From now on it is, unless abandon() came before.
    bool activate();
    /// After abandon(). Any thread.
    [[nodiscard]] bool over();

    /// Before an operation on the stream, whoever carries it out; then after it. With the mutex.
    Status before(cudaStream_t stream);
    /// For another stream of the same operation, a group's.
    Status before_also(cudaStream_t stream);
    Status after(cudaStream_t stream);
    /// Between the two: FLX's part becomes part of a graph, if the stream is being captured.
    Status note_capture(cudaStream_t stream);
    /// After before(): FLX's own stream for a part of that operation.
    [[nodiscard]] cudaStream_t aside() const { return asides[steps_.external ? 1 : 0]; }
    /// Whether a buffer of the call lies in a symmetric window.
    [[nodiscard]] bool in_window(const Request &request) const;
    /// Whether it takes longer here than what was measured. With the mutex.
    [[nodiscard]] bool slows(const Request &request, bool met) const;
    /// Carries it out by FLX; `met`: straight into the outputs that ranks have shown. With the mutex.
    ncclResult_t serve(const Request &request, cudaStream_t stream, bool met);
    /// NCCL's code for FLX's failure, which the thread's last words say. With the mutex.
    ncclResult_t fail_with(Status status);
    /// Has a lane from now on, that abandon() ends; one that comes too late is ended at once. With the mutex, or where
    /// no other thread has calls yet.
    void use(std::unique_ptr<Lane> made);
    /// abandon() leaves the lane alone from now on.
    void withhold();
    void meet_at(std::shared_ptr<Rendezvous> place);
    [[nodiscard]] std::shared_ptr<Rendezvous> place();
    /// FLX's part ends without its peers: nothing on this GPU waits for them any more. Any thread; waits for nothing.
    void abandon(Reason reason);
    /// False: it was revoked meanwhile and freed. Else try_free() leaves it alone until `prepares` is false again.
    bool begin_closing();
    /// Frees all that FLX has for it, if nothing uses it any more. Waits for nothing.
    bool try_free();

  private:
    /// Not where it was freed meanwhile.
    [[nodiscard]] Status usable() const;

    Order::Steps steps_;
};

/// After abandon(): a thread frees what FLX has for it, as soon as that can be. Calls no function of CUDA.
void free_later(const std::shared_ptr<Communicator> &comm);

/// NCCL's code for what FLX came to.
ncclResult_t code_of(const Status &status);

/// A communicator that is being made: from before NCCL makes it until FLX has made its side.
class Creation {
  public:
    /// `handle`: where NCCL will put it. `key`: as key_of(); empty: of a communicator that FLX does not know. `config`:
    /// the program's, or null.
    Creation(ncclComm_t *handle, std::string key, const ncclConfig_t *config);
    /// Once NCCL has given it a handle: known from now on, and being prepared. Null where there is none.
    std::shared_ptr<Communicator> begin();
    /// Once NCCL has made it, or has not, as `result` says: whether FLX may serve it. True on all ranks, or on none.
    bool admit(Communicator &comm, ncclResult_t result);

  private:
    ncclComm_t *handle_;
    std::string key_;
    bool newer_;  ///< the program may call what FLX does not know
    std::shared_ptr<Rendezvous> rendezvous_;
    Status failure_;
};

/// Finishes those that NCCL has made, together, since ranks that one thread made wait for each other. Where NCCL is not
/// done yet, a thread does it when it is.
void finish_all(std::vector<Creation> creations, ncclResult_t result);

/// Null: not known. Thread-safe.
std::shared_ptr<Communicator> find(ncclComm_t handle);
/// The program destroys it: FLX's side is closed when all ranks of this process were given up.
void retire(ncclComm_t handle);
/// The program aborts it.
void abort(ncclComm_t handle);

}  // namespace flx::nccl
