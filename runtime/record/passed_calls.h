/// \file passed_calls.h
/// Writes the calls that a library in front of MPI passes on to it into this process's record, as an MPI that hangs
/// is a hang as well. Most such programs are over before libflx is loaded. So this makes the record itself, of which
/// libflx, when it comes, has but to be told (Handover).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/base/status.h"
#include "runtime/record/record_file.h"
#include "runtime/record/ticks.h"

namespace flx::record {

/// The part of a trace, as these calls see it. What libflx has of it, as nobody else is linked with it.
class PassedTrace {
  public:
    virtual void communicator(uint32_t place, const CommunicatorFacts &facts) = 0;
    virtual void enter(uint64_t stamp, int64_t now, const Where &where, const CallWords &words) = 0;
    virtual void leave(uint64_t stamp, int64_t now) = 0;
    virtual void take_back(uint64_t stamp) = 0;

  protected:
    ~PassedTrace() = default;
};

/// What both libraries of a process, which are of one build, have in common.
struct Handover {
    File *file = nullptr;    ///< null: nothing is recorded
    bool seen = false;       ///< by others
    std::string trace_file;  ///< empty: none is made; else libflx's recorder begins when libflx is loaded
    std::string hostname;
    bool threads = false;  ///< several may make calls at once
    std::atomic<PassedTrace *> trace{nullptr};
    /// Of a libflx that was there first, as the program is linked with it: it hears when the record is made.
    std::atomic<void (*)()> when_made{nullptr};
};
/// The function `Handover *(*)()` of the library in front; libflx looks for it when its recorder is made. Its name goes
/// with kVersion, as one of another build may have a Handover of another shape.
inline constexpr const char *kHandover = "flx_mpi_record_7";
static_assert(kVersion == 7);

class PassedCalls {
  public:
    struct Wanted {
        bool record = true;    ///< others are to see it
        std::string trace;     ///< a file; empty: none is made
        std::string hostname;  ///< as others are to know it
        std::string job;       ///< its name where the launcher gives none
        bool threads = false;  ///< several may make calls at once
    };
    /// Makes the record. FLX_ERR_SYSTEM: others see none. Where there is none at all, the other functions do nothing.
    Status begin(const Wanted &wanted);
    /// The process ends: others see it no more.
    void end() { file_.remove(); }
    [[nodiscard]] Handover &handover() { return handover_; }

    /// So many places are for communicators of MPI's; the others are left to FLX's own.
    static constexpr uint32_t kMost = kCommunicators / 2;
    /// A place for a communicator. kNowhere: none is free, or nothing is recorded.
    uint32_t open(const CommunicatorFacts &facts);
    void close(uint32_t place);

    /// A call begins that MPI has; `number`: of those on the communicator. Returns its stamp; 0: it is not recorded.
    uint64_t enter(uint32_t place, const CallRecord &what, uint64_t number) {
        File *const file = handover_.file;
        if (place == kNowhere || file == nullptr)
            return 0;
        const uint64_t stamp = next_stamp(*file, handover_.threads);
        const int64_t now = this->now();
        const Where where{static_cast<uint32_t>(number), static_cast<uint8_t>(place), Way::exchanged, 0, Carrier::mpi};
        const auto words = std::bit_cast<CallWords>(what);
        begin_call(*file, stamp, now, where, words);
        file->communicators[place].calls.store(number, std::memory_order_relaxed);
        if (PassedTrace *trace = handover_.trace.load(std::memory_order_acquire); trace != nullptr) [[unlikely]]
            trace->enter(stamp, now, where, words);
        return stamp;
    }
    void leave(uint64_t stamp) {
        if (stamp == 0)
            return;
        const int64_t now = this->now();
        if (PassedTrace *trace = handover_.trace.load(std::memory_order_acquire); trace != nullptr) [[unlikely]]
            trace->leave(stamp, now);
        end_call(*handover_.file, stamp, now);
    }

    /// That call was none, and the last one is `number` again. Counts of calls, which only grow, have it.
    void take_back(uint64_t stamp, uint32_t place, uint64_t number) {
        File &file = *handover_.file;
        if (PassedTrace *trace = handover_.trace.load(std::memory_order_acquire); trace != nullptr)
            trace->take_back(stamp);
        Call &call = file.calls[stamp % kCalls];
        if (call.stamp.load(std::memory_order_relaxed) == stamp)
            call.stamp.store(0, std::memory_order_release);
        file.communicators[place].calls.store(number, std::memory_order_relaxed);
    }

  private:
    [[nodiscard]] int64_t now() const { return exact_ ? ticks(tsc_) : last_tick_ns(); }

    RecordFile file_;
    Handover handover_;
    bool exact_ = false;
    bool tsc_ = false;
    std::atomic<uint32_t> places_{0};
};

}  // namespace flx::record
