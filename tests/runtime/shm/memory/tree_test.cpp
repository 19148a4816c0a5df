/// What goes from rank to rank of a host follows its caches and packages: on a made-up machine, by counting.
#include "runtime/shm/memory/tree.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "probe/places.h"
#include "runtime/shm/ways/fused.h"
#include "runtime/shm/ways/trial.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/shm/ways/shm_calls.h"

namespace flx::shm {
namespace {

using probe::Place;
using testing::kYield;
using testing::run_group;
using testing::run_ranks;
using testing::TestWatch;

/// Of processes that are bound to those units, one each, as hwloc has them on the machine that `description` makes up.
std::vector<Place> places_on(const char *description, const std::vector<int> &units) {
    std::vector<cpu_set_t> sets(units.size());
    for (size_t i = 0; i < units.size(); ++i) {
        CPU_ZERO(&sets[i]);
        CPU_SET(units[i], &sets[i]);
    }
    setenv("HWLOC_SYNTHETIC", description, 1);
    std::vector<Place> places;
    const Status status = probe::read_places(sets, places);
    unsetenv("HWLOC_SYNTHETIC");
    EXPECT_TRUE(status.ok()) << status.sentence();
    return places;
}

constexpr const char *kMachine = "pack:2 l3:2 core:2 pu:1";
/// Neighbours by rank are far from each other, as with mpirun --map-by socket.
const std::vector<int> kUnits = {0, 4, 2, 6, 1, 5, 3, 7};
constexpr int kRanks = 8;

int package_of(int rank) {
    return kUnits[rank] / 4;
}
int cache_of(int rank) {
    return kUnits[rank] / 2;
}

TEST(Places, AreWhereUnitsAre) {
    const std::vector<Place> places = places_on(kMachine, kUnits);
    ASSERT_EQ(places.size(), kUnits.size());
    for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(places[rank].package, package_of(rank)) << rank;
        EXPECT_EQ(places[rank].cache, cache_of(rank)) << rank;
    }
}

TEST(Places, OfWhoMovesAreNotKnown) {
    setenv("HWLOC_SYNTHETIC", kMachine, 1);
    std::vector<cpu_set_t> sets(3);
    for (cpu_set_t &set : sets)
        CPU_ZERO(&set);
    for (const int unit : {0, 1, 2})
        CPU_SET(unit, &sets[0]);  // two caches of a package
    for (const int unit : {3, 4})
        CPU_SET(unit, &sets[1]);  // two packages
    CPU_SET(100, &sets[2]);       // not there
    std::vector<Place> places;
    EXPECT_TRUE(probe::read_places(sets, places).ok());
    unsetenv("HWLOC_SYNTHETIC");
    ASSERT_EQ(places.size(), 3U);
    EXPECT_EQ(places[0].package, 0);
    EXPECT_EQ(places[0].cache, -1);
    EXPECT_EQ(places[1].package, -1);
    EXPECT_EQ(places[2].package, -1);
}

/// From every root each rank has it once, from somebody who had it in an earlier hop and hands it on then.
void expect_reaches_all(const Tree &tree, int ranks) {
    for (int root = 0; root < ranks; ++root) {
        for (int rank = 0; rank < ranks; ++rank) {
            const Tree::Arrival arrival = tree.arrival(rank, root);
            EXPECT_LT(arrival.hop, tree.hops());
            EXPECT_EQ(arrival.hop < 0, rank == root);
            if (rank == root)
                continue;
            EXPECT_LT(tree.arrival(arrival.from, root).hop, arrival.hop);
            EXPECT_TRUE(tree.hands_on(arrival.hop, arrival.from, root)) << rank << " from " << root;
        }
    }
    for (int parts = 1; parts <= ranks; ++parts) {
        std::set<int> workers;
        for (int part = 0; part < parts; ++part)
            workers.insert(tree.worker(part, parts));
        EXPECT_EQ(workers.size(), static_cast<size_t>(parts));
        EXPECT_GE(*workers.begin(), 0);
        EXPECT_LT(*workers.rbegin(), ranks);
    }
    size_t members = 0;
    for (size_t nest = 0; nest < tree.nests().size(); ++nest) {
        members += tree.nests()[nest].size();
        for (const int rank : tree.nests()[nest])
            EXPECT_EQ(tree.nest_of(rank), static_cast<int>(nest));
    }
    EXPECT_EQ(members, static_cast<size_t>(ranks));
}

TEST(TreeTest, ReachesAllWhateverTheMachine) {
    for (const int ranks : {1, 2, 7}) {
        const Tree flat(ranks);
        EXPECT_FALSE(flat.shaped());
        EXPECT_EQ(flat.hops(), 1);
        expect_reaches_all(flat, ranks);
    }
    const auto check = [](const char *machine, const std::vector<int> &units, int hops) {
        const Tree tree(places_on(machine, units));
        EXPECT_EQ(tree.hops(), hops) << machine;
        EXPECT_EQ(tree.shaped(), hops > 1) << machine;
        expect_reaches_all(tree, static_cast<int>(units.size()));
    };
    check(kMachine, kUnits, 3);
    check(kMachine, {0, 1, 2, 4}, 3);              // not all caches have two
    check(kMachine, {0, 2, 4, 6}, 2);              // a rank a cache
    check(kMachine, {0, 1, 2, 3}, 2);              // one package
    check(kMachine, {0, 1, 4, 5}, 2);              // one cache in each package
    check(kMachine, {6, 7}, 1);                    // one cache
    check("pack:2 core:4 pu:1", {0, 5, 1, 4}, 2);  // no cache
    check("pack:1 l3:1 core:8 pu:1", {0, 1, 2, 3, 4}, 1);
    check("pack:3 l3:3 core:2 pu:2", {35, 1, 2, 14, 22, 8, 9, 30, 31, 3, 12}, 3);
    // Where one rank's place is not known, there is no telling.
    std::vector<Place> places = places_on(kMachine, kUnits);
    places[3] = {};
    EXPECT_FALSE(Tree(places).shaped());
}

TEST(TreeTest, WorkersAreFarFromEachOther) {
    const Tree tree(places_on(kMachine, kUnits));
    for (int parts = 2; parts <= kRanks; ++parts) {
        std::vector<int> in_package(2);
        std::vector<int> in_cache(4);
        for (int part = 0; part < parts; ++part) {
            ++in_package[package_of(tree.worker(part, parts))];
            ++in_cache[cache_of(tree.worker(part, parts))];
        }
        EXPECT_LE(std::abs(in_package[0] - in_package[1]), 1) << parts;
        EXPECT_LE(*std::ranges::max_element(in_cache) - *std::ranges::min_element(in_cache), 1) << parts;
    }
}

/// How often something went from rank to rank.
struct Taken {
    int across_packages = 0;
    int across_caches = 0;  ///< of one package
    int within_caches = 0;
    bool operator==(const Taken &) const = default;
};

std::ostream &operator<<(std::ostream &to, const Taken &taken) {
    return to << taken.across_packages << " across packages, " << taken.across_caches << " across caches, "
              << taken.within_caches << " within";
}

using Work = std::function<Status(Fused &, int rank, Waiter &)>;

/// Several calls of `work`, of which each takes the same.
Taken count(bool shaped, const Work &work) {
    constexpr int kCalls = 5;
    constexpr size_t kPayload = 4096;
    const std::vector<Place> places = places_on(kMachine, kUnits);
    std::vector<std::byte> owner(Fused::bytes(kRanks, kPayload) + 64);
    std::byte *memory = owner.data() + (64 - reinterpret_cast<uintptr_t>(owner.data()) % 64) % 64;
    std::vector<std::vector<uint64_t>> taken(kRanks, std::vector<uint64_t>(kRanks));
    std::atomic<int> failed{0};
    run_ranks(kRanks, [&](int rank) {
        Fused fused(memory, rank, kRanks, kPayload);
        if (shaped)
            fused.set_tree(Tree(places));
        fused.set_two_steps({.allreduce = 0, .allgather = 0, .barrier = true, .bcast = 0});
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        for (int call = 0; call < kCalls; ++call) {
            const Status status = work(fused, rank, waiter);
            if (!status.ok())
                ++failed;
            ASSERT_TRUE(status.ok()) << status.sentence();
        }
        for (int from = 0; from < kRanks; ++from)
            taken[rank][from] = fused.taken_from(from);
    });
    Taken sum;
    for (int rank = 0; rank < kRanks; ++rank) {
        for (int from = 0; from < kRanks; ++from) {
            EXPECT_EQ(taken[rank][from] % kCalls, 0U);
            int &kind = package_of(rank) != package_of(from) ? sum.across_packages
                        : cache_of(rank) != cache_of(from)   ? sum.across_caches
                                                             : sum.within_caches;
            kind += static_cast<int>(taken[rank][from] / kCalls);
        }
    }
    return sum;
}

Status barrier(Fused &fused, int /*rank*/, Waiter &waiter) {
    return fused.barrier(1, waiter);
}

TEST(FusedByTree, BarrierCrossesOnceEachWay) {
    // Two packages, two caches each, two ranks each: there and back.
    EXPECT_EQ(count(true, barrier), (Taken{2, 4, 8}));
    EXPECT_EQ(count(false, barrier), (Taken{8, 4, 2}));
}

TEST(FusedByTree, BcastCrossesOnce) {
    for (const size_t bytes : {size_t{8}, size_t{200}, size_t{3000}}) {
        for (const int root : {0, 5}) {
            const Work bcast = [=](Fused &fused, int rank, Waiter &waiter) -> Status {
                std::vector<std::byte> data(bytes, std::byte(rank == root ? 42 : 0));
                FLX_TRY(fused.bcast(data.data(), bytes, root, 1, waiter));
                EXPECT_EQ(data, std::vector<std::byte>(bytes, std::byte{42}));
                return {};
            };
            EXPECT_EQ(count(true, bcast), (Taken{1, 2, 4})) << bytes;
            EXPECT_EQ(count(false, bcast), (Taken{4, 2, 1})) << bytes;
        }
    }
}

TEST(FusedByTree, AllreduceTakesEachInputAcrossOnceAndTheResultBackOnce) {
    const auto allreduce = [](size_t elements) -> Work {
        return [elements](Fused &fused, int rank, Waiter &waiter) -> Status {
            std::vector<int32_t> data(elements, rank + 1);
            FLX_TRY(fused.allreduce(data.data(), data.data(), elements, FLX_INT32, FLX_SUM, 1, waiter));
            EXPECT_EQ(data, std::vector<int32_t>(elements, kRanks * (kRanks + 1) / 2));
            return {};
        };
    };
    EXPECT_EQ(count(true, allreduce(2)), (Taken{4 + 1, 2 + 2, 1 + 4}));
    EXPECT_EQ(count(false, allreduce(2)), (Taken{4 + 4, 2 + 2, 1 + 1}));
    // Four parts of a line or more, one in each cache: 7 inputs for each, and each part to 7 ranks.
    EXPECT_EQ(count(true, allreduce(64)), (Taken{2 * 16, 2 * 8, 2 * 4}));
}

TEST(FusedByTree, AllgatherPutsTogetherWithinCachesFirst) {
    const Work allgather = [](Fused &fused, int rank, Waiter &waiter) -> Status {
        std::vector<int32_t> all(2 * kRanks);
        const int32_t mine[] = {rank, -rank};
        FLX_TRY(fused.allgather(mine, all.data(), sizeof mine, 1, waiter));
        for (int of = 0; of < kRanks; ++of) {
            EXPECT_EQ(all[2 * of], of);
            EXPECT_EQ(all[2 * of + 1], -of);
        }
        return {};
    };
    // Four pairs put together; each rank takes them all, but for a first one's own.
    EXPECT_EQ(count(true, allgather), (Taken{16, 8, 4 + 4}));
}

/// Whatever the trial finds: all ranks choose alike, and results stay right.
TEST(FusedByTree, TrialsAgree) {
    constexpr size_t kPayload = 4096;
    const std::vector<Place> places = places_on(kMachine, kUnits);
    std::vector<Ways> chosen(kRanks);
    Board board;
    std::atomic<int> failed{0};
    run_group(kRanks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        const size_t fused_bytes = Fused::bytes(kRanks, kPayload);
        ASSERT_TRUE(Segment::make(bootstrap, fused_bytes + Stream::bytes(kRanks, 1), segment).ok());
        Fused fused(segment->base(), rank, kRanks, kPayload);
        fused.set_tree(Tree(places));
        Stream stream(segment->base() + fused_bytes, rank, kRanks, 1);
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        size_t tried = 0;
        ASSERT_TRUE(try_ways(bootstrap, board, fused, stream, nullptr, waiter, 20'000'000, chosen[rank], tried).ok());
        std::vector<int> value(20, rank == 3 ? 5 : 0);
        ASSERT_TRUE(fused.bcast(value.data(), value.size() * sizeof(int), 3, 1, waiter).ok());
        EXPECT_EQ(value, std::vector<int>(20, 5));
    });
    for (const Ways &ways : chosen) {
        EXPECT_EQ(ways.two_steps.bcast, chosen[0].two_steps.bcast);
        EXPECT_EQ(ways.two_steps.barrier, chosen[0].two_steps.barrier);
        EXPECT_EQ(ways.two_steps.allreduce, chosen[0].two_steps.allreduce);
    }
}

}  // namespace
}  // namespace flx::shm
