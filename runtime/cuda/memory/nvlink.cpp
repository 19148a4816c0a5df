#include "runtime/cuda/memory/nvlink.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace flx::cuda {
namespace {

Wire by_cuda(int device, const char *bus) {
    int other = -1;
    int atomics = 0;
    const bool known =
        cudaDeviceGetByPCIBusId(&other, bus) == cudaSuccess && other != device &&
        cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, other) == cudaSuccess;
    cudaGetLastError();
    if (!known)
        return Wire::unknown;
    return atomics != 0 ? Wire::nvlink : Wire::other;  // PCIe carries none between GPUs
}

/// NVML comes with the driver. Its functions are declared here as nvml.h does; 0 is success.
struct Nvml {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)() = find<int (*)()>("nvmlInit_v2");
    int (*shutdown)() = find<int (*)()>("nvmlShutdown");
    int (*by_bus)(const char *, void **) = find<int (*)(const char *, void **)>("nvmlDeviceGetHandleByPciBusId_v2");
    int (*status)(void *, void *, int, int *) = find<int (*)(void *, void *, int, int *)>("nvmlDeviceGetP2PStatus");

    [[nodiscard]] bool complete() const {
        return init != nullptr && shutdown != nullptr && by_bus != nullptr && status != nullptr;
    }

  private:
    template <typename Function>
    Function find(const char *name) const {
        return reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
    }
};

Wire by_nvml(const char *own, const char *bus) {
    constexpr int kOverNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
    static const Nvml nvml;
    if (!nvml.complete() || nvml.init() != 0)
        return Wire::unknown;
    void *from = nullptr;
    void *to = nullptr;
    int status = -1;
    const bool known =
        nvml.by_bus(own, &from) == 0 && nvml.by_bus(bus, &to) == 0 && nvml.status(from, to, kOverNvlink, &status) == 0;
    nvml.shutdown();
    if (!known)
        return Wire::unknown;
    return status == 0 ? Wire::nvlink : Wire::other;
}

}  // namespace

Wire wire_to(int device, const char *own, const char *bus) {
    const Wire wire = by_cuda(device, bus);
    return wire == Wire::unknown ? by_nvml(own, bus) : wire;
}

}  // namespace flx::cuda
