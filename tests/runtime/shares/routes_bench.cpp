// What learning from an operation costs a rank, by hosts of eight ranks and with two rails: the operation sent to one
// rank of each of some hosts, as rounds of an exchange do.
#include <benchmark/benchmark.h>

#include <bit>
#include <memory>
#include <vector>

#include "runtime/link/counted_peers.h"
#include "runtime/shares/routes.h"
#include "tests/runtime/shares/alike_ranks.h"

namespace flx {
namespace {

constexpr int kRanks = 8;
constexpr size_t kRails = 2;
constexpr double kRate = 1;  // bytes/ns
constexpr size_t kBytes = 4 << 20;

/// A rail to all ranks of other hosts, or shared memory to those of this one.
class Rail final : public IdleLink {
  public:
    Rail(LinkKind kind, int ranks)
        : IdleLink(kind == LinkKind::shm ? "shm" : "rail", kind),
          carried_(static_cast<size_t>(ranks)),
          counted_(static_cast<size_t>(ranks)) {}

    [[nodiscard]] bool reaches(int peer) const override {
        return peer != 0 && (peer < kRanks) == (kind() == LinkKind::shm);
    }
    [[nodiscard]] LinkCounters counters(int peer) const override { return carried_[static_cast<size_t>(peer)]; }
    bool take_counted(std::vector<int> &peers) override {
        counted_.take(peers);
        return true;
    }
    [[nodiscard]] LinkCounters timed() const override { return sum_; }

    void carry(int peer, uint64_t bytes) {
        counted_.note(peer);
        for (LinkCounters *counters : {&carried_[static_cast<size_t>(peer)], &sum_}) {
            counters->bytes += bytes;
            counters->chunks += 1;
            counters->busy_ns += static_cast<uint64_t>(static_cast<double>(bytes) / kRate);
        }
    }

  private:
    std::vector<LinkCounters> carried_;
    CountedPeers counted_;
    LinkCounters sum_;
};

struct Rank {
    explicit Rank(int hosts) : layout(alike_layout(hosts, kRanks)), routes(layout, links) {
        links.resize(1 + kRails);
        links[0].name = "shm";
        links[0].link = std::make_unique<Rail>(LinkKind::shm, layout.size);
        links[0].near.done = true;
        links[0].near.latency_ns = 200;
        links[0].near.bytes_per_ns = links[0].near.together_bytes_per_ns = kRate;
        for (size_t l = 1; l < links.size(); ++l) {
            links[l].name = "rail" + std::to_string(l);
            auto rail = std::make_unique<Rail>(LinkKind::rail, layout.size);
            rails.push_back(rail.get());
            links[l].link = std::move(rail);
            links[l].far.done = true;
            links[l].far.latency_ns = 2000;
            links[l].far.bytes_per_ns = links[l].far.together_bytes_per_ns = links[l].far.host_bytes_per_ns = kRate;
        }
    }
    Status make() { return make_routes(routes, layout, config); }

    Layout layout;
    LinkSlots links;
    Config config;
    Routes routes;
    std::vector<Rail *> rails;
};

/// Hosts, and to how many of them the operation sent: 0: to as many as an exchange in rounds has.
void LearnFromAnOperation(benchmark::State &state) {
    const auto hosts = static_cast<int>(state.range(0));
    Rank rank(hosts);
    if (const Status made = rank.make(); !made.ok())
        return state.SkipWithError(made.sentence().c_str());
    std::vector<int> peers;
    for (int other = 1; other < hosts; other = state.range(1) == 0 ? 2 * other : other + 1)
        peers.push_back(other * kRanks);
    uint64_t operations = 0;
    for (auto _ : state) {
        rank.routes.begin(peers);
        for (const int peer : peers) {
            benchmark::DoNotOptimize(rank.routes.vector(peer, kBytes, 0));
            for (Rail *rail : rank.rails)
                rail->carry(peer, kBytes / kRails);
        }
        rank.routes.learn({.sequence = ++operations, .elapsed_ns = 2'000'000, .phases = 1},
                          [](const std::vector<int> & /*peers*/) { return kBytes; });
    }
    state.counters["peers"] = static_cast<double>(peers.size());
}
BENCHMARK(LearnFromAnOperation)->ArgsProduct({{2, 8, 32, 128, 512, 2048}, {0, 1}})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace flx
