/// \file volumes.h
/// How many bytes a rank gives and takes in a call, as MPI would count them at its arguments. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "algorithms/collective.h"

namespace flx::trace {

struct Volumes {
    uint64_t given = 0;
    uint64_t taken = 0;
};

/// `bytes` is the whole vector of a call among `size` ranks, as traces have it, and 0 where each pair of ranks has a
/// length of its own. What a trace does not say is 0: one's own block where blocks differ. `root` is -1 if there is
/// none.
[[nodiscard]] Volumes volumes_of(algorithms::Collective collective, uint64_t bytes, int64_t size, int64_t rank,
                                 int64_t root);

/// By the name that traces have for it.
[[nodiscard]] std::optional<algorithms::Collective> collective_named(std::string_view name);

}  // namespace flx::trace
