#include "algorithms/cost/walk.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <ctime>
#include <string>

#include "algorithms/cost/predict.h"
#include "tests/algorithms/cost/full_walk.h"

namespace flx::algorithms {
namespace {

enum class Order { by_host, around };

Placement even(int hosts, int ranks, Order order = Order::by_host) {
    std::vector<int> host_of;
    for (int rank = 0; rank < hosts * ranks; ++rank)
        host_of.push_back(order == Order::around ? rank % hosts : rank / ranks);
    return Placement::of(host_of);
}

std::vector<Placement> layouts() {
    return {even(2, 1),
            even(2, 4),
            even(4, 4),
            even(3, 2),
            even(5, 1),
            even(4, 4, Order::around),
            even(3, 3, Order::around),
            even(12, 2),
            even(16, 4),
            even(1, 8),
            Placement::of({0, 0, 0, 1, 1, 2}),
            Placement::of({0, 1, 1, 2, 0, 3, 3, 3, 1})};
}

CostModel fast() {
    return {.near = {.latency_ns = 300, .send_ns = 150, .receive_ns = 150, .bytes_per_ns = 8},
            .far = {.latency_ns = 2000, .send_ns = 1500, .receive_ns = 1500, .bytes_per_ns = 50},
            .copy_bytes_per_ns = 8,
            .add_bytes_per_ns = 10};
}

CostModel slow() {
    return {.near = {.latency_ns = 2500, .send_ns = 800, .receive_ns = 800, .bytes_per_ns = 8},
            .far = {.latency_ns = 4000, .send_ns = 6000, .receive_ns = 3000, .bytes_per_ns = 1},
            .copy_bytes_per_ns = 8,
            .add_bytes_per_ns = 10};
}

std::string text(const Algorithm &algorithm, Collective collective, const Placement &placement, size_t bytes) {
    return std::string(name_of(collective)) + " by " + std::string(algorithm.name) + ", " +
           std::to_string(placement.hosts()) + " hosts, " + std::to_string(placement.size()) + " ranks, " +
           std::to_string(bytes) + " bytes";
}

template <typename Check>
void for_each_algorithm(const Placement &placement, Check &&check) {
    for (const Collective collective : kScheduled)
        for (const Algorithm &algorithm : all())
            if (algorithm.serves(collective, placement.size()))
                check(algorithm, collective);
}

/// Bits of sums follow from predictions, so these must stay what they were.
TEST(CostWalk, SaysWhatTheFullWalkSays) {
    for (const Placement &placement : layouts())
        for (const CostModel &model : {fast(), slow()})
            for_each_algorithm(placement, [&](const Algorithm &algorithm, Collective collective) {
                for (const size_t bytes : {size_t{8}, size_t{96} << 10, size_t{768} << 10, size_t{12} << 20}) {
                    const double now = predict_ns(algorithm, collective, placement, bytes, model);
                    const double then = reference::predict_ns(algorithm, collective, placement, bytes, model);
                    EXPECT_NEAR(now / then, 1, 1e-6) << text(algorithm, collective, placement, bytes);
                }
            });
}

TEST(CostWalk, SaysWhatTheFullWalkSaysOf256Ranks) {
    const Placement placement = even(32, 8);
    for_each_algorithm(placement, [&](const Algorithm &algorithm, Collective collective) {
        for (const size_t bytes : {size_t{96} << 10}) {
            const double now = predict_ns(algorithm, collective, placement, bytes, slow());
            const double then = reference::predict_ns(algorithm, collective, placement, bytes, slow());
            EXPECT_NEAR(now / then, 1, 1e-6) << text(algorithm, collective, placement, bytes);
        }
    });
}

/// Leaders pass on blocks in the order of their numbers, which suits one host better than another: there, one host
/// says less than all.
bool suits_some(const Algorithm &algorithm, Collective collective) {
    return algorithm.family == Family::leaders &&
           (collective == Collective::allreduce || collective == Collective::barrier);
}

TEST(CostWalk, OfOneHostForAllIsThatOfAll) {
    int walked_few = 0;
    for (const Placement &placement : {even(4, 4), even(3, 2), even(4, 4, Order::around), even(3, 3, Order::around),
                                       even(5, 1), even(16, 4), even(12, 2)})
        for_each_algorithm(placement, [&](const Algorithm &algorithm, Collective collective) {
            for (const size_t bytes : {size_t{8}, size_t{256} << 10, size_t{12} << 20}) {
                const StepGraph few(algorithm, collective, placement, StepGraph::Ranks::few);
                walked_few += few.all_walked() ? 0 : 1;
                const double one = predict_ns(few, bytes, fast());
                const double every =
                    predict_ns(StepGraph(algorithm, collective, placement, StepGraph::Ranks::all), bytes, fast());
                EXPECT_NEAR(one / every, 1, suits_some(algorithm, collective) ? 0.3 : 0.015)
                    << text(algorithm, collective, placement, bytes);
            }
        });
    EXPECT_GT(walked_few, 250);
}

/// What has no root and goes around, or by bits, is walked on one host; what is a tree is not.
TEST(CostWalk, FindsHostsThatDoAlike) {
    const auto walked = [](const char *name, Collective collective, const Placement &placement) {
        return StepGraph(*find(name), collective, placement, StepGraph::Ranks::few).ranks().size();
    };
    const Placement placement = even(8, 4);
    for (const char *name : {"ring", "direct", "recursive_doubling", "recursive_halving", "lanes(direct,ring)",
                             "lanes(direct,direct)", "lanes(direct,recursive_halving)"})
        EXPECT_EQ(walked(name, Collective::allreduce, placement), 4) << name;
    EXPECT_EQ(walked("bruck", Collective::allgather, placement), 4);
    EXPECT_EQ(walked("ring", Collective::bcast, placement), 32);
    EXPECT_EQ(walked("binomial_tree", Collective::bcast, placement), 32);
    EXPECT_EQ(walked("double_binary_tree", Collective::allreduce, placement), 32);
    EXPECT_EQ(walked("prefix_doubling", Collective::scan, placement), 32);
    EXPECT_EQ(walked("recursive_doubling", Collective::allreduce, even(6, 4)), 24) << "six is no power of two";
    EXPECT_EQ(walked("ring", Collective::allreduce, even(8, 4, Order::around)), 4);
    EXPECT_EQ(walked("ring", Collective::allreduce, Placement::of({0, 0, 1, 1, 1})), 5);
}

double processor_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST(CostWalk, OfThousandsOfHostsTakesSeconds) {
    const Placement placement = even(2048, 8);
    const double begun = processor_seconds();
    for (const char *name :
         {"ring", "lanes(direct,ring)", "recursive_halving", "double_binary_tree", "lanes(direct,recursive_doubling)"})
        for (const size_t bytes : {size_t{8}, size_t{1} << 30})
            EXPECT_GT(predict_ns(*find(name), Collective::allreduce, placement, bytes, fast()), 0) << name;
    EXPECT_LT(processor_seconds() - begun, 30);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    EXPECT_LT(usage.ru_maxrss, 800'000) << "kilobytes";
}

/// Rounds between hosts, and what is done within: the logarithm of the number of hosts.
TEST(CostWalk, GrowsByRoundsInDoubling) {
    const auto ns = [](int hosts) {
        return predict_ns(*find("lanes(direct,recursive_doubling)"), Collective::allreduce, even(hosts, 8), 8, fast());
    };
    const double round = (ns(128) - ns(64));
    EXPECT_GT(round, fast().far.latency_ns + fast().far.send_ns + fast().far.receive_ns);
    EXPECT_NEAR(ns(2048) - ns(128), 4 * round, 0.2 * round);
}

/// A ring carries what it must, whatever the number of hosts; in pipelines of thousands of hosts too.
TEST(CostWalk, OfLongVectorsIsWhatRailsNeed) {
    constexpr double kBytes = 1 << 30;
    const CostModel model = fast();
    const double least = kBytes / model.far.bytes_per_ns;
    const double ring =
        predict_ns(*find("lanes(direct,ring)"), Collective::allreduce, even(512, 8), size_t{1} << 30, model);
    EXPECT_GT(ring, 2 * least * 511 / 512);
    const double chain = predict_ns(*find("ring"), Collective::bcast, even(512, 1), size_t{1} << 30, model);
    EXPECT_GT(chain, least);
    // Each part of 64 KiB is copied once on its way in and once on its way out.
    EXPECT_LT(chain, 2 * kBytes / model.copy_bytes_per_ns + 1e9);
}

/// Hosts that differ are reckoned as if all had as many ranks as the largest.
TEST(CostWalk, OfManyHostsThatDifferIsThatOfLikeOnes) {
    std::vector<int> host_of;
    for (int host = 0; host < 512; ++host)
        host_of.insert(host_of.end(), host == 17 ? 3 : 4, host);
    const Placement uneven = Placement::of(host_of);
    const double one = predict_ns(*find("lanes(direct,ring)"), Collective::allreduce, uneven, 1 << 20, fast());
    EXPECT_EQ(one, predict_ns(*find("lanes(direct,ring)"), Collective::allreduce, even(512, 4), 1 << 20, fast()));
}

/// `hosts` of so many ranks, and one that has more.
Placement one_larger(int hosts, int ranks, int most) {
    std::vector<int> host_of;
    for (int host = 0; host <= hosts; ++host)
        host_of.insert(host_of.end(), static_cast<size_t>(host == hosts / 2 ? most : ranks), host);
    return Placement::of(host_of);
}

/// Each rank of a communicator reckons all candidates, whatever its hosts are: a second each, and not gigabytes.
TEST(CostWalk, HasAMillionStepsAtMost) {
    for (const Placement &placement : {even(32, 72), even(100, 48), one_larger(64, 16, 128), one_larger(900, 1, 128)}) {
        int reckoned = 0;
        for (const Algorithm &algorithm : all())
            if (algorithm.serves(Collective::allreduce, placement.size())) {
                const double begun = processor_seconds();
                const StepGraph graph(algorithm, Collective::allreduce, placement);
                EXPECT_LT(processor_seconds() - begun, 8) << text(algorithm, Collective::allreduce, placement, 0);
                reckoned += graph.too_large() ? 0 : 1;
                if (!graph.too_large()) {
                    EXPECT_LE(graph.steps(), 1U << 20) << text(algorithm, Collective::allreduce, placement, 0);
                }
            }
        EXPECT_GT(reckoned, 5) << placement.hosts() << " hosts";
    }
}

TEST(CostWalk, OfWhatIsTooLargeIsInfinite) {
    const Placement placement = even(2048, 72);
    const StepGraph ring(*find("ring"), Collective::allreduce, placement);
    EXPECT_TRUE(ring.too_large());
    EXPECT_TRUE(std::isinf(predict_ns(ring, 8, fast())));
    EXPECT_TRUE(std::isfinite(predict_ns(*find("binomial_tree"), Collective::bcast, placement, 8, fast())));
}

/// The root of a gather has as many steps as there are ranks, and others have one each: together they are few.
TEST(CostWalk, StepsOfAllRanksAreCountedNotThoseOfTheFirst) {
    const Placement placement = even(160, 8);
    const StepGraph graph(*find("direct"), Collective::gather, placement);
    ASSERT_FALSE(graph.too_large());
    EXPECT_TRUE(graph.all_walked());
    EXPECT_GE(size_t{graph.steps(0)} * graph.ranks().size(), size_t{1} << 20) << "more than a graph may have";
    EXPECT_EQ(graph.steps(), 2U * (160 * 8 - 1) + 1);
}

/// Halving goes by bits of ranks, which are no bits of hosts where these have 72 ranks.
TEST(CostWalk, OfHalvingAmongHostsOfOtherThanAPowerOfTwo) {
    const auto ns = [](const Placement &placement) {
        return predict_ns(*find("recursive_halving"), Collective::allreduce, placement, 1 << 20, fast());
    };
    EXPECT_EQ(ns(even(32, 72)), ns(even(32, 64)));
    EXPECT_EQ(ns(even(40, 24, Order::around)), ns(even(64, 32, Order::around)));
}

/// Candidates are compared, so those that could be walked as they are must be reckoned on the same hosts as others.
TEST(CostWalk, OfHostsThatDifferIsThatOfOneMachineForAllAlgorithms) {
    const Placement placement = one_larger(64, 16, 128);
    for (const char *name :
         {"ring", "double_binary_tree", "lanes(direct,ring)", "leaders(direct,recursive_doubling)"}) {
        const StepGraph graph(*find(name), Collective::allreduce, placement);
        EXPECT_EQ(graph.placement().size(), 65 * 18) << name << ": the mean of 64 times 16 and 128";
        EXPECT_EQ(graph.placement().most(), 18) << name;
    }
}

TEST(CostWalk, PathsTellLatencyOfWaysOutOfGroups) {
    const StepGraph graph(*find("recursive_doubling"), Collective::allreduce, even(8, 1));
    const auto path = [&](double hop_ns) {
        WalkReport report;
        predict_ns(graph, 8, fast(), {{{.hosts = 4, .taper = 1, .latency_ns = hop_ns}}}, &report);
        return report.path;
    };
    // One of three rounds leaves its group.
    EXPECT_NEAR(path(0).latency, 3 * fast().far.latency_ns, 1);
    EXPECT_NEAR(path(5000).latency, 3 * fast().far.latency_ns + 5000, 1);
    EXPECT_NEAR(path(5000).queue, path(0).queue, 1);
}

/// The path is the slow host's own work in all rounds of an exchange.
TEST(CostWalk, WaitsForASlowHost) {
    const StepGraph graph(*find("recursive_doubling"), Collective::allreduce, even(8, 1));
    const auto walked = [&](SlowHost slow) {
        WalkReport report;
        Fabric fabric;
        fabric.slow = slow;
        const double end = predict_ns(graph, 8, fast(), fabric, &report);
        const CriticalPath &path = report.path;
        EXPECT_NEAR(path.messages + path.copies + path.sums + path.wire + path.queue + path.latency, end, 1e-6 * end);
        return report.path;
    };
    const CriticalPath usual = walked({});
    for (const int host : {0, 3, 7}) {
        const CriticalPath slow = walked({.host = host, .times = 3});
        EXPECT_NEAR(slow.messages, 3 * usual.messages, 1) << host;
        EXPECT_EQ(slow.latency, 0) << host << ": what it needs came while it worked";
    }
    EXPECT_EQ(walked({.host = 3, .times = 1}).messages, usual.messages);
}

/// Around a ring one rank of two sends to another group, by a way out that takes longer than its own rails.
TEST(CostWalk, PathsTellWhatWaysOutOfGroupsTake) {
    CostModel model = fast();
    model.far.bytes_per_ns = 0.1;
    const StepGraph graph(*find("ring"), Collective::allreduce, even(8, 1));
    const auto path = [&](double taper) {
        WalkReport report;
        predict_ns(graph, 8 << 16, model, {{{.hosts = 2, .taper = taper, .latency_ns = 0}}}, &report);
        return report.path;
    };
    EXPECT_GT(path(16).wire, 4 * path(1).wire);
}

TEST(CostWalk, PathsAddUpToTheEnd) {
    for (const Placement &placement : {even(4, 4), even(3, 2), even(128, 4)})
        for_each_algorithm(placement, [&](const Algorithm &algorithm, Collective collective) {
            if (collective == Collective::scatter)
                return;  // its time is a mean
            for (const size_t bytes : {size_t{8}, size_t{3} << 20}) {
                WalkReport report;
                const StepGraph graph(algorithm, collective, placement);
                const double ns = predict_ns(graph, bytes, fast(), {}, &report);
                const CriticalPath &path = report.path;
                EXPECT_NEAR((path.messages + path.copies + path.sums + path.wire + path.queue + path.latency) / ns, 1,
                            1e-3)
                    << text(algorithm, collective, placement, bytes);
            }
        });
}

TEST(CostWalk, CountsWhatLeavesHosts) {
    const Placement placement = even(4, 2);
    constexpr double kBytes = 8 << 20;
    WalkReport report;
    predict_ns(StepGraph(*find("lanes(direct,ring)"), Collective::allreduce, placement), 8 << 20, fast(), {}, &report);
    EXPECT_NEAR(report.far_bytes, 4 * 2 * kBytes * 3 / 4, 1);
    predict_ns(StepGraph(*find("lanes(direct,ring)"), Collective::allreduce, placement, StepGraph::Ranks::few), 8 << 20,
               fast(), {}, &report);
    EXPECT_NEAR(report.far_bytes, 4 * 2 * kBytes * 3 / 4, 1);
}

/// Around a ring one host of a group has its successor in another group, so a taper of the number of hosts costs
/// nothing. What all hosts of a group send to another group takes so many times as long.
TEST(CostWalk, OfATaperIsThatOfWhatLeavesGroups) {
    CostModel model = fast();
    model.far.bytes_per_ns = 1;
    for (const StepGraph::Ranks ranks : {StepGraph::Ranks::all, StepGraph::Ranks::few}) {
        const auto slower = [&](const char *name, double taper) {
            const StepGraph graph(*find(name), Collective::allreduce, even(8, 2), ranks);
            const Fabric fabric{{{.hosts = 4, .taper = taper, .latency_ns = 0}}};
            return predict_ns(graph, 8 << 20, model, fabric) / predict_ns(graph, 8 << 20, model);
        };
        EXPECT_NEAR(slower("lanes(direct,ring)", 4), 1, 0.05);
        EXPECT_GT(slower("lanes(direct,ring)", 16), 3);
        // One of three rounds leaves the group.
        EXPECT_NEAR(slower("lanes(direct,recursive_doubling)", 4), 2, 0.25);
    }
}

/// Leaves of a size that does not divide the number of hosts: what one group sends out is more than what another does.
TEST(CostWalk, OfGroupsThatAreNotAlikeIsThatOfAll) {
    CostModel model = fast();
    model.far.bytes_per_ns = 1;
    for (const int leaf : {3, 5, 6})
        for (const char *name : {"lanes(direct,ring)", "lanes(direct,recursive_doubling)", "lanes(direct,direct)",
                                 "lanes(direct,recursive_halving)"}) {
            const Fabric fabric{{{.hosts = leaf, .taper = 4, .latency_ns = 0}}};
            WalkReport report_of_few;
            WalkReport report_of_all;
            const double few =
                predict_ns(StepGraph(*find(name), Collective::allreduce, even(16, 2), StepGraph::Ranks::few), 8 << 20,
                           model, fabric, &report_of_few);
            const double every =
                predict_ns(StepGraph(*find(name), Collective::allreduce, even(16, 2), StepGraph::Ranks::all), 8 << 20,
                           model, fabric, &report_of_all);
            EXPECT_GT(few / every, 0.85) << name << ", " << leaf << " hosts a leaf";
            EXPECT_LT(few / every, 1.5) << name << ", " << leaf << " hosts a leaf";
            EXPECT_NEAR(report_of_few.across_bytes[0] / report_of_all.across_bytes[0], 1, 1e-6) << name << " " << leaf;
        }
}

}  // namespace
}  // namespace flx::algorithms
