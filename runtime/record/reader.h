/// \file reader.h
/// What the files of format.h say, read while their processes write them. A copy: nothing in it changes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/call_log.h"
#include "runtime/plan/planner.h"
#include "runtime/record/format.h"
#include "runtime/record/process_files.h"

namespace flx::record {

struct CallSeen {
    uint64_t stamp = 0;      ///< the process's calls up to it
    int64_t entered_ns = 0;  ///< CLOCK_MONOTONIC
    int64_t left_ns = 0;     ///< 0: it has not ended
    uint32_t number = 0;     ///< on its communicator; 0: a message, or a group of them, or on GPU memory
    Way way = Way::scheduled;
    int error = 0;  ///< the flx_status_t with which it ended
    CallRecord what;
    uint32_t on_gpus = 0;  ///< its number among the communicator's collectives on GPU memory; 0: it is none
    Carrier carrier = Carrier::flx;
};

struct LinkSeen {
    std::string name;
    uint64_t sent = 0;
    double share = 0;
    bool is_on = false;
    int lost_to = -1;              ///< a rank that it does not reach just now; -1: none
    double usual_bytes_per_s = 0;  ///< as measured, or more where it delivered more for a second; 0: not known
    double bytes_per_s = 0;        ///< of late, to the host to which it is slowest; 0: not known
};

struct CommunicatorSeen {
    uint32_t id = 0;
    uint64_t first_uid = 0;
    int rank = 0;
    int size = 0;
    int hosts = 0;
    bool broken = false;
    std::string why_broken;
    uint32_t calls = 0;            ///< the number of the last call
    std::vector<CallSeen> last;    ///< those that are still recorded, the oldest first
    std::optional<int> waits_for;  ///< by its last call, which waits for long: a rank, or -1: it is not known for which
    int64_t waits_since_ns = 0;
    uint64_t missing = 0;         ///< bytes that have not come from that rank over links
    uint64_t unacknowledged = 0;  ///< bytes for it that it has not acknowledged
    Progress progress;            ///< of the call that waits
    std::vector<LinkSeen> links;
};

struct ProcessSeen {
    ProcessId id;
    pid_t pid = 0;  ///< its number where it was looked at from; 0: it has none that is known there
    Life life = Life::dead;
    int64_t cpu_ns = 0;   ///< of processors that it has used, of its threads together
    int64_t seen_ns = 0;  ///< when this was read, CLOCK_MONOTONIC
    int world_rank = -1;  ///< as the launcher said; -1: not known
    int world_size = -1;
    std::string hostname;
    std::string job;
    std::string command;
    int64_t signalled_ns = 0;  ///< when a signal asked it for a report on its host; 0: never
    int64_t answered_ns = 0;   ///< when it had said what a signal asked for, for all of its job here; 0: never
    int64_t reports_ns = 0;    ///< when it reported last by itself, or is about to; 0: never
    uint64_t begun = 0;        ///< calls, of which
    uint64_t by_mpi = 0;       ///< so many were passed on to MPI, and
    uint64_t on_gpus = 0;      ///< so many were on GPU memory
    std::vector<CommunicatorSeen> communicators;
};

/// `4711`; `12 in its container` where the number is not for use here.
std::string number_of(const ProcessSeen &process);

/// Of two looks: processes of several hosts may have one number.
inline bool is_same(const ProcessSeen &a, const ProcessSeen &b) {
    return a.id == b.id && a.hostname == b.hostname;
}

/// Whether FLX could have written it: names are looked up by it, and all ranks gone through. Another user's file, and
/// what another host says, may have anything.
bool is_known(const CallSeen &call);
bool is_known(const CommunicatorSeen &comm);

/// The call that a process is in, or was in last, and its communicator; null: it has made none.
struct Latest {
    const CallSeen *call = nullptr;
    const CommunicatorSeen *comm = nullptr;

    /// Whether the process is in it. One that does not block is under way, but the rank need not be in it.
    [[nodiscard]] bool inside() const {
        return call != nullptr && call->left_ns == 0 &&
               (call->what.kind != CallKind::non_blocking || comm->waits_for.has_value());
    }
    /// When the call ended, or began where it has not ended; 0: it has made none.
    [[nodiscard]] int64_t since_ns() const {
        return call == nullptr ? 0 : call->left_ns != 0 ? call->left_ns : call->entered_ns;
    }
};
Latest latest_of(const ProcessSeen &process);

/// `communicator 1`, `MPI_COMM_WORLD`, `MPI's communicator 471136`
std::string name_of_communicator(uint32_t id);
/// `fused`; `served by MPI`, `enqueued on a stream`, `on GPU memory` where that says more.
std::string way_of(Carrier carrier, Way way);
inline std::string way_of(const CallSeen &call) {
    return way_of(call.carrier, call.way);
}
/// `call 12 of communicator 1, allreduce of 8 B (f32, sum)`, `call 3 on GPU memory of communicator 1, …`
std::string describe(uint32_t comm, const CallSeen &call);

constexpr double seconds(int64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

/// Reads what processes keep, again and again: keeps their files mapped meanwhile. For one thread at a time.
class Reader {
  public:
    /// All that the user's processes on this host keep, or left; what cannot be read is left out. `calls`: how many of
    /// each process's last ones are looked at. `which`: those that are wanted, as they are without calls; none: all.
    std::vector<ProcessSeen> look(uid_t user, size_t calls = kCalls,
                                  const std::function<bool(const ProcessSeen &)> &which = {});
    /// `2 records cannot be read; …`: of those that the last look left out, and why the first one; empty: none.
    [[nodiscard]] std::string left_out() const;
    /// One file, once. FLX_ERR_SYSTEM: it cannot be read, or is no such file of this version.
    static Status read(const std::string &file, ProcessSeen &process);

  private:
    struct Unmap {
        void operator()(const File *file) const;
    };
    struct Mapped {
        uint64_t inode = 0;
        bool is_copy = false;
        std::unique_ptr<const File, Unmap> file;
    };
    static Status map(const std::string &file, Mapped &mapped);
    static bool copy(int fd, void *to);
    void look_for_life(const std::string &file, uint64_t started, ProcessSeen &process);
    std::map<std::string, Mapped> files_;
    std::vector<NumberHere> numbers_;  ///< of processes in containers, when they were last looked for
    bool looked_for_numbers_ = false;  ///< in this look
    size_t left_out_ = 0;
    Status why_;  ///< the first of them is
};

}  // namespace flx::record
