/// An NCCL for tests in which two processes share a GPU: it makes communicators, and what it is to carry out waits on
/// its stream until the communicator is aborted, as a kernel does whose peer never comes.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "runtime/front/nccl/exports.h"

struct ncclComm {
    int rank = 0;
    int ranks = 1;
    int device = 0;
    volatile uint32_t *word = nullptr;  ///< 1: aborted
    CUdeviceptr mapped = 0;
};

namespace {

template <typename Function>
Function driver(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
}

std::string name_of(const ncclUniqueId &id) {
    std::string name = "/flx-one-gpu-";
    constexpr int kBytes = 8;
    for (int i = 0; i < kBytes; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(id.internal[i])));
        name += digits;
    }
    return name;
}

/// Returns when so many have come.
bool meet(const std::string &name, int ranks) {
    using Count = std::atomic<int>;
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Count)) != 0)
        return false;
    void *memory = mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return false;
    auto *come = static_cast<Count *>(memory);
    if (come->fetch_add(1) + 1 == ranks)
        shm_unlink(name.c_str());
    while (come->load() < ranks)
        usleep(100);
    munmap(memory, sizeof(Count));
    return true;
}

ncclResult_t park(ncclComm_t comm, cudaStream_t stream) {
    const auto wait = driver<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWaitValue32_v2");
    const bool done = wait != nullptr && wait(reinterpret_cast<CUstream>(stream), comm->mapped, 1,
                                              CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    return done ? ncclSuccess : ncclUnhandledCudaError;
}

}  // namespace

FLX_EXPORT ncclResult_t ncclGetVersion(int *version) {
    *version = 22809;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    std::random_device random;
    for (char &byte : id->internal)
        byte = static_cast<char>(random());
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    auto *made = new ncclComm;
    made->rank = rank;
    made->ranks = nranks;
    void *word = nullptr;
    constexpr unsigned kPortableMapped = 3;
    const auto allocate = driver<CUresult (*)(void **, size_t, unsigned)>("cuMemHostAlloc");
    const auto map = driver<CUresult (*)(CUdeviceptr *, void *, unsigned)>("cuMemHostGetDevicePointer_v2");
    const auto device = driver<CUresult (*)(int *)>("cuCtxGetDevice");
    if (allocate == nullptr || allocate(&word, sizeof(uint64_t), kPortableMapped) != CUDA_SUCCESS ||
        map(&made->mapped, word, 0) != CUDA_SUCCESS || device(&made->device) != CUDA_SUCCESS ||
        !meet(name_of(id), nranks))
        return ncclUnhandledCudaError;
    std::memset(word, 0, sizeof(uint64_t));
    made->word = static_cast<volatile uint32_t *>(word);
    *comm = made;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    *count = comm->ranks;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    *device = comm->device;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t *error) {
    *error = ncclSuccess;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t /*comm*/) {
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    *comm->word = 1;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclGroupStart() {
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclGroupEnd() {
    return ncclSuccess;
}
FLX_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "an error";
}
FLX_EXPORT const char *ncclGetLastError(ncclComm_t /*comm*/) {
    return "of the NCCL for one GPU";
}
FLX_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void * /*scalar*/, ncclDataType_t /*datatype*/,
                                                 ncclScalarResidence_t /*residence*/, ncclComm_t /*comm*/) {
    *op = static_cast<ncclRedOp_t>(ncclNumOps + 7);
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclAllReduce(const void * /*in*/, void * /*out*/, size_t /*count*/, ncclDataType_t /*type*/,
                                      ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
    return park(comm, stream);
}
