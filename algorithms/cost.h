/// \file cost.h
/// Predicts how long an algorithm takes, by walking the schedules of all ranks over a model of the machines. A pure
/// function: ranks that give it the same numbers get the same answer.
#pragma once

#include <cstddef>

#include "algorithms/registry.h"

namespace flx::algorithms {

/// How messages go between two ranks of one kind: of one host, or of two.
struct TierCost {
    double latency_ns = 0;    ///< from the end of the sender's work to the beginning of the receiver's
    double send_ns = 0;       ///< of the sender's work for each message
    double receive_ns = 0;    ///< of the receiver's
    double bytes_per_ns = 1;  ///< of a rank's copies within a host; of all rails of a host together, each way, between
};

struct CostModel {
    TierCost near;
    TierCost far;
    double copy_bytes_per_ns = 8;  ///< what a rank does with bytes that it sends to, or got from, another host
    double add_bytes_per_ns = 6;
};

/// Time in nanoseconds from a common start to the end of the last rank; of a scatter, whose root does not wait, the
/// mean of that and of the busiest rank's work. `bytes`: of the whole vector. Rank 0 is the root. Requires that the
/// algorithm serves the collective.
double predict_ns(const Algorithm &algorithm, Collective collective, const Placement &placement, size_t bytes,
                  const CostModel &model);

}  // namespace flx::algorithms
