/// \file record_file.h
/// The file of this process that others read (format.h): how it is made and goes, and how calls and communicators are
/// put into it. It stands apart from the recorder, as libflx_mpi.so makes it before libflx is loaded.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"
#include "runtime/record/format.h"
#include "runtime/record/process_files.h"

namespace flx::record {

/// The place of a communicator that has none.
inline constexpr uint32_t kNowhere = UINT32_MAX;

/// What does not change of a communicator.
struct CommunicatorFacts {
    uint32_t id = 0;
    int rank = 0;
    int size = 0;
    int hosts = 0;
    uint64_t first_uid = 0;
    struct Link {
        std::string name;
        double bytes_per_s = 0;  ///< as measured; 0: not
        double latency_s = 0;
    };
    std::vector<Link> links;
};

class RecordFile {
  public:
    struct Wanted {
        bool record = true;    ///< others are to see it
        bool exact = false;    ///< times are ticks, as traces need them
        std::string hostname;  ///< as others are to know it
        std::string job;       ///< its name where the launcher gives none; empty: none
    };
    RecordFile() = default;
    ~RecordFile() { remove(); }
    RecordFile(const RecordFile &) = delete;
    RecordFile &operator=(const RecordFile &) = delete;

    /// FLX_ERR_SYSTEM: others do not see it. Where it is exact there is memory for it all the same, of this process
    /// alone: a trace needs what a record has.
    Status make(const Wanted &wanted);
    /// It goes, but not where a child that the program forked ends. The memory stays, as others may still write.
    void remove();
    /// Null: nothing is recorded.
    [[nodiscard]] File *get() const { return file_; }
    [[nodiscard]] bool seen() const { return !path_.empty(); }

  private:
    Status make_shown();
    void describe(const Wanted &wanted);

    File *file_ = nullptr;
    ProcessId process_;
    std::string path_;    ///< empty: others do not see it
    OwnDescriptor held_;  ///< of the file: its lock says in other containers that this process lives
};

/// A place for a communicator, without its links; state `taken` until its owner sets `open`. kNowhere: none is free.
uint32_t take_place(File &file, const CommunicatorFacts &facts);

template <size_t kSize>
void copy_text(std::array<char, kSize> &to, std::string_view from) {
    const size_t bytes = from.copy(to.data(), kSize - 1);
    to[bytes] = '\0';
}

using CallWords = std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)>;

/// The stamp of the call that begins next. `threads`: several may ask at once, which takes a locked instruction, and
/// that takes as long as all else.
inline uint64_t next_stamp(File &file, bool threads) {
    if (threads)
        return file.begun.fetch_add(1, std::memory_order_relaxed) + 1;
    const uint64_t stamp = file.begun.load(std::memory_order_relaxed) + 1;
    file.begun.store(stamp, std::memory_order_relaxed);
    return stamp;
}

/// A call begins. Threads may do so at once, each with a stamp of its own.
inline void begin_call(File &file, uint64_t stamp, int64_t now, const Where &where, const CallWords &words) {
    Call &call = file.calls[stamp % kCalls];
    // Whoever reads one of what follows finds no stamp, or a later one.
    call.stamp.store(0, std::memory_order_relaxed);
    call.entered.store(now, std::memory_order_release);
    call.left.store(0, std::memory_order_release);
    call.where.store(std::bit_cast<uint64_t>(where), std::memory_order_release);
#pragma GCC unroll 4
    for (size_t i = 0; i < words.size(); ++i)
        call.what[i].store(words[i], std::memory_order_release);
    call.stamp.store(stamp, std::memory_order_release);
    if (where.carrier != Carrier::flx) {  // of threads that do so at the same time one may be missing
        std::atomic<uint64_t> &count = file.by_carrier[static_cast<size_t>(where.carrier)];
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
}

/// It has ended. `error`: the flx_status_t with which.
inline void end_call(File &file, uint64_t stamp, int64_t now, uint8_t error = 0) {
    Call &call = file.calls[stamp % kCalls];
    if (call.stamp.load(std::memory_order_relaxed) != stamp)  // so many others began meanwhile
        return;
    if (error != 0) [[unlikely]] {
        auto where = std::bit_cast<Where>(call.where.load(std::memory_order_relaxed));
        where.error = error;
        call.where.store(std::bit_cast<uint64_t>(where), std::memory_order_relaxed);
    }
    call.left.store(now, std::memory_order_release);
}

}  // namespace flx::record
