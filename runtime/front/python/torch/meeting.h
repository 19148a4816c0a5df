/// \file meeting.h
/// How the ranks of a process group come to a communicator of FLX.
#pragma once

#include <flx.h>

#include <atomic>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace flx::torch {

/// How long ranks wait for each other.
struct Patience {
    std::chrono::milliseconds timeout;
    const std::atomic<bool> *over = nullptr;  ///< once it is set, they wait no longer
    bool of_two = false;                      ///< rank 1 may give up, and rank 0 is not to wait for it then

    [[nodiscard]] bool is_over() const { return over != nullptr && *over; }
};

/// Collective over `size` ranks, whose keys in `store` begin with `at`: rank 0 says there where FLX's store (flx.h,
/// flx_comm_create_from_store) is, once all have come, or why it cannot. Nothing of that stays in `store`. Throws
/// std::runtime_error, which names ranks that do not come in time. Null: it is over.
flx_comm_t meet(c10d::Store &store, const std::string &at, int rank, int size, const Patience &patience);

/// Waits for keys of all ranks in `store`, `prefix` and the rank. The ranks that have not set theirs in time.
std::vector<int> missing(c10d::Store &store, const std::string &prefix, int size, const Patience &patience);

/// Waits for `key`, without keeping other threads from `store`. False: it is not set in time.
bool told(c10d::Store &store, const std::string &key, const Patience &patience, std::string &text);

/// Deletes keys that all ranks have read, where `store` can do that.
void forget(c10d::Store &store, const std::vector<std::string> &keys);

/// `prefix` with the number of each rank.
std::vector<std::string> keys_of(const std::string &prefix, int size);

/// `rank 1`, `ranks 1, 2`.
std::string ranks_text(const std::vector<int> &ranks);

}  // namespace flx::torch
