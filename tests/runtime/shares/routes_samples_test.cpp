/// What routes read of links after operations: of the peers to which a link has counted something, all of it, and of
/// the others nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/link/counted_peers.h"
#include "runtime/shares/routes.h"
#include "tests/runtime/shares/alike_ranks.h"

namespace flx {
namespace {

constexpr int kHosts = 40;
constexpr int kPerHost = 3;
constexpr int kRanks = kHosts * kPerHost;
constexpr size_t kLinks = 3;                                // shared memory, and rails
constexpr std::array<double, kLinks> kRates{5, 0.1, 0.06};  // bytes/ns
constexpr size_t kBytes = 4 << 20;

TEST(CountedPeers, AreTakenOnceEach) {
    CountedPeers counted(5);
    std::vector<int> peers{7};
    counted.take(peers);
    EXPECT_TRUE(peers.empty());
    for (const int peer : {3, 0, 3, 3, 4, 0})
        counted.note(peer);
    counted.take(peers);
    EXPECT_EQ(peers, (std::vector<int>{3, 0, 4}));
    counted.note(3);
    counted.take(peers);
    EXPECT_EQ(peers, std::vector<int>{3});
    counted.take(peers);
    EXPECT_TRUE(peers.empty());
}

/// A link of which it is counted how often it is asked.
class ReadLink final : public IdleLink {
  public:
    ReadLink(std::string name, LinkKind kind, bool notes)
        : IdleLink(std::move(name), kind), notes_(notes), carried_(kRanks), trips_(kRanks), counted_(kRanks) {}

    [[nodiscard]] bool reaches(int peer) const override {
        return peer != 0 && (peer < kPerHost) == (kind() == LinkKind::shm);
    }
    [[nodiscard]] LinkCounters counters(int peer) const override {
        ++reads_;
        return carried_[static_cast<size_t>(peer)];
    }
    [[nodiscard]] Pace pace(int peer) const override {
        ++reads_;
        return {.round_trip_ns = trips_[static_cast<size_t>(peer)]};
    }
    bool take_counted(std::vector<int> &peers) override {
        if (notes_)
            counted_.take(peers);
        return notes_;
    }
    [[nodiscard]] LinkCounters timed() const override { return all_; }

    void carry(int peer, uint64_t bytes, uint64_t untimed, double busy_ns, double trip_ns) {
        LinkCounters &counters = carried_[static_cast<size_t>(peer)];
        counters.bytes += bytes + untimed;
        counters.untimed_bytes += untimed;
        counters.busy_ns += static_cast<uint64_t>(busy_ns);
        all_.bytes += bytes;
        all_.busy_ns += static_cast<uint64_t>(busy_ns);
        double &trip = trips_[static_cast<size_t>(peer)];
        trip = trip == 0 ? trip_ns : std::min(trip, trip_ns);
        counted_.note(peer);
    }
    /// Since this was asked last.
    [[nodiscard]] int reads() { return std::exchange(reads_, 0); }

  private:
    const bool notes_;
    std::vector<LinkCounters> carried_;
    std::vector<double> trips_;
    LinkCounters all_;
    CountedPeers counted_;
    mutable int reads_ = 0;
};

/// Rank 0 of all, whose links note whom they carry to, or leave that to be found out.
struct Rank {
    explicit Rank(bool notes) : routes(layout, links) {
        links.resize(kLinks);
        for (size_t l = 0; l < kLinks; ++l) {
            links[l].name = l == 0 ? "shm" : fmt::format("rail{}", l);
            auto link = std::make_unique<ReadLink>(links[l].name, l == 0 ? LinkKind::shm : LinkKind::rail, notes);
            read.push_back(link.get());
            links[l].link = std::move(link);
            LinkMeasured &measured = l == 0 ? links[l].near : links[l].far;
            measured.done = true;
            measured.latency_ns = l == 0 ? 200 : 20'000;
            measured.bytes_per_ns = measured.together_bytes_per_ns = measured.host_bytes_per_ns = kRates[l];
        }
        made = make_routes(routes, layout, config);
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;

    void carry(int peer, uint64_t bytes, double slower = 1, double trip_ns = 40'000) {
        const PartitionVector &vector = routes.vector(peer, kBytes, 0);
        for (size_t l = 0; l < kLinks; ++l) {
            const double part = vector.share(static_cast<int>(l)) * static_cast<double>(bytes);
            if (part >= 1)
                read[l]->carry(peer, static_cast<uint64_t>(part), 100, trip_ns + slower * part / kRates[l], trip_ns);
        }
    }
    void learn(uint64_t sequence) {
        routes.learn({.sequence = sequence, .elapsed_ns = 60'000'000, .phases = 1},
                     [](const std::vector<int> &) { return kBytes; });
    }
    [[nodiscard]] int reads() {
        int sum = 0;
        for (ReadLink *link : read)
            sum += link->reads();
        return sum;
    }

    Layout layout = alike_layout(kHosts, kPerHost);
    LinkSlots links;
    Config config;
    Routes routes;
    std::vector<ReadLink *> read;
    Status made;
};

TEST(RoutesSamples, OnlyPeersThatWereSentToAreRead) {
    constexpr uint64_t kFirst = 1000;  // latencies are shown in one of 64 operations from here on
    Rank rank(true);
    ASSERT_TRUE(rank.made.ok()) << rank.made.sentence();
    rank.routes.forget();
    EXPECT_EQ(rank.reads(), 0) << "nothing was carried";
    const std::vector<int> peers{5, 30, 31, kRanks - 1};
    const auto both_rails = static_cast<int>(2 * peers.size());
    for (uint64_t sequence = kFirst; sequence < kFirst + 200; ++sequence) {
        for (const int peer : peers)
            rank.carry(peer, kBytes);
        rank.learn(sequence);
        ASSERT_EQ(rank.reads(), both_rails * (sequence % 64 == 0 ? 2 : 1)) << sequence;
    }
    rank.carry(1, kBytes);
    rank.routes.forget();
    EXPECT_EQ(rank.reads(), 1) << "of shared memory";
    rank.learn(64 * kFirst);
    EXPECT_EQ(rank.reads(), both_rails) << "latencies that were not shown";
    rank.learn(64 * kFirst + 64);
    EXPECT_EQ(rank.reads(), 0);
}

/// Links that do not note whom they carried to are read as a whole: that tells what is to be learnt.
TEST(RoutesSamples, WhatIsLearntIsWhatReadingAllWouldTell) {
    Rank noting(true);
    Rank reading(false);
    ASSERT_TRUE(noting.made.ok() && reading.made.ok());
    std::mt19937 random(7);
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    bool moved = false;
    const PartitionVector first = noting.routes.vector(kPerHost, kBytes, 0);
    for (uint64_t sequence = 1; sequence < 400; ++sequence) {
        for (int sent = below(6); sent > 0; --sent) {
            const int peer = 1 + below(kRanks - 1);
            const uint64_t bytes = size_t{64} << (10 + below(7));
            const double slower = below(3) == 0 ? 3 : 1;
            const double trip_ns = 2'000 + below(40'000);
            for (Rank *rank : {&noting, &reading})
                rank->carry(peer, bytes, slower, trip_ns);
        }
        for (Rank *rank : {&noting, &reading}) {
            if (sequence % 7 == 3)
                rank->routes.forget();
            else if (sequence % 7 != 4)
                rank->learn(sequence);
        }
        for (int host = 0; host < kHosts; ++host) {
            const int peer = std::max(1, host * kPerHost);
            const PartitionVector vector = noting.routes.vector(peer, kBytes, 0);
            ASSERT_EQ(vector, reading.routes.vector(peer, kBytes, 0)) << "host " << host << ", " << sequence;
            for (int link = 0; link < static_cast<int>(kLinks); ++link)
                ASSERT_EQ(noting.routes.rate(link, peer), reading.routes.rate(link, peer)) << host << ", " << sequence;
            moved = moved || vector != first;
        }
    }
    EXPECT_TRUE(moved) << "nothing was learnt";
    EXPECT_LT(noting.reads() * 10, reading.reads());
}

}  // namespace
}  // namespace flx
