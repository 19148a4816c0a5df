/// \file trace_format.h
/// What a process writes of its calls where FLX_TRACE asks for it: a file of its own under `FILE.parts`, from which
/// trace_json.h makes FILE. It is a page with a TraceHead, and entries of one cache line each after it. It is written
/// through a mapping, so what was noted is there however the process ends. One writer, which may have several threads;
/// it is read when the process has ended. Numbers have the host's own byte order.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/record/format.h"

namespace flx::record {

inline constexpr auto kTraceMagic =
    std::bit_cast<uint64_t>(std::array<char, 8>{'F', 'L', 'X', 'T', 'R', 'A', 'C', 'E'});
inline constexpr uint32_t kTraceVersion = 3;
inline constexpr size_t kTraceHeadBytes = 64 << 10;  ///< pages of some processors are as large

enum class EntryKind : uint64_t {
    none,          ///< not written, or taken back
    call,          ///< begin, end: ticks, 0: not ended; where; data: a CallRecord
    wait,          ///< begin, end: CLOCK_MONOTONIC; where: the communicator; data: the rank that was waited for
    link,          ///< begin, end: likewise; where; data: the link, its bytes in that time, its share (a double), is on
    communicator,  ///< begin: likewise; where; data: id and rank, size and hosts (32 bits each), first_uid
    link_name,     ///< where, its number the link; begin, end: bytes/s and latency in s, as doubles; data: the name
    phase,  ///< begin, end: likewise, begin 0: with the call; where: with the call's number; data: phase and phases
            ///< (32 bits each), the Part, bytes sent
    clock   ///< begin: likewise; where; data: its host's clock minus that of rank 0's host, and how far that may
            ///< be off, in ns
};

struct alignas(64) Entry {
    std::atomic<uint64_t> kind;  ///< an EntryKind; written last
    std::atomic<int64_t> begin;
    std::atomic<int64_t> end;
    std::atomic<uint64_t> where;  ///< a Where
    std::array<std::atomic<uint64_t>, 4> data;
};
static_assert(sizeof(Entry) == 64);

struct TraceHead {
    std::atomic<uint64_t> magic;  ///< written last
    uint32_t version;
    int32_t pid;
    uint64_t pid_namespace;  ///< in which `pid` is its number; 0: not known
    uint64_t started;        ///< as /proc/PID/stat has it
    int32_t world_rank;      ///< as the launcher says, or in the first communicator; -1: not known
    int32_t world_size;
    uint32_t ticks_are_tsc;
    uint32_t held;                    ///< 1: the process holds a lock on its part as long as it lives
    std::atomic<uint32_t> ended;      ///< 1: the process wrote all that it wanted to
    int64_t made_ticks;               ///< at the same time as
    int64_t made_ns;                  ///< CLOCK_MONOTONIC and
    int64_t made_since_ns;            ///< CLOCK_REALTIME
    std::atomic<int64_t> last_ticks;  ///< now and then, at the same time as
    std::atomic<int64_t> last_ns;
    std::atomic<uint64_t> lost;  ///< calls for which there was no room
    std::array<char, 64> hostname;
    std::array<char, 64> boot;  ///< boot_id()
    std::array<char, 96> job;
    std::array<char, 256> command;
};
static_assert(sizeof(TraceHead) <= kTraceHeadBytes);

}  // namespace flx::record
