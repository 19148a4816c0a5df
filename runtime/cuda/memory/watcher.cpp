#include "runtime/cuda/memory/watcher.h"

#include <chrono>
#include <cstring>

#include "runtime/base/own_thread.h"
#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {

Status Watcher::start() {
    void *words = nullptr;
    constexpr size_t kBytes = 2 * sizeof(uint32_t) + 3 * sizeof(uint64_t);
    FLX_TRY_CUDA(cudaHostAlloc(&words, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
    std::memset(words, 0, kBytes);
    words_ = static_cast<volatile uint32_t *>(words);
    void *mapped = nullptr;
    FLX_TRY_CUDA(cudaHostGetDevicePointer(&mapped, words, 0));
    mapped_ = static_cast<uint32_t *>(mapped);
    thread_ = own_thread([this] { watch(); });
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

/// A kernel met a message of another size than it was to receive.
Status Watcher::refusal() const {
    const auto *refused = reinterpret_cast<const volatile uint64_t *>(words_) + 1;
    const uint64_t peer = words_ == nullptr ? 0 : refused[0];
    if (peer == 0)
        return {};
    return fail(Fault::bytes_differ,
                "rank {} sends {} bytes from its GPU where {} are to be received; both must name the same number",
                peer - 1, refused[1], refused[2]);
}

Status Watcher::failure() const {
    if (!failed_.load(std::memory_order_acquire))
        return refusal();
    const std::lock_guard lock(mutex_);
    return failure_;
}

/// The rank that kernels say they wait for. Flags on streams do not say: all others in turn, then.
int Watcher::awaited(uint32_t stuck, int turn) const {
    return stuck == 0 && flags_.opened() && flags_.busy() ? turn % kMaxRanks : static_cast<int>(stuck) - 1;
}

void Watcher::watch() {
    constexpr std::chrono::milliseconds kLook(50);
    constexpr std::chrono::milliseconds kRelease(1);
    std::unique_lock lock(mutex_);
    for (int turn = 0; !wake_.wait_for(lock, kLook, [this] { return stopping_; }); ++turn) {
        if (words_[0] != 0)
            break;
        lock.unlock();
        const auto stuck = words_[1];
        words_[1] = 0;  // kernels that still wait say so again
        Status status = refusal();
        if (status.ok())
            status = health_.look(awaited(stuck, turn));
        lock.lock();
        if (!status.ok()) {
            failure_ = std::move(status);
            failed_.store(true, std::memory_order_release);
            abort();
            break;
        }
    }
    // What waits for them clears them afterwards, and the next operation on the stream waits again.
    while (flags_.opened() && !wake_.wait_for(lock, kRelease, [this] { return stopping_; }))
        flags_.release();
}

}  // namespace flx::cuda
