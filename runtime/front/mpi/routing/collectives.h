/// \file collectives.h
/// What the drop-in library takes over from MPI: the collectives by name, which of them the user wants served, and what
/// became of each call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace flx::preload {

class Routes;

/// The collectives, in the order of their names below.
enum class Collective {
    allgather,
    allgatherv,
    allreduce,
    alltoall,
    alltoallv,
    alltoallw,
    barrier,
    bcast,
    exscan,
    gather,
    gatherv,
    reduce,
    reduce_scatter,
    reduce_scatter_block,
    scan,
    scatter,
    scatterv,
};

inline constexpr std::array<std::string_view, 17> kCollectives = {
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "alltoallw",      "barrier",
    "bcast",     "exscan",     "gather",    "gatherv",  "reduce",    "reduce_scatter", "reduce_scatter_block",
    "scan",      "scatter",    "scatterv"};

/// How it is called.
enum class Form { blocking, nonblocking, persistent };
inline constexpr size_t kForms = 3;

/// Why a call goes to MPI. Each depends on what all ranks know alike.
enum class Reason {
    none,            ///< it does not
    not_chosen,      ///< FLX_MPI does not name it
    empty,           ///< no bytes
    invalid,         ///< MPI says what is wrong with the arguments
    reduction,       ///< a type or reduction that FLX lacks
    foreign_thread,  ///< the program's function would run on a thread of FLX's, and it has not asked for threads
    alone,           ///< one rank
    intercommunicator,
    several_worlds,   ///< ranks that another mpirun or MPI_Comm_spawn started
    no_communicator,  ///< FLX could not make one
    no_requests,      ///< it does not block, and FLX has no requests for this MPI
    not_yet,          ///< it does not block, and making FLX's communicator would
    many_persistent,  ///< more persistent ones than FLX serves at a time
    over,             ///< within or after MPI_Finalize
    unpaid,           ///< FLX's communicator would not have paid yet
    compared,         ///< to know how long MPI takes
    slower,           ///< MPI was measured to be faster
    unmeasured,       ///< it does not block, and no calls that do were measured
    gpu_memory,       ///< its data are on GPUs, where FLX lacks it and MPI does not
};
inline constexpr size_t kReasons = 19;

/// What FLX_MPI says: names with commas between, `on` or `off`, or `auto`.
struct Choice {
    uint32_t mask = 0;       ///< a bit for each collective that FLX may serve
    bool automatic = false;  ///< where it is measured to be faster; else wherever it can
};
/// FLX_ERR_CONFIG: `list` has a name that is none.
Status choose_collectives(std::string_view list, Choice &choice);

/// Calls so far; `bytes` as nccl-tests count: the larger of a rank's input and output.
class Statistics {
  public:
    void count(Collective collective, Form form, Reason why, size_t bytes) {
        Cell &cell = cells_[static_cast<size_t>(collective)][static_cast<size_t>(form)][static_cast<size_t>(why)];
        cell.calls.fetch_add(1, std::memory_order_relaxed);
        cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
    /// Adds what this rank's calls on a communicator took both ways. Calls must come one at a time.
    void add(const Routes &routes);
    /// Adds up what all ranks of MPI_COMM_WORLD did, if they take part within a few seconds, and prints it on rank 0,
    /// and there what was compared. `cache`: a line on what is kept; empty: nothing.
    void print(const std::string &cache) const;

  private:
    struct Cell {
        std::atomic<uint64_t> calls{0};
        std::atomic<uint64_t> bytes{0};
    };
    /// Calls of one class.
    struct Compared {
        uint64_t by_flx = 0;
        uint64_t by_mpi = 0;
        double mpi_s = 0;  ///< of a call, the last time that it was measured
        double flx_s = 0;
        double saved_s = 0;
    };
    [[nodiscard]] std::string comparison() const;

    std::array<std::array<std::array<Cell, kReasons>, kForms>, kCollectives.size()> cells_;
    std::map<size_t, Compared> compared_;  ///< by class
    size_t communicators_ = 0;             ///< that were made for calls that were compared
    double making_s_ = 0;
};

Statistics &statistics();

}  // namespace flx::preload
