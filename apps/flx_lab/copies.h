/// \file copies.h
/// Copies between the GPU and host memory, over and over, as a program's own traffic on PCIe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct CUevent_st;
struct CUstream_st;

namespace flx::bench::lab {

class Copies {
  public:
    /// On the current device, both ways at once, on streams and a thread of its own; `depth` of each way are queued at
    /// any time. Null, and why, without memory. With more than one, the engines serve no other copy between host and
    /// GPU until stop().
    static std::unique_ptr<Copies> make(int depth, std::string &why);
    ~Copies();
    Copies(const Copies &) = delete;
    Copies &operator=(const Copies &) = delete;

    /// Returns when some are done.
    void start();
    /// Returns when none is under way.
    void stop();
    /// Bytes a second each way since start().
    [[nodiscard]] double rate() const;

  private:
    Copies() = default;
    void copy();

    int device_ = 0;
    int depth_ = 1;
    std::vector<CUevent_st *> ends_;  ///< of turns, as a ring
    void *host_[2] = {};
    void *gpu_[2] = {};
    CUstream_st *streams_[2] = {};
    std::atomic<bool> running_{false};
    std::atomic<size_t> turns_{0};
    double seconds_ = 0;
    std::thread thread_;
};

}  // namespace flx::bench::lab
