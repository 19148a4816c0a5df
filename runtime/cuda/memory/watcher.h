/// \file watcher.h
/// A thread that sees to it that no kernel spins for a rank that is gone: it asks the communicator about its peers and,
/// where one is gone, sets the word that all waiting kernels look at.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/cuda/memory/health.h"
#include "runtime/cuda/memory/stream_flags.h"

namespace flx::cuda {

class Watcher {
  public:
    /// `flags`: may be open when the thread starts, and until it ends.
    Watcher(Health &health, StreamFlags &flags) : health_(health), flags_(flags) {}
    ~Watcher() { stop(); }
    Watcher(const Watcher &) = delete;
    Watcher &operator=(const Watcher &) = delete;

    /// Makes the words and starts the thread.
    Status start();
    /// Ends the thread. Kernels are not stopped, and waits of streams for flags are not ended any more.
    void stop();
    /// Makes kernels give up, and streams go on without flags.
    void abort() {
        if (words_ != nullptr)
            words_[0] = 1;
    }
    void free_words();

    /// Why kernels gave up, or were made to; success: they were not.
    [[nodiscard]] Status failure() const;
    /// The words as kernels see them.
    [[nodiscard]] volatile uint32_t *abort_word() const { return mapped_; }
    [[nodiscard]] uint32_t *stuck_word() const { return mapped_ + 1; }
    /// The words that Mail::refused points to.
    [[nodiscard]] uint64_t *refused_words() const { return reinterpret_cast<uint64_t *>(mapped_) + 1; }

  private:
    void watch();
    [[nodiscard]] Status refusal() const;
    [[nodiscard]] int awaited(uint32_t stuck, int turn) const;

    Health &health_;
    StreamFlags &flags_;
    volatile uint32_t *words_ = nullptr;  ///< pinned: abort, stuck; then the three that refused_words() are
    uint32_t *mapped_ = nullptr;
    std::atomic<bool> failed_{false};
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    Status failure_;
    std::thread thread_;
};

}  // namespace flx::cuda
