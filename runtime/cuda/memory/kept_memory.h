/// \file kept_memory.h
/// Memory of communicators that stays the process's when they go, for the next ones, until the process ends: CUDA lets
/// most of what frees or pins memory wait for all that runs on the GPU, and there may be kernels that wait for this
/// very rank. Nor does anybody know which peers of earlier communicators have it open still.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"

namespace flx::cuda {

/// Memory of the current device, of at least so many bytes; what it holds is not known. All functions are thread-safe.
Status take_kept(uint64_t bytes, char *&memory);
/// What take_kept() gave, or null. Nobody uses it any more, and peers do not write into it.
void return_kept(int device, char *memory);

/// Says that this process has a group of GPUs, from begin() until it is destroyed; the group lives until it is given up
/// or closed. Different ones may be used by different threads.
class GroupCount {
  public:
    GroupCount() = default;
    ~GroupCount();
    GroupCount(const GroupCount &) = delete;
    GroupCount &operator=(const GroupCount &) = delete;
    void begin(int device);
    /// After begin(): it is to have so much memory of the device, as long as it lives. False, and nothing is changed:
    /// that, and what groups of other communicators have, is more than `most` bytes. `communicator` is the same number
    /// for all its ranks, and no other's.
    bool reserve(uint64_t communicator, uint64_t bytes, uint64_t most);
    /// It has so much.
    void hold(uint64_t bytes);
    void end_life();
    /// Of all groups with that device.
    static int living(int device);
    static int all(int device);

  private:
    int device_ = -1;
    bool lives_ = false;
    uint64_t communicator_ = 0;
    uint64_t bytes_ = 0;
};

/// A few words of pinned memory that all devices see, zero at first.
struct PinnedWords {
    static constexpr uint64_t kBytes = 64;
    volatile uint32_t *here = nullptr;
    uint32_t *mapped = nullptr;  ///< as GPUs see it
};
Status take_words(PinnedWords &words);
/// No kernel looks at them any more. Nothing for words that were not taken.
void return_words(PinnedWords &words);

}  // namespace flx::cuda
