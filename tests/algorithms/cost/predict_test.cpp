#include "algorithms/cost/predict.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

namespace flx::algorithms {
namespace {

/// Hosts of four ranks each.
Placement fours(int hosts) {
    std::vector<int> of;
    for (int rank = 0; rank < 4 * hosts; ++rank)
        of.push_back(rank / 4);
    return Placement::of(of);
}

CostModel model() {
    return {.near = {.latency_ns = 300, .send_ns = 150, .receive_ns = 150, .bytes_per_ns = 8},
            .far = {.latency_ns = 6000, .send_ns = 2500, .receive_ns = 2500, .bytes_per_ns = 1},
            .copy_bytes_per_ns = 8,
            .add_bytes_per_ns = 10};
}

double predicted(const char *name, Collective collective, const Placement &placement, size_t bytes,
                 const CostModel &costs) {
    return predict_ns(*find(name), collective, placement, bytes, costs);
}

TEST(Cost, IsNoLessThanWhatRailsNeed) {
    const CostModel costs = model();
    constexpr size_t kBytes = 16 << 20;
    for (const int hosts : {2, 4}) {
        const Placement placement = fours(hosts);
        const double part = (hosts - 1.0) / hosts * kBytes / costs.far.bytes_per_ns;
        for (const Algorithm &algorithm : all()) {
            if (algorithm.serves(Collective::allgather, placement.size())) {
                EXPECT_GE(predict_ns(algorithm, Collective::allgather, placement, kBytes, costs), part)
                    << algorithm.name;
            }
            if (algorithm.serves(Collective::allreduce, placement.size())) {
                EXPECT_GE(predict_ns(algorithm, Collective::allreduce, placement, kBytes, costs), 2 * part)
                    << algorithm.name;
            }
        }
        // And those that send the least between hosts need not much more.
        EXPECT_LT(predicted("lanes(direct,ring)", Collective::allgather, placement, kBytes, costs), 1.25 * part);
        EXPECT_LT(predicted("lanes(direct,ring)", Collective::allreduce, placement, kBytes, costs), 1.5 * part * 2);
    }
}

TEST(Cost, OfWhatIsShortIsMostlyLatency) {
    const CostModel costs = model();
    const Placement placement = fours(4);
    const double leaders = predicted("leaders(direct,recursive_doubling)", Collective::allreduce, placement, 64, costs);
    // Two rounds between hosts, and not many messages' work.
    EXPECT_GT(leaders, 2 * costs.far.latency_ns);
    EXPECT_LT(leaders, 2 * costs.far.latency_ns + 8 * costs.far.send_ns);
    EXPECT_LT(leaders, predicted("ring", Collective::allreduce, placement, 64, costs) / 2);
}

/// The root of a scatter has a message for each host, or one for each round of a tree. Calls that follow each other
/// take these messages alone, which is why many of them count for more than hops.
TEST(Cost, OfAScatterIsHalfTheRootsWork) {
    const auto tree_to_direct = [](int hosts, size_t bytes) {
        std::vector<int> of;
        for (int rank = 0; rank < hosts; ++rank)
            of.push_back(rank);
        const Placement placement = Placement::of(of);
        return predicted("binomial_tree", Collective::scatter, placement, bytes, model()) /
               predicted("direct", Collective::scatter, placement, bytes, model());
    };
    EXPECT_NEAR(tree_to_direct(2, 64), 1, 0.01);
    EXPECT_GT(tree_to_direct(4, 64), 1.1);
    EXPECT_LT(tree_to_direct(16, 64), 0.9);
    EXPECT_GT(tree_to_direct(16, 2 << 20), 1);
}

TEST(Cost, FollowsTheModel) {
    const Placement placement = fours(4);
    CostModel costs = model();
    const double before = predicted("lanes(direct,ring)", Collective::allreduce, placement, 16 << 20, costs);
    costs.far.bytes_per_ns /= 2;
    const double after = predicted("lanes(direct,ring)", Collective::allreduce, placement, 16 << 20, costs);
    EXPECT_NEAR(after / before, 2, 0.2);
    EXPECT_EQ(after, predicted("lanes(direct,ring)", Collective::allreduce, placement, 16 << 20, costs))
        << "all ranks must get the same answer";
}

TEST(Cost, HasAcknowledgementsThatNothingCarries) {
    const Placement placement = Placement::of({0, 1, 2, 3});
    const auto longer = [&](const char *name, Collective collective) {
        CostModel costs = model();
        const double before = predicted(name, collective, placement, 64, costs);
        costs.alone_ns = 1000;
        return predicted(name, collective, placement, 64, costs) - before;
    };
    EXPECT_EQ(longer("recursive_doubling", Collective::allreduce), 0) << "pairs exchange";
    EXPECT_EQ(longer("direct", Collective::allgather), 0);
    // Three hops from one rank to the next, each of which two ranks work for.
    EXPECT_NEAR(longer("ring", Collective::allgather), 3 * 2 * 1000.0, 1);
}

/// Communicators of many ranks choose, too: every walk of all candidates must stay short.
TEST(Cost, TakesMillisecondsForManyRanks) {
    std::vector<int> of;
    for (int rank = 0; rank < 128; ++rank)
        of.push_back(rank / 16);
    const Placement placement = Placement::of(of);
    for (const char *name :
         {"lanes(direct,ring)", "lanes(direct,direct)", "ring", "leaders(direct,recursive_doubling)"}) {
        const std::clock_t begun = std::clock();
        EXPECT_GT(predicted(name, Collective::allreduce, placement, 1 << 20, model()), 0) << name;
        EXPECT_LT(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, 0.9) << name << ": seconds";
    }
}

}  // namespace
}  // namespace flx::algorithms
