#include "runtime/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <string>

namespace flx {
namespace {

using algorithms::Collective;

constexpr Collective kAll[] = {Collective::allreduce, Collective::reduce_scatter_block,
                               Collective::allgather, Collective::bcast,
                               Collective::reduce,    Collective::barrier};

std::unique_ptr<Planner> make(const Agreed &agreed, const std::string &overrides = "", int rank = 0) {
    std::unique_ptr<Planner> planner;
    const Status status = Planner::make(rank, agreed, overrides, planner);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return planner;
}

std::string sentence_of(const std::string &overrides, int size) {
    std::unique_ptr<Planner> planner;
    const Status status = Planner::make(0, Agreed{.size = size}, overrides, planner);
    EXPECT_EQ(status.code(), FLX_ERR_CONFIG) << overrides;
    EXPECT_EQ(planner, nullptr);
    return status.sentence();
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

TEST(Planner, ChoosesForEverySizeAnAlgorithmThatServesIt) {
    for (int size = 2; size <= 40; ++size) {
        for (const int hosts : {1, 2}) {
            for (const bool strict : {false, true}) {
                const auto planner = make({.size = size, .hosts = hosts, .strict = strict});
                for (const Collective collective : kAll) {
                    for (size_t bytes = 1; bytes <= 1U << 30; bytes *= 32) {
                        const Choice choice = planner->choose(collective, bytes);
                        ASSERT_NE(choice.algorithm, nullptr);
                        EXPECT_TRUE(choice.algorithm->serves(collective, size))
                            << choice.name() << " " << size << " " << algorithms::name_of(collective);
                        EXPECT_EQ(choice.name(), choice.algorithm->name);
                    }
                }
            }
        }
    }
}

TEST(Planner, FusesUpToTheLargestInputAndStreamsBeyond) {
    const auto planner = make({.size = 8, .fused_bytes = 1000, .shared_memory = true});
    EXPECT_EQ(planner->choose(Collective::allreduce, 1000).way, Way::fused);
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1000).name(), "fused");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1001).name(), "streamed");
    // Of an allgather's vector one rank's input is its own block alone.
    EXPECT_STREQ(planner->choose(Collective::allgather, 8000).name(), "fused");
    EXPECT_STREQ(planner->choose(Collective::allgather, 8008).name(), "streamed");
    EXPECT_STREQ(planner->choose(Collective::reduce_scatter_block, 1008).name(), "streamed");
    EXPECT_STREQ(planner->choose(Collective::alltoall, 1000).name(), "fused");
    EXPECT_STREQ(planner->choose(Collective::alltoall, 1008).name(), "streamed");
    EXPECT_STREQ(planner->choose(Collective::alltoallv, 8).name(), "exchange");
}

/// Whether shared memory exists may differ between runs; the bits may not.
TEST(Planner, LetsDirectStandInForSharedMemory) {
    const auto with = make({.size = 32, .hosts = 1, .fused_bytes = 1000, .shared_memory = true});
    const auto without = make({.size = 32, .hosts = 1, .fused_bytes = 1000, .shared_memory = false});
    for (const Collective collective : kAll) {
        EXPECT_STREQ(with->choose(collective, 992).name(), "fused");
        EXPECT_STREQ(without->choose(collective, 992).name(), "direct");
        EXPECT_STREQ(with->choose(collective, 1U << 20).name(),
                     collective == Collective::barrier ? "fused" : "streamed");
        EXPECT_STREQ(without->choose(collective, 1U << 20).name(), "direct");
    }
}

TEST(Planner, AddsInRankOrderWhereStrict) {
    const auto strict = make({.size = 32, .hosts = 4, .strict = true});
    for (const Collective collective : {Collective::allreduce, Collective::reduce, Collective::reduce_scatter_block}) {
        for (const size_t bytes : {size_t{4}, size_t{1} << 16, size_t{1} << 30}) {
            const Choice choice = strict->choose(collective, bytes);
            EXPECT_EQ(choice.algorithm->bits(collective), algorithms::BitClass::rank_order);
        }
    }
    // What only moves data keeps the fastest way.
    const auto loose = make({.size = 32, .hosts = 4});
    for (const Collective collective : {Collective::allgather, Collective::bcast, Collective::barrier})
        EXPECT_EQ(strict->choose(collective, 1U << 20).algorithm, loose->choose(collective, 1U << 20).algorithm);
    EXPECT_NE(strict->choose(Collective::allreduce, 1U << 20).algorithm,
              loose->choose(Collective::allreduce, 1U << 20).algorithm);
}

TEST(Planner, ObeysOverrides) {
    const Agreed agreed{.size = 4, .fused_bytes = 1000, .shared_memory = true};
    const auto planner = make(agreed, "allreduce:ring,bcast:double_binary_tree");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 8).name(), "ring");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1U << 30).name(), "ring");
    EXPECT_STREQ(planner->choose(Collective::bcast, 8).name(), "double_binary_tree");
    EXPECT_STREQ(planner->choose(Collective::allgather, 8).name(), "fused");
    EXPECT_STREQ(make(agreed, "allreduce:ring,allreduce:direct")->choose(Collective::allreduce, 8).name(), "direct");
    EXPECT_STREQ(make(agreed, "allreduce:streamed")->choose(Collective::allreduce, 8).name(), "streamed");
    EXPECT_STREQ(make(agreed, "allreduce:ring,allreduce:streamed")->choose(Collective::allreduce, 8).name(),
                 "streamed");
    EXPECT_STREQ(make(agreed, "allreduce:streamed,allreduce:ring")->choose(Collective::allreduce, 8).name(), "ring");
}

TEST(Planner, SaysWhatOverridesMayBe) {
    for (const char *bad :
         {"ring", "allreduce", "send_recv:exchange", ":ring", "allreduce:ring,,", ",", "bcast:ring@", "bcast:ring@4K",
          "bcast:ring@-", "bcast:ring@x-", "bcast:ring@1-2-3", "alltoallv:exchange@-4K"}) {
        const std::string sentence = sentence_of(bad, 4);
        EXPECT_TRUE(has(sentence, "FLX_ALGORITHM")) << sentence;
        for (const Collective collective : kAll)
            EXPECT_TRUE(has(sentence, std::string(algorithms::name_of(collective)))) << sentence;
    }
    const std::string unknown = sentence_of("bcast:ring,allreduce:rung", 4);
    EXPECT_TRUE(has(unknown, "FLX_ALGORITHM"));
    const std::string rung = sentence_of("allreduce:rung", 4);
    EXPECT_TRUE(has(rung, "\"allreduce:rung\"")) << rung;
    for (const auto &algorithm : algorithms::all())
        EXPECT_EQ(has(rung, std::string(algorithm.name)), algorithm.serves(Collective::allreduce, 4))
            << rung << " / " << algorithm.name;
    EXPECT_TRUE(has(rung, "streamed"));
}

TEST(Planner, LeavesOutOfAPartOfTheRanksWhatDoesNotServeThere) {
    // Three of six ranks, of one host; all six are of two.
    const Agreed part{.size = 3, .fused_bytes = 1000, .shared_memory = true, .part = true};
    testing::internal::CaptureStderr();
    const auto planner = make(part, "allreduce:leaders(fused,ring),bcast:ring");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 8).name(), "fused");
    EXPECT_STREQ(planner->choose(Collective::bcast, 8).name(), "ring");
    make(part, "allreduce:leaders(fused,ring)");
    const std::string said = testing::internal::GetCapturedStderr();
    const size_t first = said.find("allreduce:leaders(fused,ring)");
    EXPECT_NE(first, std::string::npos);
    EXPECT_EQ(said.find("allreduce:leaders(fused,ring)", first + 1), std::string::npos) << said;
    // What no communicator could follow is wrong there, too.
    for (const char *wrong : {"allreduce:best", "alltoall:ring", "allreduce:fused", "barrier:streamed"}) {
        std::unique_ptr<Planner> none;
        EXPECT_EQ(Planner::make(0, part, wrong, none).code(), FLX_ERR_CONFIG) << wrong;
    }
    // And all the program's ranks must follow theirs.
    Agreed whole = part;
    whole.part = false;
    std::unique_ptr<Planner> none;
    EXPECT_EQ(Planner::make(0, whole, "allreduce:leaders(fused,ring)", none).code(), FLX_ERR_CONFIG);
}

Agreed hosts_of_four(int hosts) {
    std::vector<int> of;
    for (int rank = 0; rank < 4 * hosts; ++rank)
        of.push_back(rank / 4);
    return {.size = 4 * hosts, .hosts = hosts, .placement = algorithms::Placement::of(of)};
}

TEST(Planner, KnowsHostsWhereTheyHaveSeveralRanks) {
    const auto planner = make(hosts_of_four(4));
    for (const Collective collective :
         {Collective::allreduce, Collective::bcast, Collective::allgather, Collective::reduce_scatter_block})
        EXPECT_NE(planner->choose(collective, 16 << 20).algorithm->between_hosts, nullptr)
            << algorithms::name_of(collective) << " by " << planner->choose(collective, 16 << 20).name();
    // What is short has few hops, what is long few bytes.
    EXPECT_STREQ(planner->choose(Collective::allreduce, 8).name(), "leaders(direct,recursive_doubling)");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 64 << 20).name(), "lanes(direct,ring)");
    const std::vector<Planner::Candidate> all = planner->candidates(Collective::allreduce, 1 << 20);
    ASSERT_GT(all.size(), 4U);
    EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Planner::Candidate::ns));
    EXPECT_GT(all.front().ns, 0);
    // One rank a host: as ever.
    const auto apart = make({.size = 4, .hosts = 4, .placement = algorithms::Placement::of({0, 1, 2, 3})});
    EXPECT_STREQ(apart->choose(Collective::allreduce, 16 << 20).name(), "ring");
    EXPECT_TRUE(apart->candidates(Collective::allreduce, 1 << 20).empty());
    const std::vector<Planner::Candidate> flat = apart->all_candidates(Collective::allreduce, 1 << 20);
    EXPECT_TRUE(
        std::ranges::any_of(flat, [](const auto &one) { return std::string_view(one.choice.name()) == "ring"; }));
    EXPECT_TRUE(std::ranges::all_of(flat, [](const auto &one) { return one.ns == 0; }));
    // Rank order is kept where it must be.
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1 << 20, {.in_order = true}).name(), "direct");
}

/// One host that has far more ranks than others does not make each rank reckon on as many for all.
TEST(Planner, ChoosesQuicklyWhereHostsDiffer) {
#ifdef __SANITIZE_ADDRESS__  // whose code takes several times as long
    constexpr double kMostSeconds = 60;
#else
    constexpr double kMostSeconds = 10;
#endif
    std::vector<int> of;
    for (int host = 0; host < 65; ++host)
        of.insert(of.end(), host == 7 ? 128 : 16, host);
    const auto planner = make({.size = 64 * 16 + 128, .hosts = 65, .placement = algorithms::Placement::of(of)});
    const std::clock_t begun = std::clock();
    const Choice choice = planner->choose(Collective::allreduce, 8);
    EXPECT_NE(choice.algorithm, nullptr);
    EXPECT_LT(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, kMostSeconds);
}

Agreed staged(int hosts) {
    Agreed agreed = hosts_of_four(hosts);
    agreed.staged_bytes = 256 << 10;
    return agreed;
}

TEST(Planner, GoesStageByStageWhereMessagesAreShort) {
    const auto planner = make(staged(4));
    const auto name = [&](Collective collective, size_t bytes, bool steps = false) {
        return std::string(planner->choose(collective, bytes, {.steps = steps}).name());
    };
    EXPECT_TRUE(has(name(Collective::allreduce, 8), "(fused,recursive_doubling)")) << name(Collective::allreduce, 8);
    EXPECT_STREQ(make(staged(16))->choose(Collective::allgather, 1024).name(), "leaders(fused,bruck)");
    EXPECT_EQ(name(Collective::reduce_scatter_block, 1024), "leaders(fused,recursive_halving)");
    EXPECT_EQ(name(Collective::gather, 1024), "leaders(fused,direct)");
    EXPECT_STREQ(make(staged(8))->choose(Collective::gather, 1024).name(), "leaders(fused,direct)");
    EXPECT_STREQ(make(staged(8))->choose(Collective::scatter, 1024).name(), "leaders(fused,binomial_tree)");
    EXPECT_STREQ(make(staged(2))->choose(Collective::scatter, 1024).name(), "leaders(fused,direct)");
    EXPECT_EQ(name(Collective::alltoall, 1024), "leaders(fused,bruck)");
    EXPECT_STREQ(make(staged(2))->choose(Collective::alltoall, 1024).name(), "leaders(fused,direct)");
    EXPECT_STREQ(make(staged(2))->choose(Collective::alltoall, 32 << 10).name(), "lanes(fused,exchange)");
    EXPECT_EQ(name(Collective::alltoall, 64 << 20), "exchange");
    EXPECT_EQ(name(Collective::allreduce, 64 << 20), "lanes(direct,ring)");
    // What does not block goes step by step, in the same order.
    for (const Collective collective : {Collective::allreduce, Collective::reduce, Collective::reduce_scatter_block})
        for (size_t bytes = 16; bytes <= 1 << 20; bytes *= 4) {
            const Choice waits = planner->choose(collective, bytes);
            const Choice steps = planner->choose(collective, bytes, {.steps = true});
            EXPECT_EQ(steps.way, Way::scheduled);
            EXPECT_TRUE(waits.algorithm == steps.algorithm ||
                        (waits.algorithm->between_hosts != nullptr &&
                         waits.algorithm->between_hosts == steps.algorithm->between_hosts))
                << waits.name() << ", " << steps.name();
        }
    EXPECT_EQ(name(Collective::alltoall, 1024, true), "exchange");
    // Blocks of any length as equal ones, where the longest have room.
    for (const Collective collective : {Collective::allgatherv, Collective::reduce_scatter}) {
        EXPECT_EQ(planner->choose(collective, 1024, {.longest = 1024}).way, Way::staged);
        EXPECT_EQ(planner->choose(collective, 1024, {.steps = true, .longest = 1024}).way, Way::scheduled);
        EXPECT_EQ(planner->choose(collective, 300 << 10, {.longest = 300 << 10}).way, Way::scheduled);
    }
    // Scans as a chain of ranks, where hosts lie one after the other.
    for (const Collective collective : {Collective::scan, Collective::exscan}) {
        EXPECT_EQ(name(collective, 1024), "leaders(fused,prefix_chain)");
        EXPECT_EQ(name(collective, 1024, true), "prefix_chain");
        EXPECT_STREQ(planner->choose(collective, 1024, {.in_order = true}).name(), "leaders(fused,prefix_chain)");
        EXPECT_EQ(name(collective, 64 << 20), "prefix_chain");
    }
    std::vector<int> around;
    for (int rank = 0; rank < 16; ++rank)
        around.push_back(rank % 4);
    Agreed cyclic = staged(4);
    cyclic.placement = algorithms::Placement::of(around);
    EXPECT_STREQ(make(cyclic)->choose(Collective::scan, 1024).name(), "prefix_doubling");
    Agreed no_room = staged(4);
    no_room.staged_bytes = 0;
    EXPECT_STREQ(make(no_room)->choose(Collective::scan, 1024).name(), "prefix_chain") << "the same bits";
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1024, {.in_order = true}).name(), "direct");
    Agreed strict = staged(4);
    strict.strict = true;
    EXPECT_STREQ(make(strict)->choose(Collective::allreduce, 1024).name(), "direct");
}

/// Bruck's rounds need hosts that are alike: where they are not, a rule for them is one for the exchange.
TEST(Planner, TakesRoundsOnEvenHostsOnly) {
    Agreed agreed{.size = 11, .hosts = 3, .placement = algorithms::Placement::of({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2})};
    agreed.staged_bytes = 256 << 10;
    const auto uneven = make(agreed, "alltoall:lanes(fused,bruck)");
    EXPECT_EQ(uneven->choose(Collective::alltoall, 1 << 10).way, Way::exchanged);
    const auto even = make(staged(3), "alltoall:lanes(fused,bruck)");
    EXPECT_STREQ(even->choose(Collective::alltoall, 1 << 10).name(), "lanes(fused,bruck)");
    EXPECT_EQ(even->choose(Collective::alltoall, 64 << 20).way, Way::exchanged) << "no room";
}

TEST(Planner, TakesNamesOfWhatGoesStageByStage) {
    const auto planner = make(staged(4),
                              "allreduce:leaders(fused,recursive_doubling),alltoall:exchange,"
                              "allgather:leaders(fused,direct),"
                              "reduce_scatter_block:leaders(fused,direct)");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1 << 10).name(), "leaders(fused,recursive_doubling)");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1 << 10, {.steps = true}).name(),
                 "leaders(direct,recursive_doubling)");
    EXPECT_STREQ(planner->choose(Collective::reduce_scatter_block, 1 << 10).name(), "leaders(fused,direct)");
    EXPECT_STREQ(planner->choose(Collective::reduce_scatter_block, 1 << 10, {.steps = true}).name(),
                 "lanes(direct,direct)");
    EXPECT_STREQ(planner->choose(Collective::reduce_scatter_block, 64 << 20).name(), "lanes(direct,direct)");
    EXPECT_STREQ(planner->choose(Collective::alltoall, 1 << 10).name(), "exchange");
    EXPECT_STREQ(planner->choose(Collective::allgather, 1 << 10).name(), "leaders(fused,direct)");
    EXPECT_TRUE(has(sentence_of("allreduce:leaders(fused,direct)", 4), "\"allreduce:leaders(fused,direct)\""));
    std::unique_ptr<Planner> none;
    const Status status = Planner::make(0, staged(4), "alltoall:leaders(fused,ring)", none);
    EXPECT_TRUE(has(status.sentence(), "lanes(fused,exchange)")) << status.sentence();
    EXPECT_TRUE(has(status.sentence(), "leaders(fused,bruck)")) << status.sentence();
    const auto leaders = make(staged(4), "alltoall:leaders(fused,direct)");
    EXPECT_STREQ(leaders->choose(Collective::alltoall, 1 << 10).name(), "leaders(fused,direct)");
    EXPECT_STREQ(leaders->choose(Collective::alltoall, 1 << 10, {.steps = true}).name(), "exchange");
}

/// Messages of lengths that only their ends know: what is predicted is for equally long ones, and a rule is for all
/// that have room.
TEST(Planner, ComparesWaysOfMessagesAndTakesRulesForThem) {
    const Agreed agreed = staged(4);
    const auto names = [](const std::vector<Planner::Candidate> &all) {
        std::set<std::string> names;
        for (const Planner::Candidate &one : all)
            names.insert(one.choice.name());
        return names;
    };
    const auto planner = make(agreed);
    const std::set<std::string> rooted = {"exchange", "leaders(fused,direct)"};
    const std::set<std::string> all = {"exchange", "leaders(fused,direct)", "lanes(fused,exchange)"};
    for (const Collective collective : {Collective::alltoallv, Collective::gatherv, Collective::scatterv}) {
        const auto &expected = collective == Collective::alltoallv ? all : rooted;
        const std::vector<Planner::Candidate> some = planner->all_candidates(collective, 4096);
        EXPECT_EQ(names(some), expected) << algorithms::name_of(collective);
        EXPECT_GT(some.front().ns, 0);
        EXPECT_TRUE(std::ranges::is_sorted(some, {}, &Planner::Candidate::ns));
        EXPECT_EQ(names(planner->all_candidates(collective, 64 << 20)), std::set<std::string>{"exchange"}) << "no room";
        EXPECT_EQ(names(make({.size = 16})->all_candidates(collective, 4096)), std::set<std::string>{"exchange"});
        // Short ones by hosts, long ones by themselves.
        EXPECT_STREQ(planner->name(collective, 64), "leaders(fused,direct)");
        EXPECT_STREQ(planner->name(collective, 64 << 20), "exchange");
        EXPECT_STREQ(planner->name(collective, 64, {.steps = true}), "exchange");
        const Choice free = planner->choose(collective, 0);
        for (const std::string &name : expected) {
            const auto forced = make(agreed, fmt::format("{}:{}", algorithms::name_of(collective), name));
            const Choice choice = forced->choose(collective, 0);
            EXPECT_EQ(forced->name(collective, 4096), name);
            EXPECT_EQ(forced->choose(collective, 0, {.steps = true}).way, Way::exchanged);
            EXPECT_EQ(choice.way, name == "exchange" ? Way::exchanged : Way::staged);
            EXPECT_EQ(choice.by_leaders != 0, name == "leaders(fused,direct)");
            EXPECT_TRUE(name == "exchange" || choice.by_lanes >= free.by_leaders);
            EXPECT_EQ(names(forced->all_candidates(collective, 4096)), expected) << "a rule takes nothing away";
        }
    }
    std::unique_ptr<Planner> none;
    const Status lanes = Planner::make(0, agreed, "gatherv:lanes(fused,exchange)", none);
    EXPECT_TRUE(has(lanes.sentence(), "is served by exchange, leaders(fused,direct)")) << lanes.sentence();
    EXPECT_TRUE(has(sentence_of("alltoallv:direct", 4), "is served by exchange")) << "one host";
    EXPECT_STREQ(make({.size = 4}, "alltoallv:exchange")->name(Collective::alltoallv, 8), "exchange");
}

/// Two runs may measure other speeds. The order of sums must be the same; what only moves data may go another way.
TEST(Planner, AddsInAnOrderThatDoesNotDependOnWhatWasMeasured) {
    Agreed slow = hosts_of_four(3);
    Agreed fast = hosts_of_four(3);
    slow.costs.far = {.latency_ns = 50'000, .send_ns = 20'000, .receive_ns = 15'000, .bytes_per_ns = 0.02};
    fast.costs.far = {.latency_ns = 900, .send_ns = 200, .receive_ns = 200, .bytes_per_ns = 50};
    // Where messages within hosts cost most, long vectors go by leaders, who have them added stage by stage.
    Agreed dear = hosts_of_four(3);
    dear.costs.near.send_ns = dear.costs.near.receive_ns = 1e7;
    const auto one = make(slow);
    for (const Agreed &another : {fast, dear}) {
        const auto other = make(another);
        for (const Collective collective :
             {Collective::allreduce, Collective::reduce, Collective::reduce_scatter_block}) {
            for (size_t bytes = 4; bytes <= size_t{1} << 30; bytes *= 2) {
                const auto *a = one->choose(collective, bytes).algorithm;
                const auto *b = other->choose(collective, bytes).algorithm;
                EXPECT_TRUE(a == b || (a->between_hosts != nullptr && a->between_hosts == b->between_hosts))
                    << algorithms::name_of(collective) << " of " << bytes << ": " << a->name << ", " << b->name;
                // Rings of leaders and of lanes have other blocks, and each block is added from another host on.
                EXPECT_TRUE(a->family == b->family || a->between_hosts->name != "ring" ||
                            collective != Collective::allreduce)
                    << bytes << ": " << a->name << ", " << b->name;
            }
        }
    }
}

TEST(Planner, TakesNamesWithCommasInBrackets) {
    const auto planner = make(hosts_of_four(2), "allreduce:lanes(direct,ring)@-1M,bcast:leaders(direct,direct)");
    EXPECT_STREQ(planner->choose(Collective::allreduce, 8).name(), "lanes(direct,ring)");
    EXPECT_STREQ(planner->choose(Collective::bcast, 8).name(), "leaders(direct,direct)");
    EXPECT_TRUE(has(sentence_of("allreduce:lanes(direct,rung)", 4), "lanes(direct,ring)"));
    EXPECT_TRUE(has(sentence_of("allgather:leaders(direct,recursive_doubling)", 4), "is served by"));
}

/// Several rules for one collective; of those for one size the last one counts.
TEST(Planner, ObeysRulesBySize) {
    const Agreed agreed{.size = 4, .fused_bytes = 1000, .shared_memory = true, .peer_memory = true};
    const auto planner = make(agreed,
                              "allreduce:ring@64K-1M,allreduce:recursive_doubling@-64K,allreduce:direct@512K-600K,"
                              "barrier:recursive_doubling,scan:prefix_doubling@16-");
    const auto name = [&](Collective collective, size_t bytes) {
        return std::string(planner->choose(collective, bytes).name());
    };
    EXPECT_EQ(name(Collective::allreduce, 1), "recursive_doubling");
    EXPECT_EQ(name(Collective::allreduce, (64U << 10) - 1), "recursive_doubling");
    EXPECT_EQ(name(Collective::allreduce, 64U << 10), "ring");
    EXPECT_EQ(name(Collective::allreduce, (512U << 10) - 1), "ring");
    EXPECT_EQ(name(Collective::allreduce, 512U << 10), "direct");
    EXPECT_EQ(name(Collective::allreduce, 600U << 10), "ring");
    EXPECT_EQ(name(Collective::allreduce, 1U << 20), "streamed");
    EXPECT_EQ(name(Collective::barrier, 1), "recursive_doubling");
    EXPECT_EQ(name(Collective::scan, 8), "fused");
    EXPECT_EQ(name(Collective::scan, 16), "prefix_doubling");
    // Whatever is forced for blocking calls holds for others, too.
    EXPECT_STREQ(planner->choose(Collective::allreduce, 64U << 10, {.steps = true}).name(), "ring");
}

TEST(Planner, ObeysRulesForTheWaysOfSharedMemory) {
    const Agreed agreed{.size = 4, .fused_bytes = 1000, .shared_memory = true, .peer_memory = true};
    const auto name = [&](const std::string &rule, Collective collective, size_t bytes) {
        return std::string(make(agreed, rule)->choose(collective, bytes).name());
    };
    EXPECT_EQ(name("alltoall:streamed", Collective::alltoall, 8), "streamed");
    EXPECT_EQ(name("alltoall:fetched@1K-", Collective::alltoall, 1024), "fetched");
    EXPECT_EQ(name("alltoall:exchange", Collective::alltoall, 8), "exchange");
    EXPECT_EQ(name("bcast:fused@-1001", Collective::bcast, 1000), "fused");
    EXPECT_EQ(name("allgather:fused@-4001", Collective::allgather, 4000), "fused");
    // Without peer memory what was forced has a substitute with the same bits.
    Agreed alone = agreed;
    alone.peer_memory = false;
    EXPECT_STREQ(make(alone, "alltoall:fetched")->choose(Collective::alltoall, 8).name(), "streamed");

    EXPECT_TRUE(has(sentence_of("bcast:fused", 4), "FLX_FUSED_BYTES"));
    const std::string ring = sentence_of("alltoall:ring", 4);
    for (const char *known : {"\"alltoall:ring\"", "fused", "streamed", "fetched", "exchange"})
        EXPECT_TRUE(has(ring, known)) << ring;
    std::unique_ptr<Planner> planner;
    const Status between = Planner::make(0, Agreed{.size = 4, .hosts = 2}, "alltoall:streamed", planner);
    EXPECT_TRUE(has(between.sentence(), "is served by exchange")) << between.sentence();
    EXPECT_TRUE(has(sentence_of("bcast:ring@2K-1K", 4), "covers no size"));
}

TEST(Planner, FusesScansGathersAndUnevenBlocks) {
    const auto planner = make({.size = 4, .fused_bytes = 1000, .shared_memory = true});
    for (const auto &[collective, most] :
         {std::pair{Collective::scan, size_t{1000}}, std::pair{Collective::exscan, size_t{1000}},
          std::pair{Collective::scatter, size_t{1000}}, std::pair{Collective::gather, size_t{4000}},
          std::pair{Collective::allgatherv, size_t{4000}}, std::pair{Collective::reduce_scatter, size_t{1000}}}) {
        EXPECT_STREQ(planner->choose(collective, most).name(), "fused") << algorithms::name_of(collective);
        EXPECT_STRNE(planner->choose(collective, most + 4).name(), "fused") << algorithms::name_of(collective);
    }
    EXPECT_STREQ(planner->choose(Collective::allgatherv, 2000, {.longest = 1001}).name(), "direct");
    EXPECT_STREQ(planner->choose(Collective::allgatherv, 2000, {.longest = 1000}).name(), "fused");
    const auto fetches = make({.size = 4, .fused_bytes = 1000, .shared_memory = true, .peer_memory = true});
    for (const Collective collective :
         {Collective::scatter, Collective::gather, Collective::allgatherv, Collective::reduce_scatter}) {
        EXPECT_STREQ(fetches->choose(collective, 1U << 20).name(), "fetched") << algorithms::name_of(collective);
        EXPECT_STREQ(fetches->choose(collective, 1U << 20, {.steps = true}).name(), "direct");
    }
    EXPECT_STREQ(fetches->choose(Collective::scan, 1U << 20).name(), "fetched");
    // The bits of what is fused are a chain's.
    EXPECT_STREQ(planner->choose(Collective::scan, 8, {.steps = true}).name(), "prefix_chain");
}

TEST(Planner, RefusesAnAlgorithmThatDoesNotServe) {
    int refused = 0;
    for (const auto &algorithm : algorithms::all()) {
        for (const Collective collective : kAll) {
            if (algorithm.serves(collective, 6))
                continue;
            ++refused;
            const std::string entry = fmt::format("{}:{}", algorithms::name_of(collective), algorithm.name);
            EXPECT_TRUE(has(sentence_of(entry, 6), "6 ranks")) << entry;
        }
    }
    EXPECT_GT(refused, 0);
}

TEST(Planner, KeepsPlansByRootWhereTheyHaveOne) {
    const auto planner = make({.size = 4}, "", 1);
    const Choice direct{Way::scheduled, algorithms::find("direct")};
    const Plan &zero = planner->plan(Collective::bcast, direct, 0);
    const Plan &three = planner->plan(Collective::bcast, direct, 3);
    EXPECT_NE(&zero, &three);
    EXPECT_EQ(&planner->plan(Collective::bcast, direct, 0), &zero);
    EXPECT_EQ(&planner->plan(Collective::bcast, direct, 3), &three);
    EXPECT_NE(&planner->plan(Collective::reduce, direct, 3), &three);
    EXPECT_EQ(three.peers(), std::vector<int>{3});

    const Plan &gather = planner->plan(Collective::allgather, direct, 0);
    EXPECT_EQ(&planner->plan(Collective::allgather, direct, 2), &gather);
    const Plan &ring = planner->plan(Collective::allgather, {Way::scheduled, algorithms::find("ring")}, 0);
    EXPECT_NE(&ring, &gather);
    EXPECT_EQ(ring.algorithm().name, "ring");
}

}  // namespace
}  // namespace flx
