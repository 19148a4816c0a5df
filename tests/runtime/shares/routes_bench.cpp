// What learning from an operation costs a rank, by hosts of eight ranks and with two rails: the operation sent to one
// rank of each of some hosts, as rounds of an exchange do.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/shares/routes.h"

namespace flx {
namespace {

constexpr int kRanks = 8;
constexpr size_t kRails = 2;
constexpr double kRate = 1;  // bytes/ns
constexpr size_t kBytes = 4 << 20;

/// A rail to all ranks of other hosts, or shared memory to those of this one.
class Rail final : public Link {
  public:
    Rail(LinkKind kind, int ranks) : kind_(kind), carried_(static_cast<size_t>(ranks)) {}

    [[nodiscard]] const std::string &name() const override { return name_; }
    [[nodiscard]] LinkKind kind() const override { return kind_; }
    [[nodiscard]] bool reaches(int peer) const override {
        return peer != 0 && (peer < kRanks) == (kind_ == LinkKind::shm);
    }
    [[nodiscard]] size_t max_chunk() const override { return 256 << 10; }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override { return std::min(bytes, max_chunk()); }
    SendResult send(int /*peer*/, const ChunkHeader & /*header*/, const void * /*data*/) override {
        return SendResult::busy;
    }
    bool receive(int /*peer*/, Arrival & /*arrival*/) override { return false; }
    void release(const Arrival & /*arrival*/) override {}
    bool completed(Completion & /*completion*/) override { return false; }
    bool progress() override { return false; }
    [[nodiscard]] size_t outstanding() const override { return 0; }
    [[nodiscard]] size_t unacknowledged(int /*peer*/) const override { return 0; }
    [[nodiscard]] LinkCounters counters(int peer) const override { return carried_[static_cast<size_t>(peer)]; }
    [[nodiscard]] LinkCounters timed() const override { return sum_; }
    [[nodiscard]] LinkState state(int /*peer*/) const override { return LinkState::up; }
    [[nodiscard]] Status error(int /*peer*/) const override { return {}; }

    void carry(int peer, uint64_t bytes) {
        for (LinkCounters *counters : {&carried_[static_cast<size_t>(peer)], &sum_}) {
            counters->bytes += bytes;
            counters->chunks += 1;
            counters->busy_ns += static_cast<uint64_t>(static_cast<double>(bytes) / kRate);
        }
    }

  private:
    const LinkKind kind_;
    const std::string name_ = kind_ == LinkKind::shm ? "shm" : "rail";
    std::vector<LinkCounters> carried_;
    LinkCounters sum_;
};

/// Where all ranks have what this one has.
class AlikeBootstrap final : public Bootstrap {
  public:
    explicit AlikeBootstrap(int size) : size_(size) {}
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return size_; }
    Status allgather(const void *mine, size_t bytes, void *all) override {
        for (int rank = 0; rank < size_; ++rank)
            std::memcpy(static_cast<std::byte *>(all) + static_cast<size_t>(rank) * bytes, mine, bytes);
        return {};
    }
    Status barrier() override { return {}; }
    void progress() override {}
    Status split(int /*color*/, int /*key*/, std::unique_ptr<Bootstrap> & /*result*/) override { return {}; }
    Status dup(std::unique_ptr<Bootstrap> & /*result*/) override { return {}; }

  private:
    int size_;
};

struct Rank {
    explicit Rank(int hosts) : routes(layout, links) {
        layout.size = hosts * kRanks;
        layout.hosts = hosts;
        layout.here = layout.most_per_host = kRanks;
        for (int rank = 0; rank < layout.size; ++rank) {
            Member member;
            member.host = rank / kRanks;
            member.local = rank % kRanks;
            member.process = rank;
            layout.members.push_back(member);
        }
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
    Status make() {
        AlikeBootstrap bootstrap(layout.size);
        FLX_TRY(routes.exchange_links(bootstrap));
        FLX_TRY(routes.choose_own_rail(config, nullptr));
        FLX_TRY(routes.exchange_owners(bootstrap));
        FLX_TRY(routes.make(config, {}));
        return routes.exchange(bootstrap);
    }

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
