#include "runtime/cuda/memory/watcher.h"

#include <chrono>

#include "runtime/base/own_thread.h"
#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {

Status Watcher::start() {
    static_assert(2 * sizeof(uint32_t) + 3 * sizeof(uint64_t) + sizeof(uint32_t) <= PinnedWords::kBytes);
    FLX_TRY(take_words(words_));
    looks_ = true;
    thread_ = own_thread([this] { watch(); });
    return {};
}

void Watcher::leave_health() {
    std::unique_lock lock(mutex_);
    wake_.notify_all();
    wake_.wait(lock, [this] { return !looks_ || !thread_.joinable(); });
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

/// A kernel met a message of another size than it was to receive.
Status Watcher::refusal() const {
    const auto *refused = reinterpret_cast<const volatile uint64_t *>(words_.here) + 1;
    const uint64_t peer = words_.here == nullptr ? 0 : refused[0];
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

/// Of the rank that kernels say they wait for. Flags on streams do not say: all others in turn, then.
Status Watcher::ask(uint32_t stuck, int turn) {
    if (stuck == 0 && flags_.opened() && flags_.busy())
        return health_.look(turn % kMaxRanks, false);
    return health_.look(static_cast<int>(stuck) - 1, true);
}

void Watcher::watch() {
    constexpr std::chrono::milliseconds kLook(50);
    constexpr std::chrono::milliseconds kRelease(1);
    std::unique_lock lock(mutex_);
    const auto ends = [this] { return stopping_ || words_.here[0] != 0; };
    for (int turn = 0; !wake_.wait_for(lock, kLook, ends); ++turn) {
        lock.unlock();
        const auto stuck = words_.here[1];
        words_.here[1] = 0;  // kernels that still wait say so again
        Status status = refusal();
        if (status.ok())
            status = ask(stuck, turn);
        lock.lock();
        if (!status.ok()) {
            failure_ = std::move(status);
            failed_.store(true, std::memory_order_release);
            abort();
            break;
        }
    }
    looks_ = false;
    wake_.notify_all();
    // What waits for them clears them afterwards, and the next operation on the stream waits again.
    while (flags_.opened() && !wake_.wait_for(lock, kRelease, [this] { return stopping_; }))
        flags_.release();
}

}  // namespace flx::cuda
