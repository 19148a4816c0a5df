/// \file trace_clocks.h
/// Times of several hosts on one clock, by what ranks measured of their clocks when they made and freed communicators.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flx::record {

/// A host's clock minus the common one's, at a time of the host's.
struct ClockSample {
    int64_t at_ns = 0;
    int64_t offset_ns = 0;
    int64_t error_ns = 0;  ///< the offset may be off by so much
};

/// A host's clock as a line through what was measured.
class HostClock {
  public:
    HostClock() = default;
    /// The common clock itself.
    explicit HostClock(std::string host) : host_(std::move(host)) {}
    /// `samples` may be empty: then `by_date_ns` is taken, which is how far the host's clock is ahead by the date.
    HostClock(std::string host, std::vector<ClockSample> samples, int64_t by_date_ns);

    [[nodiscard]] const std::string &host() const { return host_; }
    [[nodiscard]] int64_t common(int64_t ns) const;
    [[nodiscard]] double offset_ns() const { return static_cast<double>(offset_ns_); }  ///< at the first sample
    [[nodiscard]] double drift() const { return drift_; }                               ///< ns per ns
    [[nodiscard]] double error_ns() const {
        return error_ns_;
    }  ///< at the samples; -1: not known, as none was measured

  private:
    std::string host_;
    int64_t at_ns_ = 0;
    int64_t offset_ns_ = 0;
    double drift_ = 0;
    double error_ns_ = 0;
};

}  // namespace flx::record
