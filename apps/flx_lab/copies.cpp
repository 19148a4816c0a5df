#include "apps/flx_lab/copies.h"

#include <cuda_runtime_api.h>

#include <chrono>

namespace flx::bench::lab {
namespace {

constexpr size_t kBytes = 8 << 20;

}  // namespace

std::unique_ptr<Copies> Copies::make(int depth, std::string &why) {
    std::unique_ptr<Copies> copies(new Copies);
    bool ready = cudaGetDevice(&copies->device_) == cudaSuccess;
    for (int way = 0; way < 2; ++way)
        ready = ready && cudaHostAlloc(&copies->host_[way], kBytes, cudaHostAllocDefault) == cudaSuccess &&
                cudaMalloc(&copies->gpu_[way], kBytes) == cudaSuccess &&
                cudaStreamCreateWithFlags(&copies->streams_[way], cudaStreamNonBlocking) == cudaSuccess;
    copies->depth_ = depth;
    copies->ends_.resize(2 * static_cast<size_t>(depth));
    for (cudaEvent_t &end : copies->ends_)
        ready = ready && cudaEventCreateWithFlags(&end, cudaEventDisableTiming) == cudaSuccess;
    why = ready ? "" : "not enough memory for copies between host and GPU";
    return ready ? std::move(copies) : nullptr;
}

Copies::~Copies() {
    stop();
    for (int way = 0; way < 2; ++way) {
        if (streams_[way] != nullptr)
            cudaStreamDestroy(streams_[way]);
        cudaFreeHost(host_[way]);
        cudaFree(gpu_[way]);
    }
    for (cudaEvent_t end : ends_)
        if (end != nullptr)
            cudaEventDestroy(end);
}

void Copies::start() {
    turns_ = 0;
    running_ = true;
    thread_ = std::thread([this] { copy(); });
    while (turns_ < static_cast<size_t>(depth_))
        std::this_thread::yield();
}

void Copies::stop() {
    running_ = false;
    if (thread_.joinable())
        thread_.join();
}

/// Each way's next copy is queued when the one `depth_` before it is done.
void Copies::copy() {
    cudaSetDevice(device_);
    const auto begin = std::chrono::steady_clock::now();
    size_t queued = 0;
    for (; running_; ++turns_) {
        for (; queued < turns_ + depth_; ++queued) {
            cudaMemcpyAsync(host_[0], gpu_[0], kBytes, cudaMemcpyDeviceToHost, streams_[0]);
            cudaMemcpyAsync(gpu_[1], host_[1], kBytes, cudaMemcpyHostToDevice, streams_[1]);
            for (int way = 0; way < 2; ++way)
                cudaEventRecord(ends_[2 * (queued % depth_) + way], streams_[way]);
        }
        for (int way = 0; way < 2; ++way)
            cudaEventSynchronize(ends_[2 * (turns_ % depth_) + way]);
    }
    for (cudaStream_t stream : streams_)
        cudaStreamSynchronize(stream);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Copies::rate() const {
    return seconds_ > 0 ? static_cast<double>(turns_ * kBytes) / seconds_ : 0;
}

}  // namespace flx::bench::lab
