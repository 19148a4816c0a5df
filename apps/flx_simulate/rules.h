/// \file rules.h
/// FLX_ALGORITHM on a simulated machine: what is set, and what a site could set there.
#pragma once

#include <string>
#include <vector>

#include "apps/flx_simulate/cells.h"

namespace flx::simulate {

/// Takes what FLX_ALGORITHM says in the environment, with the files that it names, as rules of the machine. A sentence:
/// what is wrong, also where a rule does not serve the machine; empty: nothing.
std::string take_rules(Machine &machine);

/// A file of rules for FLX_ALGORITHM: the best candidate of each cell whose choice takes more than `most_worse` times
/// as long. A rule reaches halfway to the next sizes that were asked for, or else to a power of two. Comments say what
/// is gained; without such cells there is nothing else. `cells`: those of a collective after each other, sizes
/// ascending.
std::string rules_text(const Machine &machine, const std::vector<Cell> &cells, double most_worse);

}  // namespace flx::simulate
