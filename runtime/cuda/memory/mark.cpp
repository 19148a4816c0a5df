#include "runtime/cuda/memory/mark.h"

#include <utility>

#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {

Mark::~Mark() {
    if (event_ != nullptr)
        cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

Status Mark::put(CUstream_st *stream, int device) {
    put_ = false;
    const CurrentDevice current(device);
    const OutsideCaptures outside;
    if (event_ != nullptr && device_ != device)
        cudaEventDestroy(static_cast<cudaEvent_t>(std::exchange(event_, nullptr)));
    if (event_ == nullptr) {
        cudaEvent_t made = nullptr;
        FLX_TRY_CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
        event_ = made;
        device_ = device;
    }
    FLX_TRY_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream));
    put_ = true;
    return {};
}

Status Mark::look(bool &passed) const {
    passed = true;
    if (!put_)
        return {};
    const OutsideCaptures outside;  // a query ends those of other threads
    const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event_));
    passed = state != cudaErrorNotReady;
    return passed ? check(state, "a collective on GPU memory") : Status();
}

}  // namespace flx::cuda
