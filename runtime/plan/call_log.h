/// \file call_log.h
/// The collectives that a rank has called on a communicator, in their order and in whatever way they were carried out:
/// what ranks that wait for each other compare, to find calls that do not match. Answers to liveness questions carry
/// them, which a thread of the process gives whatever the program does.
///
/// All ranks must call alike, so that the n-th calls of two ranks differ is a contradiction whenever it is seen,
/// however far one of them is ahead. That one has not made its n-th call yet is none.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "algorithms/schedule.h"
#include "runtime/include/flx.h"

namespace flx {

/// How it was called. Those after `grouped` are functions that all ranks must call together, too. `duplicated` and
/// `split` are not in the log: whoever stands between the program and FLX calls them when it likes, so their place
/// among the program's calls may differ between ranks.
enum class CallKind : uint8_t { blocking, non_blocking, grouped, freed, duplicated, split };

/// One call, as other ranks get to know it.
struct CallRecord {
    uint64_t bytes = 0;      ///< of the whole vector; 0 where each pair of ranks has lengths of its own
    uint32_t signature = 0;  ///< of all that must be equal on all ranks
    uint32_t history = 0;    ///< of the signatures of all calls up to this one
    int32_t root = 0;
    uint16_t dtype = 0;  ///< kCustom where it is the program's own
    uint16_t op = 0;
    uint32_t number = 0;  ///< its low bits
    algorithms::Collective collective = algorithms::Collective::barrier;
    CallKind kind = CallKind::blocking;
    uint8_t done = 0;  ///< this rank has all that it needs, and has given all that others need (alltoallv and the like)
    uint8_t reserved = 0;

    static constexpr uint16_t kCustom = 0xFFFF;
    static constexpr uint16_t kUntold = 0xFFFE;  ///< it is not known, as MPI has the call
};
static_assert(sizeof(CallRecord) == 32);

/// `f32`, `sum`; `custom` where it is the program's own. Empty: the collective has none.
std::string dtype_of(const CallRecord &call);
std::string reduction_of(const CallRecord &call);
/// Whether it has a root.
bool has_root(const CallRecord &call);

/// `allreduce of 8 B (f32, sum)`, `non-blocking bcast of 32 MiB (u8) from rank 0`, `flx_comm_free`
std::string to_string(const CallRecord &call);

/// Written by one thread at a time, read by any. Programs call the same again and again, so the log has one entry for
/// each *run* of equal calls: the first one's number, and what it is. Such a call then costs one store.
class CallLog {
  public:
    /// At least so many of the last calls are kept. A rank is so far ahead of another at most where data flows one way.
    static constexpr size_t kKept = 128;

    /// The next call, without history and number.
    void note(const CallRecord &call) {
        const uint64_t number = count_.load(std::memory_order_relaxed) + 1;
        if (call.signature != signature_ || call.kind != kind_) [[unlikely]]
            begin_run(call, number);
        count_.store(number, std::memory_order_release);
    }
    /// Sets `done` of a call that is still kept.
    void note_done(uint64_t number) { done_[number % kKept].store(number, std::memory_order_release); }
    /// The rank waits for all others in `what`, which is no call with a number; null: no more.
    void meet(const CallKind *what) {
        meeting_.store(what == nullptr ? 0 : 1 + static_cast<uint32_t>(*what), std::memory_order_release);
    }
    static std::optional<CallKind> meeting_of(uint32_t word) {
        if (word == 0 || word > 1 + static_cast<uint32_t>(CallKind::split))
            return std::nullopt;
        return static_cast<CallKind>(word - 1);
    }
    [[nodiscard]] uint32_t meeting_word() const { return meeting_.load(std::memory_order_acquire); }
    /// How many calls there were: the number of the last one.
    [[nodiscard]] uint64_t count() const { return count_.load(std::memory_order_acquire); }
    /// A hash of all calls before the last one: with it in their signatures, calls match only if those before them did.
    [[nodiscard]] uint32_t before() const {
        const uint64_t number = count_.load(std::memory_order_relaxed);
        return number <= first_ ? base_ : history(base_, signature_, number - 1 - first_);
    }
    /// Nothing where it is not kept any more, or there was none.
    [[nodiscard]] std::optional<CallRecord> read(uint64_t number) const;

  private:
    using Words = std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)>;
    struct Run {
        std::atomic<uint64_t> first{0};  ///< its first call's number
        /// The first call's record; its history is that of all calls before the run.
        std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> record{};
    };

    void begin_run(const CallRecord &call, uint64_t number);
    /// Of the calls up to one in a run, given that of all before the run, and the call's index in it.
    static uint32_t history(uint32_t base, uint32_t signature, uint64_t index);

    // Of the last run.
    uint32_t signature_ = 0;
    CallKind kind_ = CallKind::split;  ///< which no call is
    uint32_t base_ = 0;
    uint64_t first_ = 1;

    std::atomic<uint64_t> count_{0};
    std::atomic<uint32_t> meeting_{0};
    std::atomic<uint64_t> runs_{0};  ///< that were begun; the last one is at (runs_ - 1) % kKept
    std::array<Run, kKept> run_{};
    std::array<std::atomic<uint64_t>, kKept> done_{};  ///< numbers of calls that are
};

/// The call in which a process waits, where it cannot return before that call is complete.
struct BlockedIn {
    uint32_t comm = 0;    ///< its communicator; 0: it is in none
    uint32_t alone = 0;   ///< the program calls FLX from one thread at a time, so it makes no other call meanwhile
    uint64_t number = 0;  ///< of the call on that communicator
    CallRecord call;
};

/// The calls in which this process has waited for long, as the waits themselves said. Thread-safe.
class BlockedCall {
  public:
    void set(const BlockedIn &call);
    /// Whatever thread's it was.
    void clear(uint32_t comm);
    [[nodiscard]] BlockedIn get() const;

  private:
    mutable std::mutex mutex_;
    BlockedIn call_;
};

/// What a rank says of its calls on a communicator when a peer asks about call `asked`. As it goes through the network,
/// up to the last record that there is, in host byte order.
struct CallAnswer {
    uint64_t asked = 0;
    uint64_t count = 0;    ///< of its calls on the communicator
    uint64_t meeting = 0;  ///< as CallLog::meeting_word()
    BlockedIn blocked;     ///< on any communicator of the process
    /// Call `asked`, or the last one if there are fewer, and those before it.
    static constexpr size_t kRecords = 12;
    std::array<CallRecord, kRecords> calls{};
};
static_assert(sizeof(CallAnswer) <= 512);  // liveness::kTextBytes

/// Bytes written. Room for a CallAnswer is needed.
size_t write_answer(const CallLog &log, const BlockedIn &blocked, uint64_t asked, std::span<std::byte> to);
/// How many of `answer.calls` there are; nothing if the bytes are no answer.
std::optional<size_t> read_answer(std::string_view bytes, CallAnswer &answer);

/// The first call of which `theirs` says something else than `own`: its number, in both.
struct Contradiction {
    uint64_t number = 0;
    CallRecord own;
    CallRecord theirs;
    bool earlier = false;  ///< it is one before those that are known, so these are the same
};
std::optional<Contradiction> contradiction(const CallLog &own, const CallAnswer &theirs, size_t calls);

/// Whether `rank` cannot complete this call before `peer` has made it. Not where it is not known.
bool needs(const CallRecord &call, int rank, int peer);

}  // namespace flx
