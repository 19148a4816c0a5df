/// \file page.h
/// What was measured, as the page that flx_report makes of it.
#pragma once

#include <string>

#include "apps/flx_perf/report.h"

namespace flx::bench::perf {

/// One HTML file that needs no other. Pure.
[[nodiscard]] std::string page_of(const Results &results);

}  // namespace flx::bench::perf
