#include "runtime/cuda/near/staged_link.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <vector>

#include "runtime/cuda/protocol/lane.h"

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

/// A lane as a Machine of runtime/cuda/protocol/staging.h: copy engines, and flags by streams. After an error nothing
/// more is put on them.
class StagedLink::StreamLane {
  public:
    StreamLane(StagedLink &link, Lane lane) : link_(link), stream_(link.stream_of(lane)) {}

    void tell(Signal signal, uint32_t peers, uint32_t count) {
        if (status_.ok())
            status_ = link_.flags_.tell(channel_of(signal), peers, more(link_.told_, signal, count), stream_);
    }
    bool hear(Signal signal, uint32_t peers, uint32_t count) {
        if (status_.ok())
            status_ = link_.flags_.hear(channel_of(signal), peers, more(link_.heard_, signal, count), stream_);
        return status_.ok();
    }
    void fill(uint64_t slot, const char *from, uint64_t bytes) {
        copy(link_.slots_ + slot, from, bytes, cudaMemcpyDeviceToHost);
    }
    void drain(char *to, uint64_t slot, uint64_t bytes) {
        copy(to, link_.slots_ + slot, bytes, cudaMemcpyHostToDevice);
    }
    [[nodiscard]] Status status() { return std::move(status_); }

  private:
    static uint32_t more(std::array<uint32_t, 2> &counts, Signal signal, uint32_t count) {
        return count - std::exchange(counts[static_cast<size_t>(signal)], count);
    }
    void copy(char *to, const char *from, uint64_t bytes, cudaMemcpyKind way) {
        if (bytes != 0 && status_.ok())
            status_ = check(cudaMemcpyAsync(to, from, bytes, way, stream_), "a copy through host memory");
    }

    StagedLink &link_;
    CUstream_st *stream_;
    Status status_;
};

Status StagedLink::open(Bootstrap &bootstrap, int device, uint64_t pinned, uint64_t table, uint32_t blocks) {
    const auto ranks = static_cast<uint64_t>(bootstrap.size());
    table_bytes_ = whole_pages(table);
    teams_ = std::clamp<uint32_t>(blocks / 2, 1, kLaneTeams);
    // Half of what is free is left to others.
    const uint64_t room = shm::Segment::room() / 2 / ranks;
    uint64_t mine = std::min(pinned, room) / kPage * kPage;
    std::vector<uint64_t> all(ranks);
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    pinned_ = *std::min_element(all.begin(), all.end());
    if (pinned_ < kLeastPinned)
        return fail(Fault::pinned_too_small, "/dev/shm has room for {} bytes a rank; {} are needed at least", pinned_,
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
    void *mapped = nullptr;
    FLX_TRY_CUDA(cudaHostGetDevicePointer(&mapped, segment_->base(), 0));
    slots_ = static_cast<char *>(mapped) + table_bytes_;
    // Few blocks, which shall not wait behind many of the program's that have not begun.
    int least = 0;
    int most = 0;
    FLX_TRY_CUDA(cudaDeviceGetStreamPriorityRange(&least, &most));
    for (cudaStream_t *stream : {&out_, &in_})
        FLX_TRY_CUDA(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, most));
    FLX_TRY_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    cudaFuncAttributes attributes{};
    FLX_TRY_CUDA(cudaFuncGetAttributes(&attributes, lane_kernel()));
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
    told_ = {};
    heard_ = {};
    FLX_TRY_CUDA(cudaEventRecord(event_, stream));
    return after(event_);
}

Status StagedLink::after(CUevent_st *event) {
    FLX_TRY_CUDA(cudaStreamWaitEvent(out_, event, 0));
    FLX_TRY_CUDA(cudaStreamWaitEvent(in_, event, 0));
    return {};
}

Status StagedLink::advance(uint64_t end) {
    const uint32_t last = staging_.steps_before(end);
    if (step_ == last)
        return {};
    const uint32_t first = std::exchange(step_, last);
    if (!flags_.opened()) {
        // The order matters where both streams share a queue of the GPU's: what comes in is read before the next step
        // is written.
        FLX_TRY(launch(Lane::out, first, last));
        return launch(Lane::in, first, last);
    }
    for (uint32_t step = first; step < last; ++step) {
        FLX_TRY(enqueue(Lane::out, step, step + 1));
        FLX_TRY(enqueue(Lane::in, step, step + 1));
    }
    return {};
}

Status StagedLink::finish(CUstream_st *stream, CUevent_st *done) {
    if (flags_.opened()) {
        StreamLane lane(*this, Lane::out);
        end_writing(lane, staging_);
        FLX_TRY(lane.status());
    }
    FLX_TRY_CUDA(cudaEventRecord(event_, out_));
    FLX_TRY_CUDA(cudaStreamWaitEvent(in_, event_, 0));
    if (done != nullptr)
        FLX_TRY_CUDA(cudaEventRecord(done, in_));
    FLX_TRY_CUDA(cudaEventRecord(event_, in_));
    FLX_TRY_CUDA(cudaStreamWaitEvent(stream, event_, 0));
    return {};
}

Status StagedLink::launch(Lane lane, uint32_t first, uint32_t last) {
    LaneRun run{staging_, slots_, lane, first, last};
    void *arguments[] = {&run};
    const dim3 threads(lane == Lane::in ? kReadingThreads : kWritingThreads);
    return check(cudaLaunchKernel(lane_kernel(), dim3(teams_), threads, arguments, 0, stream_of(lane)),
                 "a kernel's launch");
}

Status StagedLink::enqueue(Lane lane, uint32_t first, uint32_t last) {
    StreamLane machine(*this, lane);
    if (lane == Lane::out)
        write_steps(machine, staging_, first, last);
    else
        read_steps(machine, staging_, first, last);
    return machine.status();
}

}  // namespace flx::cuda
