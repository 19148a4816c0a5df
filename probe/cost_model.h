/// \file cost_model.h
/// Estimated time of a collective by pattern of communication. Pure; the planner compares patterns with it.
///
/// The model is alpha-beta-gamma (Hockney) with LogP's overhead for messages that follow each other without waiting:
/// a message of n bytes takes alpha + n beta; a rank that sends several adds an overhead for each; reducing a byte
/// takes gamma. Costs of ring and recursive doubling: Thakur, Rabenseifner, Gropp, "Optimization of Collective
/// Communication Operations in MPICH" (IJHPCA 19(1), 2005), sections 3 and 4; of the two trees: Sanders, Speck, Träff,
/// "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel Computing 35(12), 2009). Several
/// ranks of a host share its rails, which the papers leave out: what crosses between hosts is counted per host.
#pragma once

#include <cstddef>

#include "schedule.h"

namespace flx::probe {

enum class Pattern { direct, ring, double_binary_tree, recursive_doubling };

/// All links of a route taken together.
struct RouteCost {
    double alpha_ns = 0;      ///< latency of an empty message
    double bytes_per_ns = 1;  ///< all links together
};

struct CostInput {
    int ranks = 1;
    int hosts = 1;
    RouteCost near;                     ///< between two ranks of one host, while all its ranks do the same
    RouteCost far;                      ///< between two hosts; the rate is shared by a host's ranks
    double overhead_ns = 0;             ///< a rank's own work per message; 0: a quarter of alpha
    double reduce_bytes_per_ns = 8;     ///< of one rank
    size_t pipeline_bytes = 128 << 10;  ///< piece in which trees and chains forward
};

/// Nanoseconds for `bytes` (the larger of one rank's input and output). Infinite where the pattern does not serve the
/// collective. Ranks are assumed to be placed host by host. `bytes` does not matter to a barrier.
double estimate_ns(Pattern pattern, algorithms::Collective collective, size_t bytes, const CostInput &input);

}  // namespace flx::probe
