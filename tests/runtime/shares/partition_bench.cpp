// What it costs to make a vector and to cut a block, by number of links.
#include <benchmark/benchmark.h>

#include <vector>

#include "runtime/shares/partition.h"

namespace flx {
namespace {

PartitionVector uneven(int links) {
    std::vector<double> shares;
    for (int i = 0; i < links; ++i)
        shares.push_back(1.0 + i);
    return make_partition(shares);
}

void Cut(benchmark::State &state) {
    const PartitionVector vector = uneven(static_cast<int>(state.range(0)));
    std::array<Slice, kMaxLinks> slices;
    uint32_t cells = 1000;
    for (auto _ : state) {
        benchmark::DoNotOptimize(cut(vector, cells++, slices));
        benchmark::DoNotOptimize(slices);
    }
}
BENCHMARK(Cut)->Arg(1)->Arg(2)->Arg(4)->Arg(16);

void MakePartition(benchmark::State &state) {
    std::vector<double> shares;
    for (int i = 0; i < state.range(0); ++i)
        shares.push_back(1.0 + i);
    for (auto _ : state) {
        benchmark::DoNotOptimize(shares.data());
        benchmark::DoNotOptimize(make_partition(shares));
    }
}
BENCHMARK(MakePartition)->Arg(2)->Arg(4)->Arg(16);

}  // namespace
}  // namespace flx
