/// \file predict.h
/// Predicts how long an algorithm takes, by walking its schedules over a model of the machines. A pure function: ranks
/// that give it the same numbers get the same answer. Thread-safe.
#pragma once

#include <cstddef>

#include "algorithms/cost/model.h"
#include "algorithms/cost/step_graph.h"
#include "algorithms/cost/walk.h"
#include "algorithms/registry.h"

namespace flx::algorithms {

/// Time in nanoseconds from a common start to the end of the last rank; of a scatter, whose root does not wait, the
/// mean of that and of the busiest rank's work; infinite where a graph would be too large. `bytes`: of the whole
/// vector. Rank 0 is the root. Requires that the algorithm serves the collective.
double predict_ns(const Algorithm &algorithm, Collective collective, const Placement &placement, size_t bytes,
                  const CostModel &model);

/// The same for a graph that was made before, over a network. `report`: what happened on the way; null: not asked for.
double predict_ns(const StepGraph &graph, size_t bytes, const CostModel &model, const Fabric &fabric = {},
                  WalkReport *report = nullptr);

}  // namespace flx::algorithms
