/// \file algorithms.h
/// Every algorithm that could serve a collective, each forced on a communicator of its own.
#pragma once

#include <flx.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/flx_perf/options.h"

namespace flx::bench::perf {

/// Every rank has one and makes the same calls; used by one thread.
class Algorithms {
  public:
    struct One {
        std::string name;
        double predicted_us;  ///< 0: not predicted
        flx_comm_t comm;      ///< on which it is forced
        bool chosen;          ///< without a rule FLX takes it
    };

    Algorithms() = default;
    Algorithms(const Algorithms &) = delete;
    Algorithms &operator=(const Algorithms &) = delete;

    /// Collective. Makes the communicators for what may serve calls of `sizes` bytes; `comm`, which has the ranks of
    /// MPI_COMM_WORLD and outlives this, stands for what cannot be forced.
    flx_status_t open(Collective collective, const std::vector<uint64_t> &sizes, flx_comm_t comm);
    /// Those of a size of open(), the one of the least predicted time first.
    [[nodiscard]] const std::vector<One> &of(uint64_t bytes) const { return by_size_.at(bytes); }
    /// Collective. Frees what open() made.
    flx_status_t close();

  private:
    std::map<uint64_t, std::vector<One>> by_size_;
    std::map<std::string, flx_comm_t> made_;
};

}  // namespace flx::bench::perf
