/// \file copy_apart.h
/// A copy of GPU memory that lives as long as what is put on a stream meanwhile, for inputs that would be written over.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {

/// Its memory comes from the device's pool at that point of the stream and goes back at the one where this is
/// destroyed.
class CopyApart {
  public:
    explicit CopyApart(CUstream_st *stream) : stream_(stream) {}
    ~CopyApart() {
        if (memory_ != nullptr)
            cudaFreeAsync(memory_, stream_);
    }
    CopyApart(const CopyApart &) = delete;
    CopyApart &operator=(const CopyApart &) = delete;

    /// Once. The stream may be one that is captured.
    Status make(const void *from, uint64_t bytes) {
        FLX_TRY_CUDA(cudaMallocAsync(&memory_, bytes, stream_));
        FLX_TRY_CUDA(cudaMemcpyAsync(memory_, from, bytes, cudaMemcpyDeviceToDevice, stream_));
        return {};
    }
    [[nodiscard]] const void *get() const { return memory_; }

  private:
    CUstream_st *stream_;
    void *memory_ = nullptr;
};

}  // namespace flx::cuda
