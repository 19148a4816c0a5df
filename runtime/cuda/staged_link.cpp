#include "staged_link.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <vector>

namespace flx::cuda {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t whole_pages(uint64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

StreamFlags::Channel channel_of(Signal signal) {
    return signal == Signal::filled ? StreamFlags::Channel::filled : StreamFlags::Channel::drained;
}

/// The NUMA node that the GPU is near; -1: not known, or there is one alone.
int node_of(int device) {
    char bus[32] = {};
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    std::string name(bus);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    int node = -1;
    std::ifstream("/sys/bus/pci/devices/" + name + "/numa_node") >> node;
    return node;
}

/// Pages that do not exist yet come from `node`, others move there where they may. Merely slower if it is refused.
void keep_near(std::byte *memory, uint64_t bytes, int node) {
    constexpr int kPreferred = 1;  // MPOL_PREFERRED
    constexpr unsigned kMove = 2;  // MPOL_MF_MOVE
    constexpr int kMostNodes = 64;
    if (node < 0 || node >= kMostNodes)
        return;
    const uint64_t mask = uint64_t{1} << node;
    syscall(SYS_mbind, memory, bytes, kPreferred, &mask, kMostNodes, kMove);
}

}  // namespace

Status StagedLink::open(Bootstrap &bootstrap, int device, uint64_t pinned, uint64_t table) {
    const auto ranks = static_cast<uint64_t>(bootstrap.size());
    table_bytes_ = whole_pages(table);
    // Half of what is free is left to others.
    const uint64_t room = shm::Segment::room() / 2 / ranks;
    uint64_t mine = std::min(pinned, room) / kPage * kPage;
    std::vector<uint64_t> all(ranks);
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    pinned_ = *std::min_element(all.begin(), all.end());
    if (pinned_ < kLeastPinned)
        return fail(FLX_ERR_UNSUPPORTED, "/dev/shm has room for {} bytes a rank; {} are needed at least", pinned_,
                    kLeastPinned);
    Status status = shm::Segment::make(bootstrap, table_bytes_ + ranks * pinned_, segment_);
    if (status.ok()) {
        status = agree(bootstrap, pin(device, ranks, static_cast<uint64_t>(bootstrap.rank())));
        (void)bootstrap.barrier().ok();
    }
    if (!status.ok())
        close();
    return status;
}

Status StagedLink::pin(int device, uint64_t ranks, uint64_t rank) {
    node_ = node_of(device);
    keep_near(segment_->base() + table_bytes_ + rank * pinned_, pinned_, node_);
    const cudaError_t error = cudaHostRegister(segment_->base(), table_bytes_ + ranks * pinned_,
                                               cudaHostRegisterPortable | cudaHostRegisterMapped);
    registered_ = error == cudaSuccess;
    if (error == cudaErrorHostMemoryAlreadyRegistered)  // by another rank that is a thread of this process
        cudaGetLastError();
    else
        FLX_TRY(check(error, "pinning host memory"));
    FLX_TRY_CUDA(cudaStreamCreateWithFlags(&out_, cudaStreamNonBlocking));
    FLX_TRY_CUDA(cudaStreamCreateWithFlags(&in_, cudaStreamNonBlocking));
    FLX_TRY_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    cudaFuncAttributes attributes{};
    FLX_TRY_CUDA(cudaFuncGetAttributes(&attributes, lane_step_kernel()));
    return {};
}

void StagedLink::close() {
    for (cudaStream_t *stream : {&out_, &in_})
        if (*stream != nullptr)
            cudaStreamDestroy(std::exchange(*stream, nullptr));
    if (event_ != nullptr)
        cudaEventDestroy(std::exchange(event_, nullptr));
    if (registered_)
        cudaHostUnregister(segment_->base());
    registered_ = false;
    segment_.reset();
}

Status StagedLink::begin(const Staging &staging, CUstream_st *stream) {
    staging_ = staging;
    step_ = 0;
    FLX_TRY_CUDA(cudaEventRecord(event_, stream));
    return after(event_);
}

Status StagedLink::after(CUevent_st *event) {
    FLX_TRY_CUDA(cudaStreamWaitEvent(out_, event, 0));
    FLX_TRY_CUDA(cudaStreamWaitEvent(in_, event, 0));
    return {};
}

Status StagedLink::advance(uint64_t end) {
    for (const uint32_t last = staging_.steps_before(end); step_ < last; ++step_) {
        FLX_TRY(write_steps(*this, staging_, step_, step_ + 1));
        FLX_TRY(read_steps(*this, staging_, step_, step_ + 1));
    }
    return {};
}

Status StagedLink::finish(CUstream_st *stream, CUevent_st *done) {
    FLX_TRY(end_reading(*this, staging_));
    FLX_TRY(end_writing(*this, staging_));
    FLX_TRY_CUDA(cudaEventRecord(event_, out_));
    FLX_TRY_CUDA(cudaStreamWaitEvent(in_, event_, 0));
    if (done != nullptr)
        FLX_TRY_CUDA(cudaEventRecord(done, in_));
    FLX_TRY_CUDA(cudaEventRecord(event_, in_));
    FLX_TRY_CUDA(cudaStreamWaitEvent(stream, event_, 0));
    return {};
}

Status StagedLink::tell(Lane lane, Signal signal, uint32_t peers, uint32_t times) {
    constexpr uint32_t kWarp = 32;
    if (flags_.opened())
        return flags_.tell(channel_of(signal), peers, times, stream_of(lane));
    LaneStep step{staging_.job, signal, peers, 0, times};
    void *arguments[] = {&step};
    return check(cudaLaunchKernel(lane_step_kernel(), dim3(1), dim3(kWarp), arguments, 0, stream_of(lane)),
                 "a kernel's launch");
}

Status StagedLink::hear(Lane lane, Signal signal, uint32_t peers, uint32_t times) {
    constexpr uint32_t kWarp = 32;
    if (flags_.opened())
        return flags_.hear(channel_of(signal), peers, times, stream_of(lane));
    LaneStep step{staging_.job, signal, 0, peers, times};
    void *arguments[] = {&step};
    return check(cudaLaunchKernel(lane_step_kernel(), dim3(1), dim3(kWarp), arguments, 0, stream_of(lane)),
                 "a kernel's launch");
}

Status StagedLink::fill(uint64_t slot, const char *from, uint64_t bytes) {
    if (bytes != 0)
        FLX_TRY_CUDA(cudaMemcpyAsync(slots() + slot, from, bytes, cudaMemcpyDeviceToHost, out_));
    return {};
}

Status StagedLink::drain(char *to, uint64_t slot, uint64_t bytes) {
    if (bytes != 0)
        FLX_TRY_CUDA(cudaMemcpyAsync(to, slots() + slot, bytes, cudaMemcpyHostToDevice, in_));
    return {};
}

}  // namespace flx::cuda
