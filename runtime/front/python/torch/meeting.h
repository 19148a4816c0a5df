/// \file meeting.h
/// How the ranks of a process group come to a communicator of FLX.
#pragma once

#include <flx.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace flx::torch {

/// Collective over the ranks of a group, whose own `store` is: rank 0 says there where FLX's store (flx.h,
/// flx_comm_create_from_store) is, once all have come. Throws std::runtime_error, which names ranks that do not come
/// within `timeout`.
flx_comm_t meet(c10d::Store &store, int rank, int size, std::chrono::milliseconds timeout);

/// Waits for keys of all ranks in `store`, `prefix` and the rank. The ranks that have not set theirs within `timeout`.
std::vector<int> missing(c10d::Store &store, const std::string &prefix, int size, std::chrono::milliseconds timeout);

/// `rank 1`, `ranks 1, 2`.
std::string ranks_text(const std::vector<int> &ranks);

}  // namespace flx::torch
