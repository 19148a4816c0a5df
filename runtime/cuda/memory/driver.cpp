#include "runtime/cuda/memory/driver.h"

#include <dlfcn.h>

#include <atomic>

#include "runtime/cuda/memory/gpu.h"

namespace flx::cuda {
namespace {

constexpr unsigned kVersion = 12000;

/// `version`: whose form of the function it is.
template <typename Function>
bool find(const char *name, Function &function, unsigned version = kVersion) {
    void *address = nullptr;
    cudaDriverEntryPointQueryResult found{};
    if (cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    function = reinterpret_cast<Function>(address);
    return true;
}

Driver look_for_driver() {
    Driver driver;
    const cudaError_t error = cudaGetDeviceCount(&driver.devices);
    cudaGetLastError();  // what was expected here is no concern of the program's own checks
    if (error != cudaSuccess || driver.devices == 0)
        driver.why_none = error == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(error);
    else if (!find("cuPointerGetAttribute", driver.pointer_attribute) ||
             !find("cuMemGetAddressRange", driver.address_range) ||
             !find("cuDevicePrimaryCtxGetState", driver.context_state))
        driver.why_none = "the driver lacks a function that FLX needs";
    driver.maps = driver.why_none.empty() && find("cuMemRetainAllocationHandle", driver.retain) &&
                  find("cuMemRelease", driver.release) && find("cuMemExportToShareableHandle", driver.export_handle) &&
                  find("cuMemImportFromShareableHandle", driver.import_handle) &&
                  find("cuMemAddressReserve", driver.reserve) && find("cuMemAddressFree", driver.unreserve) &&
                  find("cuMemMap", driver.map) && find("cuMemUnmap", driver.unmap) &&
                  find("cuMemSetAccess", driver.set_access) && find("cuMemGetAccess", driver.get_access);
    find("cuStreamBatchMemOp", driver.batch_memory);
    constexpr unsigned kPlainContexts = 4000;
    if (find("cuCtxCreate", driver.create_context, kPlainContexts) && find("cuCtxDestroy", driver.destroy_context) &&
        find("cuCtxPopCurrent", driver.pop_context))
        find("cuCtxPushCurrent", driver.push_context);
    cudaGetLastError();
    return driver;
}

/// Whether anybody in this process has initialised the driver, as comes before any use of a GPU. Programs that have
/// none pay for this in every call: it takes no lock, and does not initialise the driver itself.
bool initialised() {
    static const auto current = [] {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        return library == nullptr ? nullptr
                                  : reinterpret_cast<decltype(&cuCtxGetCurrent)>(dlsym(library, "cuCtxGetCurrent"));
    }();
    CUcontext context = nullptr;
    return current != nullptr && current(&context) != CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace

Status check(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return {};
    cudaGetLastError();
    return fail(Fault::gpu_error, "CUDA refused {}: {}", what, cudaGetErrorString(error));
}

const Driver &driver() {
    static const Driver found = look_for_driver();
    return found;
}

const std::string &why_none() {
    return driver().why_none;
}

void stay_on(int device) {
    cudaSetDevice(device);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaGetLastError();
}

Status capture_of(cudaStream_t stream, Capture &capture) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *edges = nullptr;
    FLX_TRY_CUDA(cudaStreamGetCaptureInfo(stream, &state, &capture.number, &capture.graph, &capture.after, &edges,
                                          &capture.count));
#else
    FLX_TRY_CUDA(
        cudaStreamGetCaptureInfo(stream, &state, &capture.number, &capture.graph, &capture.after, &capture.count));
#endif
    if (state != cudaStreamCaptureStatusActive)
        return fail(Fault::gpu_error, "the capture of a graph has become invalid");
    return {};
}

bool is_open(int device) {
    unsigned flags = 0;
    int active = 0;
    return driver().context_state(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

bool in_use() {
    static std::atomic<bool> once{false};  // contexts stay
    if (once.load(std::memory_order_relaxed))
        return true;
    if (!initialised() || !driver().why_none.empty())
        return false;
    for (int device = 0; device < driver().devices; ++device) {
        if (is_open(device)) {
            once.store(true, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

bool on_device(const void *memory) {
    if (memory == nullptr || !in_use())
        return false;
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

unsigned long long allocation_of(const void *memory) {
    unsigned long long id = 0;
    if (driver().pointer_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<CUdeviceptr>(memory)) !=
        CUDA_SUCCESS)
        return 0;
    return id;
}

}  // namespace flx::cuda
