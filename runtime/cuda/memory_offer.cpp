#include "memory_offer.h"

#include <cstring>

#include "driver.h"

namespace flx::cuda {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryOffer::handle));

Status offer_memory(uint64_t process, char *base, uint64_t bytes, int device, MemoryOffer &offer) {
    CUdeviceptr begin = 0;
    size_t length = 0;
    if (driver().address_range(&begin, &length, reinterpret_cast<CUdeviceptr>(base)) != CUDA_SUCCESS)
        return fail(FLX_ERR_ARGUMENT, "{} is not device memory", static_cast<const void *>(base));
    offer.process = process;
    offer.base = base;
    offer.bytes = bytes;
    offer.offset = reinterpret_cast<CUdeviceptr>(base) - begin;
    offer.allocation_bytes = length;
    offer.device = device;
    if (offer.offset + bytes > length)
        return fail(FLX_ERR_ARGUMENT, "{} bytes from {} reach past the end of their allocation", bytes,
                    static_cast<const void *>(base));
    cudaIpcMemHandle_t handle;
    const cudaError_t error = cudaIpcGetMemHandle(&handle, reinterpret_cast<void *>(begin));
    if (error != cudaSuccess) {
        cudaGetLastError();
        return fail(FLX_ERR_UNSUPPORTED,
                    "this memory cannot be opened by other processes ({}); memory from cudaMalloc can",
                    cudaGetErrorString(error));
    }
    std::memcpy(offer.handle.data(), &handle, sizeof handle);
    return {};
}

OpenedMemory &OpenedMemory::operator=(OpenedMemory &&other) noexcept {
    if (this != &other) {
        close();
        base_ = std::exchange(other.base_, nullptr);
        mapped_ = std::exchange(other.mapped_, nullptr);
    }
    return *this;
}

Status OpenedMemory::open(const MemoryOffer &offer, uint64_t process, int device) {
    close();
    if (offer.process == process) {
        if (offer.device != device) {
            const cudaError_t error = cudaDeviceEnablePeerAccess(offer.device, 0);
            if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
                FLX_TRY(check(error, "peer access"));
            cudaGetLastError();
        }
        base_ = offer.base;
        return {};
    }
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, offer.handle.data(), sizeof handle);
    FLX_TRY_CUDA(cudaIpcOpenMemHandle(&mapped_, handle, cudaIpcMemLazyEnablePeerAccess));
    base_ = static_cast<char *>(mapped_) + offer.offset;
    return {};
}

void OpenedMemory::close() {
    if (mapped_ != nullptr)
        cudaIpcCloseMemHandle(mapped_);
    mapped_ = nullptr;
    base_ = nullptr;
}

}  // namespace flx::cuda
