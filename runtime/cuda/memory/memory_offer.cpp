#include "runtime/cuda/memory/memory_offer.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <list>
#include <mutex>

#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryOffer::handle));

namespace {

/// Exports memory that the driver's mapping functions made, if its owner meant it to be shared.
bool export_mapped(CUdeviceptr begin, int &file) {
    CUmemGenericAllocationHandle allocation = 0;
    if (!driver().maps || driver().retain(&allocation, reinterpret_cast<void *>(begin)) != CUDA_SUCCESS)
        return false;
    const CUresult result = driver().export_handle(&file, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    driver().release(allocation);
    return result == CUDA_SUCCESS;
}

/// The other process's file, here as well. Allowed where one may read the other's memory.
Status take_file(int pid, int file, int &taken) {
    const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    taken = process < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_getfd, process, file, 0));
    const int error = errno;
    if (process >= 0)
        ::close(process);
    return taken >= 0 ? Status()
                      : fail(Fault::gpu_memory_closed, "mapped memory of process {} cannot be opened here: {}", pid,
                             std::strerror(error));
}

/// Memory of other processes that stays open here, since closing it may wait for all that runs on the GPU.
struct Opened {
    uint64_t process = 0;
    unsigned long long name = 0;
    int device = 0;  ///< it is open on
    int pid = 0;
    void *memory = nullptr;
    int users = 0;
};
struct AllOpened {
    std::mutex mutex;
    std::list<Opened> list;
};
AllOpened &all_opened() {
    static auto *const only = new AllOpened;
    return *only;
}

Status open_kept(const MemoryOffer &offer, int device, Opened *&opened) {
    AllOpened &all = all_opened();
    const std::lock_guard lock(all.mutex);
    auto found = std::find_if(all.list.begin(), all.list.end(), [&](const Opened &entry) {
        return entry.process == offer.process && entry.name == offer.kept && entry.device == device;
    });
    if (found == all.list.end()) {
        cudaIpcMemHandle_t handle;
        std::memcpy(&handle, offer.handle.data(), sizeof handle);
        void *memory = nullptr;
        FLX_TRY_CUDA(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
        found = all.list.insert(all.list.end(), {offer.process, offer.kept, device, offer.pid, memory, 0});
    }
    ++found->users;
    opened = &*found;
    return {};
}

void leave_kept(Opened &entry) {
    const std::lock_guard lock(all_opened().mutex);
    --entry.users;
}

}  // namespace

void close_kept_of_dead() {
    AllOpened &all = all_opened();
    std::list<Opened> going;
    {
        const std::lock_guard lock(all.mutex);
        for (auto entry = all.list.begin(); entry != all.list.end();) {
            const auto next = std::next(entry);
            if (entry->users == 0 && kill(entry->pid, 0) != 0 && errno == ESRCH)
                going.splice(going.end(), all.list, entry);
            entry = next;
        }
    }
    for (const Opened &entry : going) {
        const CurrentDevice current(entry.device);
        cudaIpcCloseMemHandle(entry.memory);
        cudaGetLastError();
    }
}

Status offer_memory(uint64_t process, char *base, uint64_t bytes, int device, MemoryOffer &offer) {
    CUdeviceptr begin = 0;
    size_t length = 0;
    if (driver().address_range(&begin, &length, reinterpret_cast<CUdeviceptr>(base)) != CUDA_SUCCESS)
        return fail(Fault::not_device_memory, "{} is not device memory; memory from cudaMalloc is needed",
                    static_cast<const void *>(base));
    offer.process = process;
    offer.base = base;
    offer.bytes = bytes;
    offer.offset = reinterpret_cast<CUdeviceptr>(base) - begin;
    offer.allocation_bytes = length;
    offer.device = device;
    offer.pid = getpid();
    if (offer.offset + bytes > length)
        return fail(Fault::not_device_memory, "{} bytes from {} reach past the end of their allocation", bytes,
                    static_cast<const void *>(base));
    cudaIpcMemHandle_t handle;
    const cudaError_t error = cudaIpcGetMemHandle(&handle, reinterpret_cast<void *>(begin));
    if (error != cudaSuccess) {
        cudaGetLastError();
        offer.mapped = export_mapped(begin, offer.file);
        if (offer.mapped)
            return {};
        return fail(Fault::gpu_memory_closed,
                    "this memory cannot be opened by other processes ({}); memory from cudaMalloc can",
                    cudaGetErrorString(error));
    }
    std::memcpy(offer.handle.data(), &handle, sizeof handle);
    return {};
}

void withdraw(MemoryOffer &offer) {
    if (offer.file >= 0)
        ::close(std::exchange(offer.file, -1));
}

OpenedMemory &OpenedMemory::operator=(OpenedMemory &&other) noexcept {
    if (this != &other) {
        close();
        base_ = std::exchange(other.base_, nullptr);
        opened_ = std::exchange(other.opened_, nullptr);
        shared_ = std::exchange(other.shared_, nullptr);
        reserved_ = std::exchange(other.reserved_, 0);
        mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
    }
    return *this;
}

Status OpenedMemory::open(const MemoryOffer &offer, uint64_t process, int device) {
    close();
    if (offer.process == process) {
        if (offer.mapped) {
            // Who mapped it said which GPUs may use it.
            unsigned long long access = 0;
            const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, device};
            if (driver().get_access(&access, &here, reinterpret_cast<CUdeviceptr>(offer.base)) != CUDA_SUCCESS ||
                access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return fail(Fault::gpu_memory_closed, "device {} has no access to mapped memory of device {}", device,
                            offer.device);
        } else if (offer.device != device) {
            const cudaError_t error = cudaDeviceEnablePeerAccess(offer.device, 0);
            if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)
                FLX_TRY(check(error, "peer access"));
            cudaGetLastError();
        }
        base_ = offer.base;
        return {};
    }
    if (offer.mapped)
        return map(offer, device);
    if (offer.kept != 0) {
        Opened *entry = nullptr;
        FLX_TRY(open_kept(offer, device, entry));
        shared_ = entry;
        base_ = static_cast<char *>(entry->memory) + offer.offset;
        return {};
    }
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, offer.handle.data(), sizeof handle);
    FLX_TRY_CUDA(cudaIpcOpenMemHandle(&opened_, handle, cudaIpcMemLazyEnablePeerAccess));
    base_ = static_cast<char *>(opened_) + offer.offset;
    return {};
}

Status OpenedMemory::map(const MemoryOffer &offer, int device) {
    int file = -1;
    FLX_TRY(take_file(offer.pid, offer.file, file));
    CUmemGenericAllocationHandle allocation = 0;
    const CUresult imported = driver().import_handle(&allocation, reinterpret_cast<void *>(static_cast<intptr_t>(file)),
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ::close(file);
    if (imported != CUDA_SUCCESS)
        return fail(Fault::gpu_error, "CUDA refused to import mapped memory of process {}", offer.pid);
    const uint64_t bytes = offer.allocation_bytes;
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    bool done = driver().reserve(&at, bytes, 0, 0, 0) == CUDA_SUCCESS;
    if (done) {
        done = driver().map(at, bytes, 0, allocation, 0) == CUDA_SUCCESS;
        if (done && driver().set_access(at, bytes, &access, 1) != CUDA_SUCCESS) {
            driver().unmap(at, bytes);
            done = false;
        }
        if (!done)
            driver().unreserve(at, bytes);
    }
    driver().release(allocation);
    if (!done)
        return fail(Fault::gpu_error, "CUDA refused to map {} bytes of process {}", bytes, offer.pid);
    reserved_ = at;
    mapped_bytes_ = bytes;
    base_ = reinterpret_cast<char *>(at) + offer.offset;
    return {};
}

void OpenedMemory::close() {
    if (opened_ != nullptr)
        cudaIpcCloseMemHandle(opened_);
    if (mapped_bytes_ > 0) {
        driver().unmap(reserved_, mapped_bytes_);
        driver().unreserve(reserved_, mapped_bytes_);
    }
    if (shared_ != nullptr)
        leave_kept(*static_cast<Opened *>(shared_));
    opened_ = shared_ = nullptr;
    reserved_ = mapped_bytes_ = 0;
    base_ = nullptr;
}

}  // namespace flx::cuda
