/// \file goal.h
/// A schedule as GOAL, the text that LogGOPSim simulates (Hoefler, Schneider, Lumsdaine: LogGOPSim, 2010).
#pragma once

#include <cstddef>
#include <string>

#include "algorithms/cost/predict.h"
#include "algorithms/written.h"

namespace flx::schedule {

struct GoalOptions {
    size_t elements = 0;  ///< of the whole vector
    size_t element = 4;   ///< bytes of one
    size_t cell = 0;      ///< bytes of a message at most, which is whole elements; 0: blocks go whole
    bool in_place = false;
    algorithms::CostModel costs = {};  ///< what adding and copying takes
};

/// Of a schedule that is right. A step is one operation for each cell, and waits for the same cell of the steps that it
/// depends on; a step that adds or copies also has a `calc`, in nanoseconds. `problem`: a sentence, where there would
/// be more operations than anyone could simulate; the text is empty then.
std::string to_goal(const algorithms::Written &written, const GoalOptions &options, std::string &problem);

}  // namespace flx::schedule
