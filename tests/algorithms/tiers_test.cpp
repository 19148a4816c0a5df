/// Algorithms that know hosts, executed symbolically on many placements: uneven hosts, ranks that go round them, one
/// rank a host, all on one.
#include "algorithms/tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/verifier.h"
#include "tests/algorithms/case_name.h"

namespace flx::algorithms {
namespace {

std::string text(const std::vector<int> &hosts) {
    std::string text = "hosts";
    for (const int host : hosts)
        text += " " + std::to_string(host);
    return text;
}

/// `each` ranks on each of `hosts`: one host after the other, or round and round.
std::vector<int> even(int hosts, int each, bool cyclic) {
    std::vector<int> of(static_cast<size_t>(hosts * each));
    for (int rank = 0; rank < hosts * each; ++rank)
        of[static_cast<size_t>(rank)] = cyclic ? rank % hosts : rank / each;
    return of;
}

std::vector<std::vector<int>> placements() {
    std::vector<std::vector<int>> all = {
        {0, 0},
        {0, 1},
        {0, 0, 0, 0},
        {0, 1, 2, 3, 4, 5, 6, 7},
        {0, 0, 0, 0, 0, 1, 1, 1, 2},
        {2, 0, 1, 1, 0, 2, 2},
        {0, 1, 0, 2, 1},
        {0, 0, 0, 1, 1},
        {0, 1, 2, 0, 1, 2, 0, 1, 0},
    };
    for (const bool cyclic : {false, true}) {
        all.push_back(even(2, 4, cyclic));
        all.push_back(even(3, 3, cyclic));
        all.push_back(even(4, 4, cyclic));
    }
    // By any other way: from a fixed stream of numbers.
    uint32_t state = 7;
    for (const int size : {6, 11, 17}) {
        std::vector<int> of;
        for (int rank = 0; rank < size; ++rank) {
            state = state * 1664525 + 1013904223;
            of.push_back(static_cast<int>(state >> 16) % 4);
        }
        all.push_back(of);
    }
    return all;
}

struct Tiered {
    const Algorithm *algorithm;
    Collective collective;
};

std::vector<Tiered> tiered() {
    std::vector<Tiered> cases;
    for (const Algorithm &algorithm : all())
        for (const Collective collective : kScheduled)
            if (algorithm.between_hosts != nullptr && algorithm.serves(collective, 2))
                cases.push_back({&algorithm, collective});
    return cases;
}

class Tiers : public testing::TestWithParam<Tiered> {
  protected:
    /// `most_roots`: of those that there are, the first.
    void check(const std::vector<int> &hosts, int seeds, int most_roots) const {
        const auto &[algorithm, collective] = GetParam();
        const Placement placement = Placement::of(hosts);
        const int size = placement.size();
        const bool single = input_layout(collective) == Layout::single || output_layout(collective) == Layout::single;
        for (int root = 0; root < (rooted(collective) ? std::min(size, most_roots) : 1); ++root) {
            for (int seed = 0; seed < seeds; ++seed) {
                const auto number = static_cast<size_t>(seed);
                const Trial trial{single ? 7 : 5 * static_cast<size_t>(size) + 3,
                                  1 + number % 2,
                                  1 + number % 3 / 2,
                                  seed % 4 < 2,
                                  number,
                                  {}};
                ASSERT_EQ(verify(*algorithm, collective, size, root, trial, &placement), "")
                    << text(hosts) << ", root " << root << ", seed " << seed;
            }
            for (const bool in_place : {false, true}) {
                ResendReasons reasons;
                ASSERT_EQ(verify_resend(*algorithm, collective, size, root, in_place, reasons, &placement), "")
                    << text(hosts) << ", root " << root << (in_place ? ", in place" : "");
            }
        }
    }
};

class TiersOfBlocks : public Tiers {};

TEST_P(Tiers, AreRightOnEveryPlacement) {
    for (const std::vector<int> &hosts : placements())
        check(hosts, 8, 33);
}

TEST_P(Tiers, AreRightOnUpTo33RanksAnd8Hosts) {
    check(even(8, 4, false), 1, 2);
    check(even(8, 4, true), 1, 2);
    std::vector<int> uneven(33);
    for (size_t rank = 0; rank < uneven.size(); ++rank)
        uneven[rank] = rank < 20 ? 0 : rank < 30 ? static_cast<int>(rank % 3) + 1 : static_cast<int>(rank);
    check(uneven, 1, 2);
}

/// Blocks of any lengths, as those of allgatherv and reduce_scatter.
TEST_P(TiersOfBlocks, TakeBlocksOfAnyLength) {
    const auto &[algorithm, collective] = GetParam();
    for (const std::vector<int> &hosts : placements()) {
        const Placement placement = Placement::of(hosts);
        std::vector<size_t> lengths(hosts.size());
        for (size_t rank = 0; rank < lengths.size(); ++rank)
            lengths[rank] = rank * 5 % 7;
        for (uint64_t seed = 0; seed < 4; ++seed) {
            const bool in_place = collective == Collective::allgather && seed % 2 == 0;
            ASSERT_EQ(
                verify(*algorithm, collective, placement.size(), 0, {0, 2, 1, in_place, seed, lengths}, &placement), "")
                << text(hosts);
        }
    }
}

/// What leaves a host, in blocks of the whole vector: the least that can be.
TEST_P(Tiers, SendEachByteBetweenHostsOnce) {
    const auto &[algorithm, collective] = GetParam();
    for (const bool cyclic : {false, true}) {
        constexpr int kHosts = 4, kEach = 4, kRanks = kHosts * kEach;
        const Placement placement = Placement::of(even(kHosts, kEach, cyclic));
        std::vector<double> sent(kHosts);
        for (int rank = 0; rank < kRanks; ++rank) {
            const Schedule schedule = algorithm->build({collective, rank, kRanks, 0, &placement});
            const int host = placement.host[static_cast<size_t>(rank)];
            for (const Step &step : schedule.steps)
                if (step.kind == StepKind::send && placement.host[static_cast<size_t>(step.peer)] != host)
                    sent[static_cast<size_t>(host)] += 1.0 / schedule.blocks;
        }
        const double most = *std::ranges::max_element(sent);
        const double all = std::accumulate(sent.begin(), sent.end(), 0.0);
        const double part = (kHosts - 1.0) / kHosts;
        const bool doubles = algorithm->between_hosts->name == "recursive_doubling";
        switch (collective) {
            case Collective::allreduce:
                EXPECT_NEAR(most, doubles ? 2 : 2 * part, 1e-9);
                break;
            case Collective::allgather:
            case Collective::reduce_scatter_block:
                EXPECT_NEAR(most, part, 1e-9);
                break;
            case Collective::bcast:
            case Collective::reduce:
                EXPECT_NEAR(all, kHosts - 1, 1e-9);
                break;
            default:
                break;
        }
    }
}

std::vector<Tiered> tiered_in_blocks() {
    std::vector<Tiered> some = tiered();
    std::erase_if(some, [](const Tiered &one) {
        return one.collective != Collective::allgather && one.collective != Collective::reduce_scatter_block;
    });
    return some;
}

std::string name_of_tiered(const testing::TestParamInfo<Tiered> &info) {
    return case_name(*info.param.algorithm, info.param.collective);
}

INSTANTIATE_TEST_SUITE_P(All, Tiers, testing::ValuesIn(tiered()), name_of_tiered);
INSTANTIATE_TEST_SUITE_P(All, TiersOfBlocks, testing::ValuesIn(tiered_in_blocks()), name_of_tiered);

/// Each rank of a group has its stages in the same order, among the same ranks and on the same blocks.
void meet_in_stages(Family family, Collective collective, Carried carried, const Placement &placement, int root) {
    using Meeting = std::tuple<Collective, int, std::vector<std::vector<uint32_t>>>;
    std::map<std::vector<int>, std::map<int, std::vector<Meeting>>> meetings;  // by group and rank
    const bool by_host = family == Family::lanes && collective != Collective::bcast;
    std::vector<uint32_t> between(by_host ? placement.ranks.size() : 1);
    std::iota(between.begin(), between.end(), 0);
    for (int rank = 0; rank < placement.size(); ++rank) {
        const Composition made =
            compose(family, {collective, rank, placement.size(), root, &placement}, between, carried);
        ASSERT_FALSE(made.stages.empty());
        for (const Stage &stage : made.stages) {
            ASSERT_EQ(std::ranges::count(stage.group, rank), 1);
            ASSERT_LT(static_cast<size_t>(stage.root), stage.group.size());
            ASSERT_EQ(stage.input.size(), made.blocks);
            ASSERT_EQ(stage.output.size(), made.blocks);
            for (const std::vector<uint32_t> &blocks : stage.blocks)
                for (const uint32_t block : blocks)
                    ASSERT_LT(block, made.blocks);
            std::vector<int> per_host(placement.ranks.size());
            for (const int member : stage.group)
                ++per_host[static_cast<size_t>(placement.host[static_cast<size_t>(member)])];
            if (stage.tier == Stage::Tier::far) {
                ASSERT_EQ(per_host, std::vector<int>(per_host.size(), 1));
            } else if (stage.group.size() > 1) {
                ASSERT_EQ(stage.group, placement.on_host_of(rank));
            }
            meetings[stage.group][rank].emplace_back(stage.collective, stage.root, stage.blocks);
        }
    }
    for (const auto &[group, by_rank] : meetings) {
        ASSERT_EQ(by_rank.size(), group.size());
        for (const auto &[rank, mine] : by_rank)
            ASSERT_EQ(mine, by_rank.begin()->second) << "rank " << rank;
    }
}

TEST(Composition, RanksOfAGroupMeetInTheSameStages) {
    using enum Collective;
    const std::vector<std::tuple<Family, Carried, std::vector<Collective>>> cases = {
        {Family::leaders, Carried::in_cells, {allreduce, barrier, bcast, reduce, allgather, gather, scatter}},
        {Family::lanes, Carried::in_cells, {allreduce, bcast, allgather, reduce_scatter_block}},
        {Family::leaders, Carried::in_calls, {reduce}},
        {Family::lanes, Carried::in_calls, {allreduce, bcast, allgather, reduce_scatter_block}},
    };
    for (const auto &[family, carried, collectives] : cases)
        for (const Collective collective : collectives)
            for (const std::vector<int> &hosts : placements()) {
                const Placement placement = Placement::of(hosts);
                for (int root = 0; root < (rooted(collective) ? placement.size() : 1); ++root) {
                    meet_in_stages(family, collective, carried, placement, root);
                    ASSERT_FALSE(HasFatalFailure()) << name_of(collective) << ", " << text(hosts) << ", root " << root;
                }
            }
}

/// In calls each rank of the root's host carries a lane, and hosts' sums lie in no output.
TEST(Composition, OfCallsGivesEachRankALane) {
    const Placement placement = Placement::of(even(2, 3, false));
    for (int rank = 0; rank < 6; ++rank) {
        const Composition bcast =
            compose(Family::lanes, {Collective::bcast, rank, 6, 4, &placement}, {0}, Carried::in_calls);
        const Stage &far = bcast.stages[rank < 3 ? 0 : 1];
        EXPECT_EQ(bcast.stages.size(), 2U);
        EXPECT_EQ(far.tier, Stage::Tier::far);
        EXPECT_EQ(far.group, (std::vector<int>{rank % 3, rank % 3 + 3}));
        EXPECT_EQ(bcast.stages[rank < 3 ? 1 : 0].collective, rank < 3 ? Collective::allgather : Collective::bcast);
        const Composition allreduce =
            compose(Family::lanes, {Collective::allreduce, rank, 6, 0, &placement}, {0}, Carried::in_calls);
        ASSERT_EQ(allreduce.stages.size(), 3U);
        EXPECT_EQ(allreduce.stages[0].output[0].buffer, Buffer::scratch);
        EXPECT_FALSE(allreduce.stages[0].finishes);
        EXPECT_TRUE(allreduce.stages[1].finishes);
        EXPECT_EQ(allreduce.stages[2].output[0].buffer, Buffer::output);
    }
}

TEST(Placement, NumbersHostsInTheOrderOfTheirLowestRanks) {
    const Placement placement = Placement::of({9, 4, 9, 4, 4, 0});
    EXPECT_EQ(placement.hosts(), 3);
    EXPECT_EQ(placement.size(), 6);
    EXPECT_EQ(placement.most(), 3);
    EXPECT_EQ(placement.host, (std::vector<int>{0, 1, 0, 1, 1, 2}));
    EXPECT_EQ(placement.local, (std::vector<int>{0, 0, 1, 1, 2, 0}));
    EXPECT_EQ(placement.ranks[1], (std::vector<int>{1, 3, 4}));
    EXPECT_EQ(placement.on_host_of(2), (std::vector<int>{0, 2}));
    // Ranks of smaller hosts drive several lanes.
    EXPECT_EQ(placement.driver(0, 0), 0);
    EXPECT_EQ(placement.driver(0, 1), 2);
    EXPECT_EQ(placement.driver(0, 2), 0);
    EXPECT_EQ(placement.driver(2, 2), 5);
    EXPECT_EQ(Placement::one_host(3).hosts(), 1);
}

}  // namespace
}  // namespace flx::algorithms
