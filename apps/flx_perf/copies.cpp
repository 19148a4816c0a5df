#include "copies.h"

#include <cuda_runtime_api.h>

#include <chrono>

namespace flx::perf {
namespace {

constexpr size_t kBytes = 8 << 20;

}  // namespace

std::unique_ptr<Copies> Copies::make(std::string &why) {
    std::unique_ptr<Copies> copies(new Copies);
    bool ready = cudaGetDevice(&copies->device_) == cudaSuccess;
    for (int way = 0; way < 2; ++way)
        ready = ready && cudaHostAlloc(&copies->host_[way], kBytes, cudaHostAllocDefault) == cudaSuccess &&
                cudaMalloc(&copies->gpu_[way], kBytes) == cudaSuccess &&
                cudaStreamCreateWithFlags(&copies->streams_[way], cudaStreamNonBlocking) == cudaSuccess;
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
}

void Copies::start() {
    turns_ = 0;
    running_ = true;
    thread_ = std::thread([this] { copy(); });
}

void Copies::stop() {
    running_ = false;
    if (thread_.joinable())
        thread_.join();
}

/// One of each way at a time. Where the next one is always waiting, a copy engine serves no other stream at all.
void Copies::copy() {
    cudaSetDevice(device_);
    const auto begin = std::chrono::steady_clock::now();
    for (; running_; ++turns_) {
        cudaMemcpyAsync(host_[0], gpu_[0], kBytes, cudaMemcpyDeviceToHost, streams_[0]);
        cudaMemcpyAsync(gpu_[1], host_[1], kBytes, cudaMemcpyHostToDevice, streams_[1]);
        for (cudaStream_t stream : streams_)
            cudaStreamSynchronize(stream);
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Copies::rate() const {
    return seconds_ > 0 ? static_cast<double>(turns_ * kBytes) / seconds_ : 0;
}

}  // namespace flx::perf
