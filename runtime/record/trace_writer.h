/// \file trace_writer.h
/// Writes a process's part of a trace (trace_format.h). A call costs some nanoseconds, and its 64 bytes on disk.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/record/trace_format.h"

namespace flx::record {

class TraceWriter {
  public:
    /// `file`: what FLX_TRACE says. `process`: what the record says of the process. FLX_ERR_SYSTEM: the part cannot be
    /// made.
    static Status open(const std::string &file, const File &process, std::unique_ptr<TraceWriter> &result);
    ~TraceWriter();
    TraceWriter(const TraceWriter &) = delete;
    TraceWriter &operator=(const TraceWriter &) = delete;

    /// The part is whole. Where all parts of the program are, the trace is made of them (finish_trace). What is written
    /// after it is lost.
    void finish();

    // Of the call with that stamp. Threads may write at once, each its own.
    void enter(uint64_t stamp, int64_t now_ticks, uint64_t where, const std::array<uint64_t, 4> &what);
    void leave(uint64_t stamp, int64_t now_ticks, uint8_t error);
    /// It was none.
    void take_back(uint64_t stamp);

    // Of a communicator, by its place in the record; one thread each.
    void communicator(uint32_t place, uint32_t id, int rank, int size, int hosts, uint64_t first_uid);
    void link_name(uint32_t place, size_t link, std::string_view name, double bytes_per_s, double latency_s);
    void waited(uint32_t place, int64_t since_ns, int64_t until_ns, int peer);
    /// `sent`: in all. Nothing is written where nothing came since the last time.
    void carried(uint32_t place, size_t link, uint64_t sent, double share, bool is_on);
    void phase(uint32_t place, uint64_t number, const PhaseDone &done);
    void clock(uint32_t place, int64_t offset_ns, int64_t error_ns);

  private:
    static constexpr size_t kChunk = 1 << 16;  ///< entries that are mapped at once
    static constexpr size_t kChunkBytes = kChunk * sizeof(Entry);
    static constexpr size_t kMostChunks = 4096;  ///< 16 GiB
    static constexpr size_t kOpen = 1 << 16;     ///< a call that so many begin after is not found again
    struct Slot {
        std::atomic<uint64_t> stamp;
        std::atomic<Entry *> entry;
    };
    struct Seen {
        uint64_t sent = 0;
        int64_t at_ns = 0;
        bool is_on = true;
    };

    TraceWriter() = default;
    Entry *take();
    Entry *map_chunk(size_t chunk);
    void write(EntryKind kind, int64_t begin, int64_t end, const Where &where, const std::array<uint64_t, 4> &data);
    void note_time();
    void flush() const;

    std::string file_;
    std::string path_;
    int fd_ = -1;
    int pid_ = 0;
    bool tsc_ = false;
    TraceHead *head_ = nullptr;
    std::mutex mutex_;       ///< while a chunk is mapped
    std::mutex time_mutex_;  ///< of the head's last moment
    bool full_ = false;
    std::atomic<size_t> next_{0};
    std::array<std::atomic<Entry *>, kMostChunks> chunks_{};
    std::vector<Slot> calls_{kOpen};  ///< by stamp
    std::array<std::array<Seen, kLinks>, kCommunicators> seen_{};
};

}  // namespace flx::record
