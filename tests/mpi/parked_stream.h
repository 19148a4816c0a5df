/// \file parked_stream.h
/// A stream of the current GPU that waits until it is let go, as one does that has another communicator's kernel.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>

namespace flx::test {

class ParkedStream {
  public:
    ParkedStream() {
        using Wait = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        const auto wait =
            reinterpret_cast<Wait>(library == nullptr ? nullptr : dlsym(library, "cuStreamWaitValue32_v2"));
        void *memory = nullptr;
        void *mapped = nullptr;
        if (wait == nullptr || cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess ||
            cudaHostAlloc(&memory, sizeof(uint64_t), cudaHostAllocMapped) != cudaSuccess ||
            cudaHostGetDevicePointer(&mapped, memory, 0) != cudaSuccess)
            return;
        word_ = static_cast<volatile uint32_t *>(memory);
        *word_ = 0;
        waits_ = wait(stream_, reinterpret_cast<CUdeviceptr>(mapped), 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    }
    /// Its memory stays: freeing it could wait for other streams.
    ~ParkedStream() {
        if (word_ != nullptr)
            *word_ = 1;
        if (stream_ != nullptr)
            cudaStreamSynchronize(stream_);
    }
    ParkedStream(const ParkedStream &) = delete;
    ParkedStream &operator=(const ParkedStream &) = delete;
    [[nodiscard]] bool waits() const { return waits_; }

  private:
    cudaStream_t stream_ = nullptr;
    volatile uint32_t *word_ = nullptr;
    bool waits_ = false;
};

}  // namespace flx::test
