#include "apps/flx_perf/page.h"

#include <optional>
#include <sstream>

#include "apps/flx_report/data/bench.h"
#include "apps/flx_report/page/page.h"

namespace flx::bench::perf {

Status page_of(const Results &results, std::string &page) {
    std::istringstream json(json_of(results));
    std::string problem;
    const std::optional<report::Bench> bench =
        report::read_bench(json, std::string(name_of(results.options.collective)), problem);
    if (!bench)
        return fail(Fault::not_read, "{}", problem);
    page = report::page_of_results({*bench}, "measured by flx_perf");
    return {};
}

}  // namespace flx::bench::perf
