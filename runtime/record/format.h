/// \file format.h
/// What a process keeps of its calls in a file under /dev/shm, for other processes of the same user to read: while it
/// runs, and after it died. One writer, any number of readers, no locks between them. Numbers have the host's own byte
/// order, and only a reader of the same kVersion understands them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/plan/call_log.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/progress.h"

namespace flx::record {

inline constexpr auto kMagic = std::bit_cast<uint64_t>(std::array<char, 8>{'F', 'L', 'X', 'C', 'A', 'L', 'L', 'S'});
inline constexpr uint32_t kVersion = 7;
inline constexpr size_t kCalls = 1024;  ///< so many of the last ones are kept
inline constexpr size_t kCommunicators = 64;
inline constexpr size_t kLinks = 16;

/// Communicators whose calls MPI carries out have ids from here on (runtime/record/passed_calls.h): this one is
/// MPI_COMM_WORLD.
inline constexpr uint32_t kMpiIds = 500'000'000;
constexpr bool is_of_mpi(uint32_t id) {
    return id >= kMpiIds;
}

/// Who carries a call out, and where: FLX on host memory; MPI, to which it was passed on; FLX on GPU memory, which has
/// left when it is on its stream, or when it is done.
enum class Carrier : uint8_t { flx, mpi, stream, gpu };
inline constexpr size_t kCarriers = 4;

/// The word that says where a call belongs. Those on GPU memory are numbered apart from the others of a communicator.
struct Where {
    uint32_t number = 0;  ///< of the call on its communicator, low bits; 0: a message or a group of them
    uint8_t place = 0;    ///< in File::communicators
    Way way = Way::scheduled;
    uint8_t error = 0;  ///< the flx_status_t with which it ended
    Carrier carrier = Carrier::flx;
};
static_assert(sizeof(Where) == sizeof(uint64_t));

/// One call, and what is known of it if it waits for long.
struct alignas(64) Call {
    std::atomic<uint64_t> stamp;   ///< how many calls the process had begun with it; 0: it is being written
    std::atomic<int64_t> entered;  ///< in ticks (runtime/record/ticks.h), or by the kernel's last one
    std::atomic<int64_t> left;     ///< likewise; 0: not yet
    std::atomic<uint64_t> where;   ///< a Where
    std::array<std::atomic<uint64_t>, sizeof(CallRecord) / sizeof(uint64_t)> what;  ///< a CallRecord
};
static_assert(sizeof(Call) == 64);

struct Wait {
    std::atomic<uint64_t> stamp;           ///< of the call that it is of
    std::atomic<int64_t> since_ns;         ///< CLOCK_MONOTONIC
    std::atomic<int64_t> peer;             ///< the first rank that is waited for; -1: none is known
    std::atomic<uint64_t> missing;         ///< bytes that have not come from it; of links alone
    std::atomic<uint64_t> unacknowledged;  ///< bytes for it that it has not acknowledged; likewise
    std::atomic<uint64_t> progress;        ///< a Progress
};

struct Link {
    std::array<char, 32> name;
    std::atomic<uint64_t> sent;    ///< bytes of payload so far, to all peers
    std::atomic<double> share;     ///< of the last vector
    std::atomic<uint32_t> is_on;   ///< 0: it carries nothing
    std::atomic<int32_t> lost_to;  ///< a rank that it does not reach just now; -1: none
    std::atomic<double> usual;     ///< bytes/s, as measured, or more where it delivered more for a second; 0: not known
    std::atomic<double> now;       ///< bytes/s, of late to the host to which it is slowest; 0: not known
};

enum class State : uint32_t { unused, taken, open, broken, freed };

struct alignas(64) Communicator {
    std::atomic<uint32_t> state;  ///< a State; written last when it opens
    uint32_t id;
    int32_t rank;
    int32_t size;
    int32_t hosts;
    uint32_t links;
    uint64_t first_uid;           ///< of its rank 0: communicators with equal ids and this are one
    uint64_t opened;              ///< stamps up to this are of another that had the place before
    std::atomic<uint64_t> calls;  ///< the number of the last one that was begun
    Wait wait;
    std::array<Link, kLinks> link;
    std::atomic<uint32_t> says_stamp;         ///< odd while `says` is written
    std::array<std::atomic<char>, 508> says;  ///< what the last error said; ends with a zero byte
};

struct File {
    std::atomic<uint64_t> magic;  ///< written last
    uint32_t version;
    uint32_t bytes;  ///< of the whole file
    int32_t pid;
    uint32_t ticks_are_tsc;
    uint64_t pid_namespace;  ///< in which `pid` is its number; 0: not known
    uint64_t started;        ///< as /proc/PID/stat has it, so that no later process with its pid is taken for it
    int64_t made_ticks;      ///< at the same time as
    int64_t made_ns;         ///< CLOCK_MONOTONIC and
    int64_t made_since_ns;   ///< CLOCK_REALTIME
    int32_t world_rank;      ///< as the launcher says; -1: not known
    int32_t world_size;
    std::array<char, 64> hostname;
    std::array<char, 96> job;  ///< the launcher's name of it; empty: not known
    std::array<char, 256> command;
    std::atomic<int64_t> signalled_ns;  ///< when a signal asked it for a report on its host; CLOCK_MONOTONIC
    std::atomic<int64_t> answered_ns;   ///< when it had said what a signal asked for, for its host; likewise
    std::atomic<int64_t> reports_ns;    ///< when it reported by itself, or is about to; likewise
    std::atomic<uint64_t> begun;        ///< calls
    std::array<std::atomic<uint64_t>, kCarriers> by_carrier;  ///< of them, but for those of Carrier::flx
    std::array<Communicator, kCommunicators> communicators;
    std::array<Call, kCalls> calls;
};

/// Names of these files: kPrefix, the user's id, a point, the process's id (number_text(ProcessId)). What begins with
/// `flx-` is a segment, and taken away by the next one when its ranks are gone. As long as a process lives, it holds a
/// lock on its file (F_OFD_SETLK in fcntl(2)), by which those know it who are in another container.
inline constexpr const char *kFolder = "/dev/shm";
inline constexpr uint64_t kLeastFolder = 100 << 20;  ///< containers often have 64 MiB, of which segments need all
inline constexpr const char *kPrefix = "calls-of-flx.";

}  // namespace flx::record
