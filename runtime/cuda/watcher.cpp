#include "watcher.h"

#include <chrono>

#include "driver.h"

namespace flx::cuda {

Status Watcher::start() {
    void *words = nullptr;
    FLX_TRY_CUDA(cudaHostAlloc(&words, 2 * sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable));
    words_ = static_cast<volatile uint32_t *>(words);
    words_[0] = 0;
    words_[1] = 0;
    void *mapped = nullptr;
    FLX_TRY_CUDA(cudaHostGetDevicePointer(&mapped, words, 0));
    mapped_ = static_cast<uint32_t *>(mapped);
    thread_ = std::thread([this] { watch(); });
    return {};
}

void Watcher::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable())
        thread_.join();
}

void Watcher::free_words() {
    if (words_ != nullptr)
        cudaFreeHost(const_cast<uint32_t *>(words_));
    words_ = nullptr;
}

Status Watcher::failure() const {
    if (!failed_.load(std::memory_order_acquire))
        return {};
    const std::lock_guard lock(mutex_);
    return failure_;
}

void Watcher::watch() {
    constexpr std::chrono::milliseconds kLook(50);
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kLook, [this] { return stopping_; })) {
        lock.unlock();
        const auto stuck = words_[1];
        words_[1] = 0;  // kernels that still wait say so again
        Status status = health_.look(static_cast<int>(stuck) - 1);
        lock.lock();
        if (!status.ok()) {
            failure_ = std::move(status);
            failed_.store(true, std::memory_order_release);
            abort();
            return;
        }
    }
}

}  // namespace flx::cuda
