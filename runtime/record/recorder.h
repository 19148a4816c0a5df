/// \file recorder.h
/// Writes what format.h says: every call of the process, its communicators, and what it waits for. A call costs some
/// nanoseconds, so that nobody turns it off. Where the file cannot be made (no room in /dev/shm, FLX_RECORD=off)
/// nothing is written, and nothing else changes.
///
/// Threads may write at once, each of its own communicator.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/record/format.h"
#include "runtime/record/record_file.h"
#include "runtime/record/ticks.h"
#include "runtime/record/trace_writer.h"

namespace flx::record {

struct Handover;

class Recorder {
  public:
    static constexpr uint32_t kNowhere = record::kNowhere;
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;

    struct Wanted {
        bool record = true;
        std::string trace;     ///< a file; empty: none is made
        std::string hostname;  ///< as others are to know it
        bool threads = false;  ///< several may make calls at once
    };
    /// The process's one, made by the first call and gone when the process ends as programs do; what is left of one
    /// that does not stays for a day. Later calls change `threads` alone. Thread-safe.
    static Recorder &of_process(const Wanted &wanted);

    /// A place for a communicator; kNowhere: none is free, or nothing is recorded.
    using Facts = CommunicatorFacts;
    uint32_t open(const Facts &facts);
    void close(uint32_t place);
    /// It is broken, and why.
    void broken(uint32_t place, std::string_view sentence);

    /// A call begins. Returns its stamp; 0: it is not recorded.
    uint64_t enter(uint32_t place, const CallRecord &what, uint64_t number, Way way, Carrier carrier = Carrier::flx) {
        if (place == kNowhere)
            return 0;
        const uint64_t stamp = next_stamp(*file_, threads_.load(std::memory_order_relaxed));
        const int64_t now = this->now();
        const Where where{static_cast<uint32_t>(number), static_cast<uint8_t>(place), way, 0, carrier};
        const auto words = std::bit_cast<CallWords>(what);
        begin_call(*file_, stamp, now, where, words);
        if (trace_) [[unlikely]]
            trace_->enter(stamp, now, std::bit_cast<uint64_t>(where), words);
        if (number != 0 && carrier == Carrier::flx)
            file_->communicators[place].calls.store(number, std::memory_order_relaxed);
        return stamp;
    }
    /// It has ended. Returns when, in ticks; 0: it was not recorded.
    int64_t leave(uint64_t stamp, const Status &status) {
        if (stamp == 0)
            return 0;
        const int64_t now = this->now();
        const auto error = static_cast<uint8_t>(status.code());
        if (trace_) [[unlikely]]
            trace_->leave(stamp, now, error);
        end_call(*file_, stamp, now, error);
        return now;
    }
    /// For whom a call waits, and since when.
    struct Waiting {
        int64_t since_ns = 0;
        int peer = -1;         ///< -1: it is not known
        uint64_t missing = 0;  ///< bytes
        uint64_t unacknowledged = 0;
        Progress progress;
    };
    void wait(uint32_t place, uint64_t stamp, const Waiting &waiting);
    void waits_no_more(uint32_t place);
    /// How a link of the communicator does.
    struct LinkNow {
        uint64_t sent = 0;       ///< bytes of payload so far, to all peers
        double share = 0;        ///< of the last vector
        bool is_on = false;      ///< it may carry something
        int lost_to = -1;        ///< a rank that it does not reach just now; -1: none
        double bytes_per_s = 0;  ///< of late, to the host to which it is slowest; 0: not known, or shared memory
    };
    void carried(uint32_t place, size_t link, const LinkNow &now);

    /// Clocks of its host and of rank 0's host, in ns: how far this one is ahead, and how much that may be off.
    void clock(uint32_t place, int64_t offset_ns, int64_t error_ns);
    /// A phase of the call with that number is over. In traces alone.
    void phase(uint32_t place, uint64_t number, const PhaseDone &done) {
        if (trace_ && place != kNowhere)
            trace_->phase(place, number, done);
    }
    [[nodiscard]] bool traces() const { return trace_ != nullptr; }
    /// Where the process stands in saying what goes on on its host, so that one says it for all: a signal asked it, it
    /// has answered one, or it is about to speak by itself (0: it is not any more).
    enum class Report : uint8_t { asked, answered, by_itself };
    /// False: nothing is recorded where others see it.
    bool reports(Report what, int64_t at_ns);

  private:
    explicit Recorder(const Wanted &wanted);
    void pass_on_to_trace(Handover &handover);
    ~Recorder();
    void note_link(uint32_t place, size_t link, const LinkNow &now);
    /// Whoever looks at what goes on needs no microseconds, and a short call takes some hundred nanoseconds.
    [[nodiscard]] int64_t now() const { return exact_ ? ticks(tsc_) : last_tick_ns(); }

    File *file_ = nullptr;  ///< null: nothing is recorded
    bool seen_ = false;     ///< by others
    std::unique_ptr<TraceWriter> trace_;
    bool exact_ = false;  ///< of a trace
    bool tsc_ = false;
    std::atomic<bool> threads_{false};  ///< then a locked instruction is needed, which takes as long as all else
    RecordFile own_;                    ///< unless a library in front of MPI has made one (passed_calls.h)
};

}  // namespace flx::record
