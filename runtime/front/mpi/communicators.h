/// \file communicators.h
/// FLX's communicators behind the program's: made at the first call that FLX serves and that may wait for the other
/// ranks, kept as an attribute, used again after the program has freed its own.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/front/mpi/routing/collectives.h"
#include "runtime/front/mpi/routing/habits.h"
#include "runtime/front/mpi/routing/routes.h"
#include "runtime/front/mpi/routing/tuning_cache.h"
#include "runtime/front/mpi/seen.h"
#include "runtime/include/flx.h"

namespace flx::preload {

/// What the library knows of one of the program's communicators. Lives as long as that.
struct Group {
    flx_comm_t flx = nullptr;
    Reason why_not = Reason::none;  ///< where `flx` is null
    int rank = 0;
    int size = 1;
    /// One number on all ranks, unique in each of them: the order in which communicators are freed.
    uint64_t id = 0;
    std::vector<int> members;  ///< ranks in MPI_COMM_WORLD
    bool broken = false;
    uint64_t calls = 0;   ///< that this rank took part in, of those that block
    uint64_t tidied = 0;  ///< `calls` when it tidied up last
    std::mutex mutex;     ///< held during a call: under MPI_THREAD_MULTIPLE others may follow from other threads
    std::atomic<const void *> holder{nullptr};  ///< the thread that holds it
    std::vector<size_t> numbers;                ///< counts and displacements of the current call
    std::unique_ptr<Routes> routes;             ///< where FLX and MPI are compared, from the first call on
    Shape shape;                                ///< once `routes` are introduced
    double agreement_s = Routes::kAgreementS;   ///< the least that an agreement on who is faster took
    std::unique_ptr<Habits> habits;             ///< where GPUs may be, from the first call that FLX might serve on
    enum class OnGpus : uint8_t { not_tried, works, fails };
    SeenComm seen;                                   ///< what others see of the calls that MPI gets
    OnGpus collectives_on_gpus = OnGpus::not_tried;  ///< FLX's, with this communicator; the same on all ranks
};

/// Holds a communicator during a call of FLX.
class Occupied {
  public:
    explicit Occupied(Group &group) : group_(group) {
        group_.mutex.lock();
        group_.holder.store(this_thread(), std::memory_order_relaxed);
    }
    ~Occupied() {
        group_.holder.store(nullptr, std::memory_order_relaxed);
        group_.mutex.unlock();
    }
    Occupied(const Occupied &) = delete;
    Occupied &operator=(const Occupied &) = delete;
    static const void *this_thread() {
        static thread_local char mark;
        return &mark;
    }

  private:
    Group &group_;
};

/// Holds it if no thread does, this one included.
class Attempt {
  public:
    explicit Attempt(Group &group) : group_(group) {
        if (group_.holder.load(std::memory_order_relaxed) == Occupied::this_thread() || !group_.mutex.try_lock())
            return;
        group_.holder.store(Occupied::this_thread(), std::memory_order_relaxed);
        succeeded_ = true;
    }
    ~Attempt() {
        if (!succeeded_)
            return;
        group_.holder.store(nullptr, std::memory_order_relaxed);
        group_.mutex.unlock();
    }
    Attempt(const Attempt &) = delete;
    Attempt &operator=(const Attempt &) = delete;
    [[nodiscard]] bool succeeded() const { return succeeded_; }

  private:
    Group &group_;
    bool succeeded_ = false;
};

/// The library's one state. It begins in MPI_Init and ends when MPI_Finalize deletes MPI_COMM_SELF's attributes.
class Library {
  public:
    static Library &instance();

    /// Called after MPI_Init, on all ranks. Wrong knobs end the program.
    void begin();

    [[nodiscard]] bool chosen(Collective collective) const {
        return (choice_.mask >> static_cast<int>(collective) & 1) != 0;
    }
    /// Whether calls go to whom is measured to be faster.
    [[nodiscard]] bool automatic() const { return choice_.automatic; }

    /// What serves calls of `form` on `comm`, which is a communicator of MPI's. Null: none does, and `why` says why.
    /// Where there is nothing yet, it is made, collectively, unless the call does not block: MPI lets no such call wait
    /// for other ranks, which may wait for what this one does next. (It does let the making of a persistent one.) All
    /// ranks decide alike, as they make the collective calls on a communicator in one order.
    Group *group_of(MPI_Comm comm, Form form, Reason &why);

    /// The same for a call that blocks, where FLX and MPI are compared. `asked` is the communicator's own, also where
    /// MPI gets the call: its routes must be told of it. Null where they need not.
    Group *faster_group_of(MPI_Comm comm, CallClass which, Reason &why, Group *&asked);
    /// And for one that does not block: FLX's only where it was faster in calls that do.
    Group *settled_group_of(MPI_Comm comm, CallClass which, Reason &why);

    /// What others see of the calls of `comm` that MPI gets. Null: MPI does not know it, or has not begun, or is over.
    SeenComm *seen(MPI_Comm comm);
    /// The program had MPI make it; may be null.
    void note_made(MPI_Comm comm);

    /// Whether group_of() would serve such a call, as far as this rank knows; nothing is made.
    bool serves(MPI_Comm comm, Form form);

    /// The same for one persistent operation alone, since MPI lets programs start such in an order of their own on each
    /// rank. Always made, collectively; dismiss() ends it. None where some of `memory` is a GPU's on any rank, and MPI
    /// takes it.
    Group *group_of_its_own(MPI_Comm comm, Memory memory, Reason &why);
    /// Its communicator is freed. The ranks need not do so at the same time, so nothing is waited for here.
    void dismiss(Group *group);

    /// Whether any rank may have a GPU; the same on all ranks. Where none has, all memory is a host's.
    [[nodiscard]] bool has_gpus() const { return has_gpus_; }
    /// Whether MPI's collectives take GPU memory; the same on all ranks.
    [[nodiscard]] bool mpi_takes_gpus() const { return mpi_takes_gpus_; }
    /// The group of `comm`, if there is one that has a communicator of FLX's. Nothing is made.
    Group *made_group(MPI_Comm comm);
    /// Whether the data of a call of `which` are taken to be on GPUs. If it blocks, the ranks of `comm` may agree on
    /// that now; `memory` is where this rank's are.
    bool on_gpus(MPI_Comm comm, Group &group, CallClass which, Form form, Memory memory);
    /// Whether FLX has collectives on GPUs with that communicator. Collective the first time.
    bool serves_gpus(MPI_Comm comm, Group &group);

    /// Whether operations that do not block can have requests of MPI's; the same on all ranks.
    [[nodiscard]] bool has_requests() const { return has_requests_; }

    /// Whether FLX calls reductions of the program's; the same on all ranks. Not where a progress thread would, under
    /// a program that has not asked for MPI_THREAD_MULTIPLE.
    [[nodiscard]] bool calls_functions() const { return calls_functions_; }

    /// Collective. Frees FLX's communicators of long ago, if they have become many. `group` is that of `comm`.
    void tidy(MPI_Comm comm, const Group &group);

  private:
    Library() = default;

    void end();
    Group *find_or_attach(MPI_Comm comm, Reason &why);
    Group *attach(MPI_Comm comm);
    bool opens_gpus(MPI_Comm comm, Group &group);
    void obtain_group(MPI_Comm comm, Group &group);
    void ask(MPI_Comm comm, Group &group);
    void introduce(MPI_Comm comm, Group &group);
    void compare(MPI_Comm comm, Group &group, CallClass which);
    TuningCache &cache();
    void retire(Group &group);
    double price_of(const Group &group);
    struct Reusable;
    Reusable find_reusable(const std::vector<int> &members);
    void make_group(MPI_Comm comm, Group &group);
    bool agree_on_id(MPI_Comm comm, bool made, uint64_t &id);
    void free_surplus(MPI_Comm comm, const Group &group);
    void keep(Group *spare);
    static int on_delete(MPI_Comm comm, int keyval, void *value, void *extra);
    static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra);

    Choice choice_;
    bool stats_ = false;
    std::string cache_folder_;
    std::string knobs_;    ///< that times depend on
    std::string host_id_;  ///< what FLX takes for this host, if it is told
    double deadline_s_ = 0;
    bool threads_ = false;
    bool has_requests_ = false;
    bool has_gpus_ = false;
    bool mpi_takes_gpus_ = false;
    bool calls_functions_ = false;
    std::atomic<int> keyval_{MPI_KEYVAL_INVALID};
    std::atomic<uint64_t> freed_{1};  ///< how many of the program's communicators were freed
    std::atomic<bool> begun_{false};
    std::atomic<bool> over_{false};
    std::mutex mutex_;  ///< of what follows; never held during communication
    uint64_t next_id_ = 1;
    std::vector<Group *> live_;   ///< those that have a communicator of FLX's
    std::set<Group *> routed_;    ///< those that have routes
    std::vector<Group *> spare_;  ///< their communicators were freed; by id
    std::unique_ptr<TuningCache> cache_;
    bool warned_ = false;
    bool warned_of_gpus_ = false;
};

/// The greatest of each number over all ranks of `comm`. Collective.
template <size_t N>
void agree_greatest(MPI_Comm comm, std::array<int64_t, N> &numbers) {
    PMPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(N), MPI_INT64_T, MPI_MAX, comm);
}

/// Turns FLX's status into what the call returns: MPI_SUCCESS, or what the communicator's error handler makes of an MPI
/// error whose string is FLX's sentence.
int finish(flx_status_t status, Group &group, MPI_Comm comm);
/// The same error without the handler.
int code_of(flx_status_t status, Group &group);

}  // namespace flx::preload
