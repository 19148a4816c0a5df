#include "runtime/shares/routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "tests/runtime/shares/alike_ranks.h"

namespace flx {
namespace {

constexpr size_t kShort = 64 << 10;  // at most an eighth of the buckets of rails 1 and 2, and more than that of rail 3
constexpr size_t kLong = 1 << 20;    // never goes whole
constexpr double kLatencyNs = 20'000;
constexpr double kBucketNs = 10 * kMs;                        // of a rail's rate
constexpr std::array<double, 4> kRates{0, 0.1, 0.06, 0.025};  // bytes/ns, by link; the first is shared memory

/// A link that carries what a test says.
class FakeLink final : public IdleLink {
  public:
    FakeLink(std::string name, LinkKind kind, std::set<int> peers)
        : IdleLink(std::move(name), kind), peers_(std::move(peers)) {}

    [[nodiscard]] bool reaches(int peer) const override { return peers_.count(peer) != 0; }
    [[nodiscard]] LinkCounters counters(int peer) const override {
        const auto found = carried_.find(peer);
        return found == carried_.end() ? LinkCounters{} : found->second;
    }
    [[nodiscard]] LinkCounters timed() const override {
        LinkCounters sum;
        for (const auto &[peer, counters] : carried_) {
            sum.bytes += counters.bytes;
            sum.busy_ns += counters.busy_ns;
        }
        return sum;
    }
    [[nodiscard]] LinkState state(int peer) const override {
        return lost_.count(peer) != 0 ? LinkState::lost : LinkState::up;
    }

    void carry(int peer, uint64_t bytes, double busy_ns) {
        LinkCounters &counters = carried_[peer];
        counters.bytes += bytes;
        counters.chunks += 1;
        counters.busy_ns += static_cast<uint64_t>(busy_ns);
    }
    void lose(int peer) { lost_.insert(peer); }

  private:
    const std::set<int> peers_;
    std::map<int, LinkCounters> carried_;
    std::set<int> lost_;
};

/// What the ranks of a host tell each other.
struct Shared {
    std::array<RailRecord, 2 * kMaxLinks> records{};
    std::array<RailLoad, kMaxLinks> loads{};
};

/// One rank of two hosts, with three rails between them that let what they have saved up pass at `burst` bytes/ns.
struct Rank {
    struct Options {
        double burst = 0.6;
        bool frozen = false;
        bool apart = false;        ///< each rail leads to one rank of the other host
        bool near_late = false;    ///< no rank of this host answered while links were measured
        std::string partition;     ///< FLX_PARTITION
        int per_host = 1;          ///< ranks
        int rank = 0;              ///< this one, of the first host
        bool lends = false;        ///< ranks own rails, and lend them to each other
        Shared *shared = nullptr;  ///< with the other ranks of its host; null: this one is alone there
    };

    Rank() : Rank(Options()) {}
    explicit Rank(const Options &options) : routes(layout, links) {
        layout.rank = options.rank;
        layout.size = 2 * options.per_host;
        layout.hosts = 2;
        layout.here = options.per_host;
        layout.most_per_host = options.per_host;
        std::set<int> near;
        std::set<int> far;
        for (int rank = 0; rank < layout.size; ++rank) {
            Member member;
            member.host = rank / options.per_host;
            member.local = rank % options.per_host;
            member.process = rank;
            member.hostname = member.host == 0 ? "here" : "there";
            layout.members.push_back(member);
            if (rank != layout.rank)
                (member.host == 0 ? near : far).insert(rank);
        }
        links.resize(kRates.size());
        links[0].name = "shm";
        if (!near.empty()) {
            links[0].link = std::make_unique<FakeLink>("shm", LinkKind::shm, near);
            links[0].near.done = !options.near_late;
            links[0].near.latency_ns = 200;
            links[0].near.bytes_per_ns = 5;
        }
        for (size_t l = 1; l < links.size(); ++l) {
            links[l].name = fmt::format("rail{}", l);
            const std::set<int> one{layout.size - 1 - static_cast<int>(l) % options.per_host};
            auto rail = std::make_unique<FakeLink>(links[l].name, LinkKind::rail, options.apart ? one : far);
            rails[l] = rail.get();
            links[l].link = std::move(rail);
            LinkMeasured &measured = links[l].far;
            measured.done = true;
            measured.latency_ns = kLatencyNs;
            measured.bytes_per_ns = kRates[l];
            measured.together_bytes_per_ns = kRates[l];
            measured.burst_bytes_per_ns = options.burst;
            measured.host_bytes_per_ns = kRates[l];
        }
        other = *far.begin();
        made = make(options);
    }

    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;
    ~Rank() {  // what is lent belongs to the routes
        routes.drop_lent();
        links.clear();
    }

    Status make(const Options &options) {
        if (options.frozen)
            FLX_TRY(config.set("FLX_FROZEN", "1", "flx_config_t"));
        PartitionVector forced;
        if (!options.partition.empty())
            FLX_TRY(parse_partition(options.partition, names_of(links), forced));
        AlikeBootstrap bootstrap(layout.rank, layout.size);
        FLX_TRY(routes.exchange_links(bootstrap));
        if (options.lends)
            ledger.resize(Lending::bytes(layout.hosts) + 64);
        FLX_TRY(routes.choose_own_rail(
            config, options.lends ? ledger.data() + -reinterpret_cast<uintptr_t>(ledger.data()) % 64 : nullptr));
        FLX_TRY(routes.exchange_owners(bootstrap));
        if (options.shared != nullptr)
            routes.share_records(options.shared->records.data(), options.shared->loads.data());
        FLX_TRY(routes.make(config, forced));
        return routes.exchange(bootstrap);
    }

    PartitionVector vector(size_t bytes) { return routes.vector(other, bytes, 0); }
    /// The rail that takes a message of `bytes` whole; -1: it is shared.
    int takes(size_t bytes) { return routes.vector(other, bytes, 0).only(); }

    /// The operation that began last ends, in which the longest message had `bytes`, after so long.
    void end(size_t bytes, double elapsed_ns) {
        Ended ended;
        ended.sequence = ++operations;
        ended.elapsed_ns = static_cast<int64_t>(elapsed_ns);
        routes.learn(ended, [&](const std::vector<int> &) { return bytes; });
    }

    /// A short operation that goes whole over rail 1 and takes `busy_ns`; false: it did not go so.
    bool goes_whole(double busy_ns) {
        routes.begin({other});
        if (takes(kShort) != 1)
            return false;
        rails[1]->carry(other, kShort, busy_ns);
        end(kShort, busy_ns);
        return true;
    }

    /// What explain() says of short messages; nothing where none may go whole.
    [[nodiscard]] std::optional<std::string> told() const {
        for (const Decision &decision : routes.explain())
            if (decision.about == "short messages")
                return decision.decided;
        return std::nullopt;
    }

    Layout layout;
    LinkSlots links;
    Config config;
    std::vector<std::byte> ledger;
    Routes routes;
    std::array<FakeLink *, kRates.size()> rails{};
    int other = 0;  ///< a rank of the other host
    uint64_t operations = 0;
    Status made;
};

std::string told_of(int whole) {
    return fmt::format("{} went whole over one rail", whole);
}

/// How long a short message takes on rail 1 without its bucket, beside the way of an empty one and back.
constexpr double kAsWithoutNs = static_cast<double>(kShort) / kRates[1];
constexpr double kTripNs = 2 * kLatencyNs;
constexpr double kTenTimesNs = kTripNs + 10 * kAsWithoutNs;

/// Buckets fill up again while a test runs, the longer the busier the machine is: nothing below expects that a bucket
/// is empty unless a message has just been refused.
TEST(RoutesTest, ShortMessagesGoWholeUntilBucketsAreEmpty) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok()) << rank.made.sentence();
    EXPECT_EQ(rank.told(), told_of(0));
    const int64_t begun = now_ns();
    std::array<int, kRates.size()> taken{};
    for (int link = rank.takes(kShort); link >= 0; link = rank.takes(kShort)) {
        ++taken[link];
        // A million bytes, of which no more than a part of a message may be left.
        ASSERT_TRUE(link == 1 || taken[1] >= 15) << "over rail " << link << " after " << taken[1] << " messages";
    }
    const auto elapsed = static_cast<double>(now_ns() - begun);
    EXPECT_GE(taken[2], 9) << "the next one's bucket, 600,000 bytes, was full";
    EXPECT_EQ(taken[3], 0) << "a message is more than an eighth of its bucket";
    for (const int link : {1, 2})
        EXPECT_LE(static_cast<double>(taken[link] * kShort), (kBucketNs + elapsed) * kRates[link] + 1000) << link;
    EXPECT_EQ(rank.told(), told_of(taken[1] + taken[2]));
}

/// In an alltoall all ranks have alike much to send: cells by the rails' shares. Who may have more than others begins
/// on the rail that is its own, and so does what is too short to be cut.
TEST(RoutesTest, AlltoallsGoBySharesAndOtherExchangesOnTheOwnRail) {
    Rank::Options options;
    options.burst = 0;
    options.per_host = 2;
    options.rank = 1;
    options.lends = true;
    Rank rank(options);
    ASSERT_TRUE(rank.made.ok()) << rank.made.sentence();
    ASSERT_TRUE(rank.routes.lends());
    const PartitionVector shares = rank.vector(kLong);
    for (const int link : {1, 2, 3})
        EXPECT_GT(shares.weight[link], 0U) << link;

    EXPECT_TRUE(rank.routes.open_exchange({kLong, 2 * kLong}, false));
    EXPECT_EQ(rank.takes(kLong), 2);
    rank.routes.exchange_opened();
    EXPECT_EQ(rank.vector(kLong), shares) << "of a schedule that begins meanwhile";
    rank.routes.end_exchanges();

    EXPECT_TRUE(rank.routes.open_exchange({kLong, 2 * kLong, false}, true)) << "a group with others in it";
    EXPECT_EQ(rank.takes(kLong), 2);
    rank.routes.exchange_opened();
    rank.routes.end_exchanges();

    EXPECT_FALSE(rank.routes.open_exchange({kLong, 2 * kLong}, true));
    EXPECT_EQ(rank.vector(kLong), shares);
    rank.routes.exchange_opened();

    constexpr size_t kTooShort = 16 << 10;
    EXPECT_TRUE(rank.routes.open_exchange({kTooShort, 2 * kTooShort}, true));
    EXPECT_EQ(rank.takes(kTooShort), 2);
    rank.routes.exchange_opened();
    rank.routes.end_exchanges();
}

/// What no rail takes whole has the shares that it would have without buckets, and so have long messages.
TEST(RoutesTest, OthersAreShared) {
    Rank rank;
    Rank::Options without;
    without.burst = 0;
    Rank plain(without);
    ASSERT_TRUE(rank.made.ok() && plain.made.ok());
    for (const size_t bytes : {kLong, Bursts::kMostBytes + 1})
        EXPECT_EQ(rank.vector(bytes), plain.vector(bytes));
    EXPECT_EQ(rank.told(), told_of(0));
    while (rank.takes(kShort) >= 0) {
    }
    const double first = rank.routes.last_share(1);
    const PartitionVector expected = plain.vector(kShort);
    EXPECT_EQ(first, expected.share(1));
    EXPECT_GT(expected.share(1), expected.share(2));
    EXPECT_GT(expected.share(3), 0);
}

TEST(RoutesTest, SharesThatLeaveAPeerWithoutALinkAreAnError) {
    Rank::Options options;
    options.per_host = 2;
    options.partition = "shm:1";
    const Rank rank(options);
    EXPECT_EQ(rank.made.number(), number_of(Fault::partition_empty));
    EXPECT_NE(rank.made.sentence().find("reaches rank 2 (pid 0 on there)"), std::string::npos) << rank.made.sentence();
}

TEST(RoutesTest, NoLinkToAllRanksOfAHostIsAnErrorThatNamesThem) {
    Rank::Options options;
    options.per_host = 2;
    EXPECT_TRUE(Rank(options).made.ok());
    options.apart = true;
    const Rank rank(options);
    EXPECT_EQ(rank.made.code(), FLX_ERR_LINK);
    EXPECT_EQ(rank.made.fault(), Fault::no_common_link);
    for (const char *part :
         {"no link leads from rank 0", "rank 2 (pid 0 on there) by rail1, rail3", "rank 3", "by rail2", "FLX_RAILS"})
        EXPECT_NE(rank.made.sentence().find(part), std::string::npos) << part << " in " << rank.made.sentence();
}

TEST(RoutesTest, NothingGoesWholeWhereBurstsAreNotWorthIt) {
    Rank::Options options;
    options.burst = 0.15;  // all rails together carry 0.185
    Rank rank(options);
    ASSERT_TRUE(rank.made.ok());
    for (int i = 0; i < 20; ++i)
        ASSERT_EQ(rank.takes(kShort), -1) << i;
    EXPECT_EQ(rank.told(), std::nullopt);
}

TEST(RoutesTest, NothingGoesWholeWhereSharesAreToStay) {
    Rank::Options frozen;
    frozen.frozen = true;
    Rank::Options forced;
    forced.partition = "rail1:2,rail2:1";
    for (const Rank::Options &options : {frozen, forced}) {
        Rank rank(options);
        ASSERT_TRUE(rank.made.ok()) << rank.made.sentence();
        for (int i = 0; i < 20; ++i)
            ASSERT_EQ(rank.takes(kShort), -1) << i;
        EXPECT_EQ(rank.told(), std::nullopt);
    }
}

TEST(RoutesTest, WhatWentWholeIsNotLearntFrom) {
    Rank rank;
    Rank untouched;
    ASSERT_TRUE(rank.made.ok() && untouched.made.ok());
    const double before = rank.routes.rate(1, rank.other);
    EXPECT_NEAR(before, kRates[1], 1e-6);
    for (int i = 0; i < 5; ++i)
        ASSERT_TRUE(rank.goes_whole(kTenTimesNs)) << i;
    EXPECT_EQ(rank.routes.rate(1, rank.other), before);
    EXPECT_EQ(rank.vector(kLong), untouched.vector(kLong));
}

/// Counters of an operation that is shared, in which rail 1 is ten times slower than it was.
void share(Rank &rank) {
    const PartitionVector vector = rank.vector(kLong);
    ASSERT_EQ(vector.only(), -1);
    double longest = 0;
    for (const int link : {1, 2, 3}) {
        const double bytes = vector.share(link) * kLong;
        const double busy = kTripNs + bytes / kRates[link] * (link == 1 ? 10 : 1);
        rank.rails[link]->carry(rank.other, static_cast<uint64_t>(bytes), busy);
        longest = std::max(longest, busy);
    }
    rank.end(kLong, longest);
}

TEST(RoutesTest, WhatIsSharedIsLearntFromAlsoAfterWhatWentWhole) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    const PartitionVector before = rank.vector(kLong);
    ASSERT_TRUE(rank.goes_whole(kTenTimesNs));
    EXPECT_NEAR(rank.routes.rate(1, rank.other), kRates[1], 1e-6);
    rank.routes.begin({rank.other});
    share(rank);
    EXPECT_LT(rank.routes.rate(1, rank.other), kRates[1] / 2);
    EXPECT_LT(rank.vector(kLong).share(1), before.share(1) / 2);
}

/// Of what is too short for buckets nothing is noted, so it would be taken for what went whole before it.
TEST(RoutesTest, WhatWentWholeIsForgottenWhenTheNextOneBegins) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    ASSERT_TRUE(rank.goes_whole(kTripNs));
    rank.routes.begin({rank.other});
    (void)rank.vector(4 << 10);
    rank.rails[1]->carry(rank.other, kShort, kTenTimesNs);
    rank.end(4 << 10, kTenTimesNs);
    EXPECT_LT(rank.routes.rate(1, rank.other), kRates[1]);
}

TEST(RoutesTest, WhatWasSharedIsForgottenWhenTheNextOneBegins) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    rank.routes.begin({rank.other});
    (void)rank.vector(Bursts::kMostBytes + 1);
    rank.end(Bursts::kMostBytes + 1, kTripNs);
    ASSERT_TRUE(rank.goes_whole(kTenTimesNs));
    EXPECT_NEAR(rank.routes.rate(1, rank.other), kRates[1], 1e-6);
}

/// Its counters are those of several rails, so no bucket is judged by it.
TEST(RoutesTest, WhatIsPartlySharedIsLearntFrom) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    rank.routes.begin({rank.other});
    ASSERT_EQ(rank.takes(kShort), 1);
    share(rank);
    EXPECT_LT(rank.routes.rate(1, rank.other), kRates[1] / 2);
}

TEST(RoutesTest, BucketsThatWereEmptyEightTimesInARowAreNotBelieved) {
    constexpr int64_t kPauseNs = 1000 * kMs;  // for so long
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    for (int i = 0; i < 7; ++i)
        ASSERT_TRUE(rank.goes_whole(kTripNs + kAsWithoutNs)) << i;
    const int64_t before = now_ns();
    ASSERT_TRUE(rank.goes_whole(kTripNs + kAsWithoutNs));
    const int ninth = rank.takes(kShort);
    if (now_ns() - before < kPauseNs) {
        EXPECT_EQ(ninth, -1);
    }
    EXPECT_EQ(rank.told(), told_of(ninth < 0 ? 8 : 9));
}

/// They took less than 0.8 of what an empty bucket takes, without an empty message's way and its acknowledgement's: all
/// of them, or one among the others.
TEST(RoutesTest, BucketsThatWereNotEmptyAreBelieved) {
    for (const double slow : {0.79, 1.0}) {
        Rank rank;
        ASSERT_TRUE(rank.made.ok());
        for (int i = 0; i < 8; ++i)
            ASSERT_TRUE(rank.goes_whole(kTripNs + (i == 3 ? 0.79 : slow) * kAsWithoutNs)) << i;
        EXPECT_EQ(rank.takes(kShort), 1);
    }
}

TEST(RoutesTest, ARailThatIsLostTakesNoMessage) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    ASSERT_EQ(rank.takes(kShort), 1);
    rank.rails[1]->lose(rank.other);
    rank.routes.begin({rank.other});
    int taken = 0;
    for (int link = rank.takes(kShort); link >= 0; link = rank.takes(kShort), ++taken)
        ASSERT_EQ(link, 2);
    EXPECT_GE(taken, 9);
    EXPECT_EQ(rank.routes.last_share(1), 0);
}

TEST(RoutesTest, ARailThatIsLostInTheMiddleOfAnOperationTakesNoMoreMessages) {
    Rank rank;
    ASSERT_TRUE(rank.made.ok());
    rank.routes.begin({rank.other});
    ASSERT_EQ(rank.takes(kShort), 1);
    rank.routes.lost(1, rank.other);
    EXPECT_EQ(rank.takes(kShort), 2);
    // The counters are those of two rails.
    rank.rails[2]->carry(rank.other, kShort, kTenTimesNs);
    rank.end(kShort, kTenTimesNs);
    EXPECT_LT(rank.routes.rate(2, rank.other), kRates[2]);
}

Rank::Options of_two(int rank, Shared &shared) {
    Rank::Options options;
    options.per_host = 2;
    options.rank = rank;
    options.shared = &shared;
    return options;
}

TEST(RoutesTest, RanksOfAHostDivideItsBuckets) {
    Shared shared;
    Rank one(of_two(0, shared));
    Rank two(of_two(1, shared));
    ASSERT_TRUE(one.made.ok() && two.made.ok());
    const int64_t begun = now_ns();
    std::array<int, kRates.size()> taken{};
    for (int i = 0; i < 40; ++i)
        for (Rank *rank : {&one, &two})
            if (const int link = rank->takes(kShort); link >= 0)
                ++taken[link];
    const auto elapsed = static_cast<double>(now_ns() - begun);
    EXPECT_GE(taken[1], 15);
    for (const int link : {1, 2})
        EXPECT_LE(static_cast<double>(taken[link] * kShort), (kBucketNs + elapsed) * kRates[link] + 1000) << link;
}

/// Half of a rail's rate is what each of them sees of it.
TEST(RoutesTest, RanksThatShareRailsAreNotTakenForSlow) {
    Shared shared;
    Rank one(of_two(0, shared));
    ASSERT_TRUE(one.made.ok());
    for (int i = 0; i < 8; ++i)
        ASSERT_TRUE(one.goes_whole(kTripNs + 1.5 * kAsWithoutNs)) << i;
    EXPECT_EQ(one.takes(kShort), 1);
}

TEST(RoutesTest, WhatStaysOnTheHostEmptiesNoBucket) {
    Shared shared;
    Rank one(of_two(0, shared));
    ASSERT_TRUE(one.made.ok());
    for (int i = 0; i < 100; ++i)
        ASSERT_EQ(one.routes.vector(1, kShort, 0).only(), 0) << i;
    EXPECT_EQ(one.told(), told_of(0));
    for (int i = 0; i < 15; ++i)
        ASSERT_EQ(one.takes(kShort), 1) << i;
}

/// Ranks that wait for a core answer too late, and nothing is wrong.
TEST(RoutesTest, SharedMemoryThatWasNotMeasuredIsNoReasonToWarn) {
    Shared shared;
    Rank::Options options = of_two(0, shared);
    options.near_late = true;
    testing::internal::CaptureStderr();
    Rank one(options);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    ASSERT_TRUE(one.made.ok());
    EXPECT_EQ(one.routes.vector(1, kShort, 0).only(), 0);
}

/// A rail that is lost towards one rank of a host takes nothing to the others either.
TEST(RoutesTest, ARailMustCarryToAllRanksOfAHost) {
    Shared shared;
    Rank one(of_two(0, shared));
    ASSERT_TRUE(one.made.ok());
    ASSERT_EQ(one.routes.vector(3, kShort, 0).only(), 1);
    one.rails[1]->lose(2);
    one.routes.begin({2, 3});
    EXPECT_EQ(one.routes.vector(3, kShort, 0).only(), 2);
}

}  // namespace
}  // namespace flx
