/// \file one_host.h
/// What a call takes that goes through the memory of one host as a whole. FLX itself tries such ways where it runs, so
/// only simulations need a formula.
#pragma once

#include <cstddef>

#include "algorithms/cost/model.h"
#include "runtime/plan/planner.h"

namespace flx::simulate {

/// Expected nanoseconds of a call of all of a host's ranks. `bytes`: of the whole vector. Requires that the way is
/// fused, streamed or fetched. `together`: bytes/ns that all ranks copy at once at most; 0: no limit.
double one_host_ns(algorithms::Collective collective, Way way, size_t bytes, int ranks,
                   const algorithms::CostModel &costs, double together);

}  // namespace flx::simulate
