#include "shared_memory.h"

#include <utility>
#include <vector>

namespace flx::cuda {
namespace {

/// What a rank tells the others of its memory.
struct Offer {
    uint64_t process;
    char *base;
    uint64_t offset;  ///< of base in the allocation that the handle names
    uint64_t bytes;
    uint64_t allocation_bytes;
    int device;
    cudaIpcMemHandle_t handle;
};

Status offer_memory(char *base, uint64_t bytes, Offer &offer) {
    CUdeviceptr begin = 0;
    size_t length = 0;
    if (driver().address_range(&begin, &length, reinterpret_cast<CUdeviceptr>(base)) != CUDA_SUCCESS)
        return fail(FLX_ERR_ARGUMENT, "{} is not device memory", static_cast<const void *>(base));
    offer.offset = reinterpret_cast<CUdeviceptr>(base) - begin;
    offer.allocation_bytes = length;
    if (offer.offset + bytes > length)
        return fail(FLX_ERR_ARGUMENT, "{} bytes from {} reach past the end of their allocation", bytes,
                    static_cast<const void *>(base));
    const cudaError_t error = cudaIpcGetMemHandle(&offer.handle, reinterpret_cast<void *>(begin));
    if (error != cudaSuccess) {
        cudaGetLastError();
        return fail(FLX_ERR_UNSUPPORTED,
                    "this memory cannot be opened by other processes ({}); memory from cudaMalloc can",
                    cudaGetErrorString(error));
    }
    return {};
}

Status take(const Offer &offer, int device, bool same_process, void *&opened, char *&base) {
    if (same_process) {
        if (offer.device != device) {
            const cudaError_t error = cudaDeviceEnablePeerAccess(offer.device, 0);
            if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
                FLX_TRY(check(error, "peer access"));
            cudaGetLastError();
        }
        base = offer.base;
        return {};
    }
    FLX_TRY_CUDA(cudaIpcOpenMemHandle(&opened, offer.handle, cudaIpcMemLazyEnablePeerAccess));
    base = static_cast<char *>(opened) + offer.offset;
    return {};
}

}  // namespace

SharedMemory &SharedMemory::operator=(SharedMemory &&other) noexcept {
    if (this != &other) {
        close();
        base_ = std::exchange(other.base_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
        allocation_ = other.allocation_;
        alike_ = other.alike_;
        paged_ = other.paged_;
        bases_ = std::exchange(other.bases_, {});
        opened_ = std::exchange(other.opened_, {});
    }
    return *this;
}

Status SharedMemory::open(Bootstrap &bootstrap, char *base, uint64_t bytes, int device, uint64_t process,
                          SharedMemory &result) {
    constexpr uintptr_t kWidest = 16;
    SharedMemory made;
    made.base_ = base;
    made.bytes_ = bytes;
    made.allocation_ = allocation_of(base);
    made.alike_ = true;
    made.paged_ = true;
    Offer mine{process, base, 0, bytes, 0, device, {}};
    FLX_TRY(agree(bootstrap, offer_memory(base, bytes, mine)));
    std::vector<Offer> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    Status status;
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
        made.alike_ =
            made.alike_ && all[rank].bytes == bytes &&
            reinterpret_cast<uintptr_t>(all[rank].base) % kWidest == reinterpret_cast<uintptr_t>(base) % kWidest;
        made.paged_ = made.paged_ && all[rank].allocation_bytes % kPage == 0;
        if (rank == bootstrap.rank())
            made.bases_[rank] = base;
        else if (status.ok())
            status = take(all[rank], device, all[rank].process == process, made.opened_[rank], made.bases_[rank]);
    }
    FLX_TRY(agree(bootstrap, std::move(status)));
    result = std::move(made);
    return {};
}

void SharedMemory::close() {
    for (void *&memory : opened_)
        if (memory != nullptr)
            cudaIpcCloseMemHandle(std::exchange(memory, nullptr));
    bases_ = {};
}

}  // namespace flx::cuda
