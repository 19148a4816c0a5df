/// \file gpu.h
/// Whether there is a GPU to use, and what memory is one's. Also where FLX was built without CUDA, which then has none.
#pragma once

#include <string>

namespace flx::cuda {

/// Why this process has no GPU to use; empty: it has one, and FLX was built with CUDA. Cheap after the first time.
const std::string &why_none();
/// Whether the program has begun to use a GPU in this process. A few nanoseconds where it has not initialised CUDA.
bool in_use();
/// Whether `memory` is a GPU's (or managed). False for null and wherever CUDA is not in use.
bool on_device(const void *memory);

}  // namespace flx::cuda
