#include "apps/flx_perf/page.h"

#include <optional>
#include <sstream>

#include "apps/flx_report/data/bench.h"
#include "apps/flx_report/page/page.h"

namespace flx::bench::perf {

std::string page_of(const Results &results) {
    std::istringstream json(json_of(results).dump());
    std::string problem;
    const std::optional<report::Bench> bench =
        report::read_bench(json, std::string(name_of(results.options.collective)), problem);
    return bench ? report::page_of_results({*bench}, "measured by flx_perf") : problem + "\n";
}

}  // namespace flx::bench::perf
