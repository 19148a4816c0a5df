/// \file drawing.h
/// The machine as a drawing: hosts as boxes, and rails as lines between them.
#pragma once

#include <string>

#include "apps/flx_report/data/summary.h"

namespace flx::report {

/// SVG of `width` pixels, whose words are as large as the page's where it is shown at this width. Empty: there is
/// nothing to draw. It says nothing that machine_part()'s table does not.
[[nodiscard]] std::string machine_svg(const Summary &summary, int width, const std::string &name);

/// `0–3, 8`: numbers in order.
[[nodiscard]] std::string ranges_text(const std::vector<int64_t> &numbers);

}  // namespace flx::report
