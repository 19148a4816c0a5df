/// \file driver.h
/// CUDA calls as values of Status, and the few functions of the driver that the runtime has no equivalent for. The
/// driver is found at run time: libflx loads where there is none.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "runtime/base/status.h"

namespace flx::cuda {

Status check(cudaError_t error, const char *what);

struct Driver {
    decltype(&cuPointerGetAttribute) pointer_attribute = nullptr;
    decltype(&cuMemGetAddressRange) address_range = nullptr;
    decltype(&cuDevicePrimaryCtxGetState) context_state = nullptr;
    // All four, or the last one is null.
    CUresult (*create_context)(CUcontext *, unsigned, CUdevice) = nullptr;  ///< as in CUDA 4 to 12
    decltype(&cuCtxDestroy) destroy_context = nullptr;
    decltype(&cuCtxPopCurrent) pop_context = nullptr;
    decltype(&cuCtxPushCurrent) push_context = nullptr;
    // Memory mapped by the driver's own functions, as ncclMemAlloc's is. Null in drivers that lack one.
    decltype(&cuMemRetainAllocationHandle) retain = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
    decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) unreserve = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    decltype(&cuMemGetAccess) get_access = nullptr;
    bool maps = false;                                     ///< none of them is null
    decltype(&cuStreamBatchMemOp) batch_memory = nullptr;  ///< may be null
    int devices = 0;                                       ///< that are visible
    std::string why_none;                                  ///< not empty: no GPU, and the functions are null
};
const Driver &driver();

/// Makes a device current for as long as it lives.
class CurrentDevice {
  public:
    explicit CurrentDevice(int device) {
        cudaGetDevice(&before_);
        if (before_ != device)
            cudaSetDevice(device);
        device_ = device;
    }
    ~CurrentDevice() {
        if (before_ != device_)
            cudaSetDevice(before_);
    }
    CurrentDevice(const CurrentDevice &) = delete;
    CurrentDevice &operator=(const CurrentDevice &) = delete;

  private:
    int before_ = 0;
    int device_ = 0;
};

/// What is done while it lives is no part of a graph, and forbidden by no capture, of whatever thread.
class OutsideCaptures {
  public:
    OutsideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~OutsideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    OutsideCaptures(const OutsideCaptures &) = delete;
    OutsideCaptures &operator=(const OutsideCaptures &) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The calling thread's current GPU for good, and outside of captures for good: for threads of FLX's own, as going back
/// would open the GPU that CUDA names first.
void stay_on(int device);

/// Whether the program has opened that GPU in this process (FLX's own contexts aside).
bool is_open(int device);

/// Identifies an allocation for ever, also among those that had its address before; 0: none.
unsigned long long allocation_of(const void *memory);

/// What a stream is captured into.
struct Capture {
    unsigned long long number = 0;  ///< no other capture has it
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t *after = nullptr;  ///< nodes that the stream's next one comes after
    size_t count = 0;                        ///< of those
};
/// Of a stream that is being captured.
Status capture_of(cudaStream_t stream, Capture &capture);

}  // namespace flx::cuda

#define FLX_TRY_CUDA(call) FLX_TRY(::flx::cuda::check((call), #call))
