/// \file stages.h
/// Private to the algorithms: makes a schedule of stages (tiers.h), each carried out by an algorithm. What a stage
/// reads waits for the step of an earlier stage that wrote it, cell by cell, so stages overlap.
#pragma once

#include "algorithms/tiers.h"

namespace flx::algorithms {

/// The steps of `rank`. All ranks say the same number of phases, whichever stages they take part in: at least `phases`.
Schedule schedule_of(const Composition &composition, int rank, const Algorithm &near, const Algorithm &far,
                     uint8_t phases);

}  // namespace flx::algorithms
