/// \file nvlink.h
/// What leads from one GPU to another.
#pragma once

#include <cstdint>

namespace flx::cuda {

/// The later, the less is known to be kept together on it.
enum class Wire : uint8_t { nvlink, unknown, other };

/// From `device`, whose PCI bus id is `own`, to the GPU of the bus id `bus`. CUDA says it of GPUs that this process
/// sees; where it sees its own alone (CUDA_VISIBLE_DEVICES), NVML is asked, if it is there.
Wire wire_to(int device, const char *own, const char *bus);

}  // namespace flx::cuda
