// What the controller costs per operation, by number of links: amortised over everything that it does between
// iterations (rates, new vectors, offers, trials).
#include <benchmark/benchmark.h>

#include <array>
#include <random>
#include <vector>

#include "runtime/shares/controller.h"

namespace flx {
namespace {

constexpr size_t kBytes = 4u << 20;

std::vector<LinkEstimate> links_of(int count) {
    std::vector<LinkEstimate> links(count);
    for (int i = 0; i < count; ++i)
        links[i] = {20000.0 + 1000 * i, 0.1 / (i + 1), 0.1 / (i + 1), true};
    return links;
}

/// Samples of 1024 operations, prepared so that only the controller is timed.
template <typename Factor>
std::vector<std::array<LinkSample, kMaxLinks>> trace(const std::vector<LinkEstimate> &links, Factor factor) {
    const PartitionVector vector = Controller(links, {}).vector(kBytes, 0);
    std::vector<std::array<LinkSample, kMaxLinks>> samples(1024);
    for (size_t op = 0; op < samples.size(); ++op)
        for (size_t i = 0; i < links.size(); ++i) {
            const double bytes = vector.share(static_cast<int>(i)) * kBytes;
            samples[op][i].bytes = static_cast<uint64_t>(bytes);
            samples[op][i].busy_ns =
                static_cast<uint64_t>(links[i].latency_ns + bytes / links[i].bytes_per_ns * factor(op));
        }
    return samples;
}

void observe(benchmark::State &state, const std::vector<LinkEstimate> &links,
             const std::vector<std::array<LinkSample, kMaxLinks>> &samples) {
    Controller controller(links, {});
    size_t op = 0;
    for (auto _ : state) {
        const auto &now = samples[op++ % samples.size()];
        benchmark::DoNotOptimize(controller.observe(kBytes, 0, std::span<const LinkSample>(now.data(), links.size())));
        benchmark::DoNotOptimize(controller.vector(kBytes, 0).weight[0]);
    }
}

/// Noise of ±20 %: vectors are recomputed, and now and then adopted.
void ObserveNoisy(benchmark::State &state) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> noise(0.8, 1.2);
    const auto links = links_of(static_cast<int>(state.range(0)));
    observe(state, links, trace(links, [&](size_t) { return noise(random); }));
}
BENCHMARK(ObserveNoisy)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(16);

/// All links slow down to a quarter and return, every 32 operations.
void ObserveChanging(benchmark::State &state) {
    const auto links = links_of(static_cast<int>(state.range(0)));
    observe(state, links, trace(links, [](size_t op) { return op / 32 % 2 == 0 ? 1.0 : 4.0; }));
}
BENCHMARK(ObserveChanging)->Arg(2)->Arg(4);

/// One link works, the other is judged not to pay and is offered a share now and then.
void ObserveIdle(benchmark::State &state) {
    std::vector<LinkEstimate> links{{500, 13.0, 12.3, true}, {20000, 1.0, 0.8, true}};
    std::vector<std::array<LinkSample, kMaxLinks>> samples(1);
    samples[0][0] = {kBytes, kBytes / 13};
    samples[0][1] = {kMaxCellBytes, 40000};
    observe(state, links, samples);
}
BENCHMARK(ObserveIdle);

void Construct(benchmark::State &state) {
    const auto links = links_of(static_cast<int>(state.range(0)));
    for (auto _ : state) {
        Controller controller(links, {});
        benchmark::DoNotOptimize(controller.vector(kBytes, 0).weight[0]);
    }
}
BENCHMARK(Construct)->Arg(2)->Arg(4);

}  // namespace
}  // namespace flx
