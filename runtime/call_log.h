/// \file call_log.h
/// The collectives that a rank has called on a communicator, in their order and in whatever way they were carried out:
/// what ranks that wait for each other compare, to find calls that do not match. They are told in answers to liveness
/// questions, which a thread of their process gives whatever it does itself.
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

#include "flx.h"
#include "schedule.h"

namespace flx {

/// How it was called. Those after `grouped` are functions that all ranks must call together, too.
enum class CallKind : uint8_t { blocking, non_blocking, grouped, freed, duplicated, split };

/// One call, as other ranks are told of it.
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
    uint8_t always = 1;  ///< so that no call is all zeros

    static constexpr uint16_t kCustom = 0xFFFF;
};
static_assert(sizeof(CallRecord) == 32);

/// `allreduce of 8 B (f32, sum)`, `non-blocking bcast of 32 MiB (u8) from rank 0`, `flx_comm_free`
std::string to_string(const CallRecord &call);

/// Written by one thread at a time, read by any.
class CallLog {
  private:
    using Words = std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)>;
    static constexpr size_t kLast = std::tuple_size_v<Words> - 1;  ///< the word that has the number in it
    static constexpr size_t kHistory = offsetof(CallRecord, history) / sizeof(uint64_t);
    /// The bits of a word that one member takes.
    struct Part {
        uint32_t history = 0;
        uint32_t number = 0;
        uint8_t done = 0;
    };
    static constexpr uint64_t word(size_t which, const Part &part) {
        CallRecord call;
        call.history = part.history;
        call.number = part.number;
        call.done = part.done;
        call.collective = algorithms::Collective{};
        call.always = 0;
        return std::bit_cast<Words>(call)[which];
    }

  public:
    /// The last ones that are kept. A rank is so far ahead of another at most where data flows one way.
    static constexpr size_t kKept = 128;

    /// The next call, without history and number. A few nanoseconds.
    void note(const CallRecord &call) {
        const uint64_t number = count_.load(std::memory_order_relaxed) + 1;
        before_ = history_;
        history_ = (history_ ^ call.signature) * 0x9E3779B1U;
        history_ ^= history_ >> 15;
        // The last word is zero while others are written, so whoever reads it before and after them knows.
        auto words = std::bit_cast<Words>(call);
        words[kHistory] |= word(kHistory, {.history = history_});
        words[kLast] |= word(kLast, {.number = static_cast<uint32_t>(number)});
        auto &slot = slots_[number % kKept];
        slot[kLast].store(0, std::memory_order_relaxed);
        for (size_t i = 0; i < kLast; ++i)
            slot[i].store(words[i], std::memory_order_release);
        slot[kLast].store(words[kLast], std::memory_order_release);
        count_.store(number, std::memory_order_release);
    }
    /// Sets `done` of a call that is still kept.
    void note_done(uint64_t number) {
        constexpr uint64_t kDone = word(kLast, {.done = 1});
        std::atomic<uint64_t> &last = slots_[number % kKept][kLast];
        if (count() < number + kKept)
            last.store(last.load(std::memory_order_relaxed) | kDone, std::memory_order_release);
    }
    /// How many calls there were: the number of the last one.
    [[nodiscard]] uint64_t count() const { return count_.load(std::memory_order_acquire); }
    /// Of all calls before the last one: with it in their signatures, calls match only if those before them did.
    [[nodiscard]] uint32_t before() const { return before_; }
    /// Nothing where it is not kept any more, or there was none.
    [[nodiscard]] std::optional<CallRecord> read(uint64_t number) const;

  private:
    std::atomic<uint64_t> count_{0};
    uint32_t history_ = 0;
    uint32_t before_ = 0;
    std::array<std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>>, kKept> slots_{};
};

/// The call in which a process waits, where it cannot return before that call is complete.
struct BlockedIn {
    uint32_t comm = 0;    ///< its communicator; 0: it is in none
    uint32_t alone = 0;   ///< the program calls FLX from one thread at a time, so it makes no other call meanwhile
    uint64_t number = 0;  ///< of the call on that communicator
    CallRecord call;
};

/// Of a process: what waits that have taken long have said of themselves. Thread-safe.
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
    uint64_t count = 0;  ///< of its calls on the communicator
    BlockedIn blocked;   ///< on any communicator of the process
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
