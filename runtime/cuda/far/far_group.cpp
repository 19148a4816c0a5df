#include "runtime/cuda/far/far_group.h"

#include <sched.h>

#include <algorithm>

#include "runtime/cuda/protocol/own_messages.h"
#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

/// Words are written and awaited by the GPU's front end: no multiprocessor is taken.
class CudaStream final : public FarStream {
  public:
    explicit CudaStream(CUstream_st *stream) : stream_(stream) {}

    Status wait(uint32_t *word, uint32_t value) override {
        CUstreamBatchMemOpParams &operation = add();
        operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        operation.waitValue.address = address(word);
        operation.waitValue.value = value;
        operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
        return room();
    }
    Status write(uint32_t *word, uint32_t value) override {
        CUstreamBatchMemOpParams &operation = add();
        operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        operation.writeValue.address = address(word);
        operation.writeValue.value = value;
        operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        return room();
    }
    Status copy_out(char *host, const char *device, uint64_t bytes) override {
        return copy(host, device, bytes, cudaMemcpyDeviceToHost);
    }
    Status copy_in(char *device, const char *host, uint64_t bytes) override {
        return copy(device, host, bytes, cudaMemcpyHostToDevice);
    }
    Status end() override {
        if (count_ == 0)
            return {};
        const CUresult error = driver().batch_memory(stream_, std::exchange(count_, 0), operations_.data(), 0);
        if (error != CUDA_SUCCESS)
            return fail(Fault::gpu_error, "CUDA refused flags on a stream: error {}", static_cast<int>(error));
        return {};
    }

  private:
    static CUdeviceptr address(uint32_t *word) { return reinterpret_cast<CUdeviceptr>(word); }
    CUstreamBatchMemOpParams &add() { return operations_[count_++] = {}; }
    Status room() {
        if (count_ == operations_.size())
            return end();
        return {};
    }
    Status copy(char *to, const char *from, uint64_t bytes, cudaMemcpyKind way) {
        FLX_TRY(end());
        return check(cudaMemcpyAsync(to, from, bytes, way, stream_), "a copy between GPU and host memory");
    }

    CUstream_st *stream_;
    std::array<CUstreamBatchMemOpParams, 8> operations_;
    unsigned count_ = 0;
};

/// What carries out a piece is a thread, which no replay of a graph would call.
Status check_not_captured(CUstream_st *stream) {
    if (!captures(stream))
        return {};
    return fail(Fault::not_captured,
                "collectives and messages on GPU memory between hosts cannot be captured into a graph, since the host "
                "carries them out; call them outside the capture");
}

}  // namespace

bool captures(CUstream_st *stream) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    const bool known = cudaStreamIsCapturing(stream, &state) == cudaSuccess;
    cudaGetLastError();  // the legacy stream cannot be asked while another one is captured, nor used
    return !known || state != cudaStreamCaptureStatusNone;
}

Status FarGroup::make(const Config &config) {
    rank_ = bootstrap_.rank();
    ranks_ = bootstrap_.size();
    std::vector<std::string> all;
    FLX_TRY(bootstrap_.allgather_text(config.values_of(KnobScope::gpus), all));
    for (int rank = 0; rank < ranks_; ++rank)
        FLX_TRY(compare_knobs(0, all[0], rank, all[rank]));
    FLX_TRY(agree(bootstrap_, allocate(config)));
    lanes_ = std::make_unique<FarLanes>(*host_, rank_, layout_, memory_, tiers_);
    return {};
}

Status FarGroup::allocate(const Config &config) {
    const uint64_t pinned = config.size("FLX_CUDA_PINNED");
    layout_ = FarLayout::fit(ranks_, pinned);
    if (layout_.slot_bytes == 0)
        return fail(Fault::pinned_too_small,
                    "FLX_CUDA_PINNED is {} bytes, too little for GPU memory between hosts, which goes through pinned "
                    "host memory",
                    pinned);
    if (driver().batch_memory == nullptr)
        return fail(Fault::driver_lacks, "GPU memory between hosts needs cuStreamBatchMemOp, which the driver lacks");
    int device = 0;
    FLX_TRY_CUDA(cudaGetDevice(&device));
    void *memory = nullptr;
    FLX_TRY_CUDA(cudaHostAlloc(&memory, layout_.bytes(), cudaHostAllocMapped | cudaHostAllocPortable));
    memory_ = static_cast<char *>(memory);
    device_ = device;
    FLX_TRY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    FLX_TRY_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    sides_.resize(2 * static_cast<size_t>(ranks_));
    return {};
}

FarGroup::~FarGroup() {
    if (device_ < 0)
        return;
    const CurrentDevice current(device_);
    if (lanes_ != nullptr) {
        if (lanes_->busy())
            lanes_->give_up(fail(Fault::comm_ended, "the communicator was freed while GPUs used it"));
        cudaDeviceSynchronize();
        lanes_->stop();
    }
    host_.reset();  // what it has under way is in the memory
    lanes_.reset();
    cudaFreeHost(memory_);
    sides_.push_back(stream_);
    for (cudaStream_t stream : sides_)
        if (stream != nullptr)
            cudaStreamDestroy(stream);
    if (event_ != nullptr)
        cudaEventDestroy(event_);
    cudaGetLastError();
}

void FarGroup::drain() {
    while (lanes_->busy()) {
        health_.progress();
        sched_yield();
    }
}

void FarGroup::close() {
    drain();
    const CurrentDevice current(device_);
    cudaDeviceSynchronize();
    if (lanes_->failure().ok()) {
        lanes_->stop();
        host_->close();
    }
}

Status FarGroup::failure() const {
    FLX_TRY(lanes_->failure());
    return host_->told();
}

Status FarGroup::ready(CUstream_st *stream) const {
    FLX_TRY(lanes_->failure());
    const CurrentDevice current(device_);
    return check_not_captured(stream);
}

Status FarGroup::enqueue(const Operation &call, CUstream_st *stream) {
    if (call.count == 0)
        return lanes_->failure();
    FLX_TRY(ready(stream));
    const CurrentDevice current(device_);
    CudaStream lane(stream);
    return lanes_->enqueue(call, lane);
}

Status FarGroup::enqueue_across(const Operation &call, uint64_t apart, CUstream_st *stream) {
    const CurrentDevice current(device_);
    CudaStream lane(stream);
    return lanes_->enqueue_across(call, apart, lane);
}

Status FarGroup::finish() {
    constexpr int kSpins = 2000;
    for (int turn = 0;; ++turn) {
        const cudaError_t state = cudaStreamQuery(stream_);
        if (state == cudaSuccess)
            return lanes_->failure();
        if (state != cudaErrorNotReady)
            return check(state, "copies between GPU and host memory");
        if (turn > kSpins) {
            health_.progress();
            sched_yield();
        }
    }
}

Status FarGroup::side_stream(uint32_t lane, CUstream_st *&stream) {
    if (sides_[lane] == nullptr)
        FLX_TRY_CUDA(cudaStreamCreateWithFlags(&sides_[lane], cudaStreamNonBlocking));
    stream = sides_[lane];
    return {};
}

/// Messages must not wait for each other, which a stream would make them do: each lane has one of its own.
Status FarGroup::post_apart(std::span<const Message> messages, CUstream_st *stream) {
    FLX_TRY_CUDA(cudaEventRecord(event_, stream));
    std::vector<bool> used(sides_.size());
    for (const Message &message : messages) {
        if (message.peer == rank_ || message.bytes == 0)
            continue;
        const uint32_t lane = FarLanes::lane_of(message);
        CUstream_st *side = nullptr;
        FLX_TRY(side_stream(lane, side));
        if (!used[lane])
            FLX_TRY_CUDA(cudaStreamWaitEvent(side, event_, 0));
        used[lane] = true;
        CudaStream of_lane(side);
        FLX_TRY(lanes_->enqueue(message, of_lane));
    }
    for (size_t lane = 0; lane < sides_.size(); ++lane) {
        if (!used[lane])
            continue;
        FLX_TRY_CUDA(cudaEventRecord(event_, sides_[lane]));
        FLX_TRY_CUDA(cudaStreamWaitEvent(stream, event_, 0));
    }
    return {};
}

Status FarGroup::post(std::span<const Message> messages, CUstream_st *stream) {
    FLX_TRY(lanes_->failure());
    const CurrentDevice current(device_);
    FLX_TRY(check_not_captured(stream));
    std::vector<OwnMessage> own;
    FLX_TRY(own_messages(messages, rank_, own));
    FLX_TRY(copy_own(own, stream));
    const auto carried = [this](const Message &message) { return message.peer != rank_ && message.bytes != 0; };
    const auto only = std::find_if(messages.begin(), messages.end(), carried);
    if (only == messages.end())
        return {};
    if (std::count_if(messages.begin(), messages.end(), carried) > 1)
        return post_apart(messages, stream);
    CudaStream lane(stream);
    return lanes_->enqueue(*only, lane);
}

/// Nothing is gained by it here; the calls mean the same as on one host.
Status FarGroup::add_memory(void *memory, size_t bytes) {
    Status status;
    auto *base = static_cast<char *>(memory);
    for (const auto &[known, length] : regions_)
        if (base < known + length && known < base + bytes)
            status = fail(Fault::registration,
                          "memory at {} is registered already; it can be registered again when it was deregistered",
                          static_cast<const void *>(memory));
    FLX_TRY(agree(bootstrap_, std::move(status)));
    regions_.emplace_back(base, bytes);
    return {};
}

Status FarGroup::remove_memory(void *memory) {
    const auto found =
        std::find_if(regions_.begin(), regions_.end(), [&](const auto &region) { return region.first == memory; });
    FLX_TRY(agree(
        bootstrap_,
        found != regions_.end()
            ? Status()
            : fail(Fault::registration,
                   "no memory that begins at {} is registered; it is deregistered by the address it was registered by",
                   static_cast<const void *>(memory))));
    regions_.erase(found);
    return {};
}

std::vector<GpuLink> FarGroup::links() const {
    GpuLink nvlink;
    nvlink.name = kNvlink;
    nvlink.why_off = "ranks are on several hosts";
    GpuLink pcie;
    pcie.name = kPcie;
    pcie.bytes_sent = lanes_->bytes_out();
    pcie.share = 1;
    return {nvlink, pcie};
}

std::vector<std::string> FarGroup::report(const std::string &form, const std::vector<GpuLink> &links) const {
    cudaDeviceProp properties{};
    cudaGetDeviceProperties(&properties, device_);
    std::vector<std::string> lines{
        fmt::format("device {}: {}", device_, properties.name),
        fmt::format(
            "ranks are on several hosts: GPU memory goes through {:.1f} MiB of pinned host memory, in pieces of "
            "{:.1f} MiB at most ({:.1f} for messages), and from there as host memory does; no graphs",
            layout_.bytes() / 1048576.0, layout_.slot_bytes / 1048576.0, layout_.message_bytes / 1048576.0),
        form};
    for (const GpuLink &link : links)
        lines.push_back(fmt::format("{:<12} {:<4}  {} bytes sent{}{}", link.name, link.why_off.empty() ? "on" : "off",
                                    link.bytes_sent, link.why_off.empty() ? "" : "  ", link.why_off));
    for (std::string &line : lanes_->busy() ? std::vector<std::string>{} : host_->report())  // else a thread has it
        lines.push_back(std::move(line));
    return lines;
}

}  // namespace flx::cuda
