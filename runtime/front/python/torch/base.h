/// \file base.h
/// What a backend of torch.distributed is to PyTorch: since version 2 a Backend, which a ProcessGroup of PyTorch's own
/// calls for tensors of one kind of device; before, the ProcessGroup itself.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <vector>

namespace flx::torch {

using Tensor = at::Tensor;
using Tensors = std::vector<at::Tensor>;

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

}  // namespace flx::torch
