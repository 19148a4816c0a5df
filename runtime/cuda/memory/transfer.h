/// \file transfer.h
/// Copies between GPU memory and memory of the host. Also where FLX was built without CUDA, which then has no memory to
/// copy.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/status.h"

namespace flx::cuda {

struct Transfer {
    std::byte *device = nullptr;
    std::byte *host = nullptr;
    size_t bytes = 0;
};

/// All of them, from GPU memory or to it, all of one GPU; returns when they are done. They wait for no stream of the
/// program's, and become part of no graph that is captured. FLX_ERR_SYSTEM.
Status copy_down(std::span<const Transfer> transfers);
Status copy_up(std::span<const Transfer> transfers);

}  // namespace flx::cuda
