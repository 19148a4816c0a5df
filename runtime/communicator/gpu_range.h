/// \file gpu_range.h
/// The time in which a call puts work on a GPU, as a range for profilers (NVTX, domain `FLX`), such as Nsight Systems
/// show. Where none is attached, or FLX was built without NVTX, it is a function call and a comparison.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

namespace flx {

class GpuRange {
  public:
    /// `what`: such as `allreduce`.
    GpuRange(std::string_view what, uint64_t bytes) : GpuRange(what, [bytes] { return bytes; }) {}
    /// `bytes` is a function that is called only where somebody looks.
    template <std::invocable Bytes>
    GpuRange(std::string_view what, Bytes bytes) : domain_(domain()) {
        if (domain_ != nullptr) [[unlikely]]
            begin(what, bytes());
    }
    ~GpuRange() {
        if (domain_ != nullptr) [[unlikely]]
            end();
    }
    GpuRange(const GpuRange &) = delete;
    GpuRange &operator=(const GpuRange &) = delete;

  private:
    static void *domain();  ///< null: nobody looks
    void begin(std::string_view what, uint64_t bytes) const;
    void end() const;

    void *const domain_;
};

}  // namespace flx
