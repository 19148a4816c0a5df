/// \file drawing.h
/// A schedule as a picture: SVG, a line for each rank, and arrows for messages, hop by hop, coloured by block.
#pragma once

#include <string>
#include <vector>

#include "algorithms/written.h"
#include "apps/flx_schedule/messages.h"

namespace flx::schedule {

std::string to_svg(const algorithms::Written &written, const std::vector<Message> &messages);

}  // namespace flx::schedule
