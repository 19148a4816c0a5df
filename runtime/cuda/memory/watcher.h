/// \file watcher.h
/// A thread that sees to it that no kernel spins for a rank that is gone: it asks the communicator about its peers and,
/// where one is gone, sets the word that all waiting kernels look at.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/cuda/memory/health.h"
#include "runtime/cuda/memory/kept_memory.h"
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
    /// Makes kernels give up, and streams go on without flags. Any thread; takes no lock, waits for nothing.
    void abort() {
        if (words_.here != nullptr)
            words_.here[0] = 1;
        wake_.notify_all();
    }
    /// After abort(): returns when the thread asks the communicator nothing any more. Streams still go on.
    void leave_health();
    /// When no kernel looks at the words any more.
    void free_words() { return_words(words_); }

    /// Why kernels gave up by themselves, or the thread made them; success: they did not. Who called abort() knows why.
    [[nodiscard]] Status failure() const;
    /// The words as kernels see them.
    [[nodiscard]] volatile uint32_t *abort_word() const { return words_.mapped; }
    [[nodiscard]] uint32_t *stuck_word() const { return words_.mapped + 1; }
    /// The words that Mail::refused points to.
    [[nodiscard]] uint64_t *refused_words() const { return reinterpret_cast<uint64_t *>(words_.mapped) + 1; }
    /// One that the watcher makes no use of, for whoever wants something from a GPU. Null before start().
    [[nodiscard]] volatile uint32_t *spare_word() const {
        constexpr int kOthers = 8;
        return words_.here == nullptr ? nullptr : words_.here + kOthers;
    }

  private:
    void watch();
    [[nodiscard]] Status refusal() const;
    Status ask(uint32_t stuck, int turn);

    Health &health_;
    StreamFlags &flags_;
    PinnedWords words_;  ///< abort, stuck; then the three that refused_words() are; then a spare one
    std::atomic<bool> failed_{false};
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    bool looks_ = false;  ///< the thread may still ask the communicator
    Status failure_;
    std::thread thread_;
};

}  // namespace flx::cuda
