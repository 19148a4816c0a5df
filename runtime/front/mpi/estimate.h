/// \file estimate.h
/// How much time FLX saved, for FLX_STATS: calls of the sizes that the program made, with FLX and with MPI by turns.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/front/mpi/collectives.h"
#include "runtime/include/flx.h"

namespace flx::preload {

/// Blocking calls that all of MPI_COMM_WORLD took part in and FLX served, by the logarithm of their bytes.
using Sizes = std::array<std::array<uint64_t, kSizes>, kCollectives.size()>;

/// Seconds that a rank saved, per collective.
struct Saved {
    std::array<double, kCollectives.size()> seconds{};
    std::array<bool, kCollectives.size()> known{};
};

/// Collective over MPI_COMM_WORLD, with equal `sizes` on all ranks, of all ranks together. Takes about half a second,
/// which goes to what was called most; of the rest nothing is known.
Saved estimate(const Sizes &sizes, flx_comm_t comm);

}  // namespace flx::preload
