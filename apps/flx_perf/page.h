/// \file page.h
/// What was measured, as the page that flx_report makes of it.
#pragma once

#include <string>

#include "apps/flx_perf/report.h"
#include "runtime/base/status.h"

namespace flx::bench::perf {

/// One HTML file that needs no other. An error: flx_report would not read these results.
Status page_of(const Results &results, std::string &page);

}  // namespace flx::bench::perf
