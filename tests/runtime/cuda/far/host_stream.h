/// \file host_stream.h
/// A stream of a GPU played by a host thread: what is put on it is done later, in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/cuda/far/far_lanes.h"

namespace flx::testing {

class HostStream final : public cuda::FarStream {
  public:
    HostStream() : thread_([this] { carry_out(); }) {}
    ~HostStream() override {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }

    Status wait(uint32_t *word, uint32_t value) override {
        ++waits_;
        return put([word, value] {
            while (static_cast<int32_t>(std::atomic_ref(*word).load(std::memory_order_acquire) - value) < 0)
                std::this_thread::yield();
        });
    }
    Status write(uint32_t *word, uint32_t value) override {
        return put([word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); });
    }
    Status copy_out(char *host, const char *device, uint64_t bytes) override {
        return put([host, device, bytes] { std::memcpy(host, device, bytes); });
    }
    Status copy_in(char *device, const char *host, uint64_t bytes) override {
        return put([host, device, bytes] { std::memcpy(device, host, bytes); });
    }
    Status end() override { return {}; }

    /// Work of the program's own.
    void run(std::function<void()> body) {
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(body));
        }
        wake_.notify_all();
    }
    /// Returns when all that was put on it is done.
    void synchronize() {
        std::unique_lock lock(mutex_);
        idle_.wait(lock, [this] { return queue_.empty() && !working_; });
    }
    [[nodiscard]] int waits() const { return waits_; }

  private:
    Status put(std::function<void()> body) {
        run(std::move(body));
        return {};
    }
    void carry_out() {
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return ends_ || !queue_.empty(); });
            if (queue_.empty())
                return;
            const std::function<void()> body = std::move(queue_.front());
            queue_.pop_front();
            working_ = true;
            lock.unlock();
            body();
            lock.lock();
            working_ = false;
            if (queue_.empty())
                idle_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable idle_;
    std::deque<std::function<void()>> queue_;
    bool working_ = false;
    bool ends_ = false;
    int waits_ = 0;
    std::thread thread_;
};

}  // namespace flx::testing
