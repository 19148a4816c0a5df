/// \file trace_part.h
/// One process's part of a trace, mapped for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/record/ticks.h"
#include "runtime/record/trace_format.h"

namespace flx::record {

class TracePart {
  public:
    /// FLX_ERR_SYSTEM: it cannot be read, or is none of this version.
    static Status open(const std::string &path, TracePart &part);
    TracePart() = default;
    ~TracePart();
    TracePart(TracePart &&other) noexcept;
    TracePart &operator=(TracePart &&other) noexcept;

    [[nodiscard]] const TraceHead &head() const { return *reinterpret_cast<const TraceHead *>(memory_); }
    /// Those that were not written among them have no kind.
    [[nodiscard]] std::span<const Entry> entries() const;
    [[nodiscard]] const std::string &path() const { return path_; }
    [[nodiscard]] std::string hostname() const;
    [[nodiscard]] std::string job() const;
    [[nodiscard]] std::string command() const;
    /// Of its host's kernel, and since when that runs (runtime/base/boot_id.h).
    [[nodiscard]] std::string boot() const;
    /// Ticks as nanoseconds: a line through two moments of a process.
    struct Scale {
        Moment from;
        double ns_per_tick = 1;
        int64_t apart_ns = 0;  ///< the moments are so far apart; the farther, the better
    };
    [[nodiscard]] const Scale &scale() const { return scale_; }
    /// The one of another process of its host, so that what was before is before on all of them.
    void set_scale(const Scale &scale) { scale_ = scale; }
    /// The process's ticks as CLOCK_MONOTONIC of its host.
    [[nodiscard]] int64_t ns(int64_t ticks) const;
    /// Whether the process wrote all that it wanted to.
    [[nodiscard]] bool ended() const { return head().ended.load(std::memory_order_acquire) != 0; }

  private:
    const std::byte *memory_ = nullptr;
    size_t bytes_ = 0;
    Scale scale_;
    std::string path_;
};

}  // namespace flx::record
