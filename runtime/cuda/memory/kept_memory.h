/// \file kept_memory.h
/// Memory of communicators that stays the process's when they go, for the next ones: CUDA lets most of what frees or
/// pins memory wait for all that runs on the GPU, and there may be kernels that wait for this very rank.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"

namespace flx::cuda {

/// Memory of the current device, of so many bytes; what it holds is not known. All functions are thread-safe.
Status take_kept(uint64_t bytes, char *&memory);
/// Nobody uses it any more, and peers do not write into it.
void return_kept(int device, uint64_t bytes, char *memory);
/// How much of that device is taken now, in pieces.
int kept_in_use(int device);
/// Frees what is not taken. Waits for the device as CUDA does.
void free_kept(int device);

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
