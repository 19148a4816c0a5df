/// Every algorithm, collective and number of ranks from 1 to 33, executed symbolically.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/verifier.h"
#include "tests/algorithms/case_name.h"

namespace flx::algorithms {
namespace {

constexpr int kMostRanks = 33;

struct Case {
    const Algorithm *algorithm;
    Collective collective;
};

std::string name_of_case(const testing::TestParamInfo<Case> &info) {
    return case_name(*info.param.algorithm, info.param.collective);
}

std::vector<Case> cases() {
    std::vector<Case> cases;
    for (const Algorithm &algorithm : all()) {
        for (const Collective collective : kScheduled) {
            if (algorithm.serves(collective, 2))
                cases.push_back({&algorithm, collective});
        }
    }
    return cases;
}

bool has_root(Collective collective) {
    return rooted(collective);
}

/// Whether a rank has one block only.
bool single_block(Collective collective) {
    return input_layout(collective) == Layout::single || output_layout(collective) == Layout::single;
}

std::vector<int> roots(Collective collective, int size) {
    if (!has_root(collective) || size == 1)
        return {0};
    if (size == 2)
        return {0, 1};
    return {0, size - 1, size / 2};
}

/// Counts of the whole vector; where a rank has one block only, the count is the block's, and small ones say as much.
std::vector<size_t> counts(Collective collective, int size) {
    if (collective == Collective::barrier)
        return {1};
    if (single_block(collective))
        return size <= 8 ? std::vector<size_t>{0, 1, 2, 7, 64, 101} : std::vector<size_t>{0, 1, 2, 7};
    const auto n = static_cast<size_t>(size);
    return {0, 1, 2, n - 1, n + 1, 7, 64, 101};
}

/// Of those, the ones whose blocks may have lengths of their own.
std::vector<Case> cases_of_blocks() {
    std::vector<Case> result = cases();
    std::erase_if(result, [](const Case &each) {
        return each.collective != Collective::allgather && each.collective != Collective::reduce_scatter_block;
    });
    return result;
}

class Schedules : public testing::TestWithParam<Case> {};
class BlockSchedules : public Schedules {};

TEST_P(Schedules, AreRight) {
    const auto [algorithm, collective] = GetParam();
    constexpr size_t kCells[] = {1, 2, 3, 16};
    constexpr size_t kWindows[] = {1, 2, 5};
    uint64_t seed = 1;
    for (int size = 1; size <= kMostRanks; ++size) {
        const int seeds = size <= 9 ? 6 : 1;
        for (const int root : roots(collective, size)) {
            for (const size_t count : counts(collective, size)) {
                for (const bool in_place : {false, true}) {
                    for (int i = 0; i < seeds; ++i, ++seed) {
                        // Window 1 is the hard one: every other trial.
                        const Trial trial{
                            count, kCells[seed % 4], seed % 2 == 0 ? 1 : kWindows[seed % 3], in_place, seed, {}};
                        const std::string error = verify(*algorithm, collective, size, root, trial);
                        ASSERT_EQ(error, "")
                            << size << " ranks, root " << root << ", count " << count << ", cell " << trial.cell
                            << ", window " << trial.window << (in_place ? ", in place" : "") << ", seed " << seed;
                    }
                }
            }
        }
    }
}

TEST_P(Schedules, EndWithOneChunkOfRoom) {
    const auto [algorithm, collective] = GetParam();
    for (const int size : {3, 5, 6, 8, 11, 16}) {
        for (uint64_t seed = 1; seed <= 12; ++seed) {
            const size_t count = single_block(collective) ? 12 : 12 * static_cast<size_t>(size);
            const int root = has_root(collective) ? static_cast<int>(seed) % size : 0;
            const std::string error =
                verify(*algorithm, collective, size, root, {count, 1, 1, seed % 2 == 0, seed, {}});
            ASSERT_EQ(error, "") << size << " ranks, seed " << seed;
        }
    }
}

TEST_P(Schedules, AreRightForManyRanks) {
    const auto [algorithm, collective] = GetParam();
    for (const int size : {64, 97}) {
        const bool single = single_block(collective);
        const int root = has_root(collective) ? 5 : 0;
        const Trial trial{single ? 2u : 203u, 2, 1, size == 64, static_cast<uint64_t>(size), {}};
        ASSERT_EQ(verify(*algorithm, collective, size, root, trial), "") << size << " ranks";
    }
}

/// As allgatherv and reduce_scatter need it.
TEST_P(BlockSchedules, AreRightForGivenLengths) {
    const auto [algorithm, collective] = GetParam();
    for (const int size : {2, 3, 4, 5, 8, 13}) {
        for (uint64_t seed = 1; seed <= 40; ++seed) {
            const bool in_place = seed % 4 == 0 && collective == Collective::allgather;
            Trial trial{0, 1 + seed % 3, 1 + seed % 2, in_place, seed, {}};
            for (int rank = 0; rank < size; ++rank)
                trial.lengths.push_back((seed * 7 + static_cast<uint64_t>(rank) * 5) % 11 * (seed % 5 == 0 ? 3 : 1));
            ASSERT_EQ(verify(*algorithm, collective, size, 0, trial), "") << size << " ranks, seed " << seed;
        }
    }
}

/// Steps grow with the number of ranks at most; the steps of trees and doubling with its logarithm.
TEST_P(Schedules, AreShort) {
    const auto [algorithm, collective] = GetParam();
    // A leader has all blocks for each rank of its host.
    const size_t most_here = algorithm->family == Family::leaders && collective == Collective::allgather ? 4 : 1;
    for (const int size : {2, 3, 8, 33, 1024}) {
        std::vector<int> host_of(static_cast<size_t>(size));
        for (size_t rank = 0; rank < host_of.size(); ++rank)
            host_of[rank] = static_cast<int>(rank / most_here);
        const Placement placement = Placement::of(host_of);
        for (const int rank : {0, 1, size / 2, size - 1}) {
            const Schedule schedule =
                algorithm->build({collective, rank, size, 0, most_here == 1 ? nullptr : &placement});
            // Where ranks are no power of two, some give all their blocks to others and get them back.
            const size_t most = algorithm->name == "recursive_halving" ? 6 : 3 + most_here;
            EXPECT_LE(schedule.steps.size(), most * static_cast<size_t>(size) + 32) << size;
            const bool whole = collective != Collective::gather && collective != Collective::scatter;
            if (algorithm->name == "double_binary_tree" || algorithm->name == "recursive_doubling" ||
                algorithm->name == "prefix_doubling" || (algorithm->name == "binomial_tree" && whole)) {
                EXPECT_LE(schedule.steps.size(), 24u) << size;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, testing::ValuesIn(cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(All, BlockSchedules, testing::ValuesIn(cases_of_blocks()), name_of_case);

/// The property that gives the double tree its bandwidth: no rank adds or forwards for both trees.
TEST(DoubleBinaryTree, RanksAreInnerNodesOfOneTreeAtMost) {
    const Algorithm *tree = find("double_binary_tree");
    for (int size = 2; size <= 130; ++size) {
        for (int rank = 0; rank < size; ++rank) {
            const Schedule schedule = tree->build({Collective::allreduce, rank, size, 0});
            bool adds[2] = {};
            for (const Step &step : schedule.steps) {
                if (step.kind == StepKind::recv_reduce)
                    adds[step.block] = true;
            }
            EXPECT_FALSE(adds[0] && adds[1]) << "rank " << rank << " of " << size;
        }
    }
}

TEST(BlockExtent, CoversTheVectorInOrder) {
    for (const size_t count : {0u, 1u, 6u, 7u, 8u, 101u}) {
        for (const uint32_t blocks : {1u, 2u, 7u, 33u}) {
            size_t at = 0;
            for (uint32_t block = 0; block < blocks; ++block) {
                const Extent extent = block_extent(count, blocks, block);
                EXPECT_EQ(extent.offset, at);
                EXPECT_LE(extent.count, block_extent(count, blocks, 0).count);
                at += extent.count;
            }
            EXPECT_EQ(at, count);
        }
    }
}

}  // namespace
}  // namespace flx::algorithms
