/// What building a schedule costs. It happens once for each communicator, collective and root, not in each call.
#include <benchmark/benchmark.h>

#include <string>

#include "algorithms/registry.h"

namespace {

using flx::algorithms::Algorithm;
using flx::algorithms::Collective;

void build(benchmark::State &state, const Algorithm *algorithm, Collective collective) {
    const int size = static_cast<int>(state.range(0));
    size_t steps = 0;
    for (auto _ : state) {
        const auto schedule = algorithm->build({collective, size / 3, size, 0});
        steps = schedule.steps.size();
        benchmark::DoNotOptimize(schedule.steps.data());
    }
    state.counters["steps"] = static_cast<double>(steps);
}

const bool registered = [] {
    for (const Algorithm &algorithm : flx::algorithms::all()) {
        for (const flx::algorithms::Collective collective : flx::algorithms::kScheduled) {
            if (!algorithm.serves(collective, 2))
                continue;
            const std::string name = std::string(algorithm.name) + "/" + std::string(name_of(collective));
            benchmark::RegisterBenchmark(name.c_str(), build, &algorithm, collective)
                ->Arg(2)
                ->Arg(8)
                ->Arg(64)
                ->Arg(1024);
        }
    }
    return true;
}();

}  // namespace
