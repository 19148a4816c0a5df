#include "algorithms/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace flx::algorithms {
namespace {

TEST(Registry, KeepsTheOrderOfIds) {
    const char *const names[] = {"direct",
                                 "ring",
                                 "double_binary_tree",
                                 "recursive_doubling",
                                 "prefix_chain",
                                 "prefix_doubling",
                                 "binomial_tree",
                                 "leaders(direct,recursive_doubling)",
                                 "leaders(direct,binomial_tree)",
                                 "leaders(direct,direct)",
                                 "lanes(direct,ring)",
                                 "lanes(direct,direct)",
                                 "lanes(direct,recursive_doubling)",
                                 "bruck",
                                 "leaders(direct,bruck)",
                                 "recursive_halving",
                                 "leaders(direct,recursive_halving)",
                                 "lanes(direct,recursive_halving)",
                                 "leaders(direct,ring)"};
    ASSERT_EQ(all().size(), std::size(names));
    for (size_t id = 0; id < all().size(); ++id) {
        EXPECT_EQ(all()[id].name, names[id]);
        EXPECT_EQ(find(names[id]), &all()[id]);
        EXPECT_FALSE(all()[id].description.empty());
        EXPECT_FALSE(all()[id].source.empty());
    }
}

TEST(Registry, KnowsNoOtherName) {
    for (const char *name : {"", "tree", "Ring", "ring ", "rin"})
        EXPECT_EQ(find(name), nullptr) << name;
}

TEST(Registry, NamesOfCollectivesComeBack) {
    std::set<std::string_view> names;
    for (const Traits &traits : kTraits) {
        names.insert(traits.name);
        EXPECT_EQ(parse_collective(name_of(traits.collective)), traits.collective);
    }
    EXPECT_EQ(names.size(), kCollectives);
    EXPECT_EQ(name_of(Collective::reduce_scatter_block), "reduce_scatter_block");
    EXPECT_EQ(parse_collective("all to all"), std::nullopt);
    EXPECT_EQ(parse_collective(""), std::nullopt);
}

/// What has schedules is served by some algorithm, and nothing else is by any.
TEST(Registry, AlgorithmsServeWhatHasSchedules) {
    for (const Traits &traits : kTraits) {
        const auto serves = [&](const Algorithm &algorithm) { return algorithm.serves(traits.collective, 4); };
        EXPECT_EQ(std::ranges::any_of(all(), serves), has_schedules(traits.collective)) << traits.name;
        if (const auto schedules = scheduled_as(traits.collective)) {
            EXPECT_TRUE(has_schedules(*schedules)) << traits.name;
        }
    }
    EXPECT_EQ(kScheduled.size(), 10U);
}

TEST(Registry, EveryCollectiveHasAStrictAlgorithmOrMovesOnly) {
    for (const Collective collective : kScheduled) {
        const bool scans = collective == Collective::scan || collective == Collective::exscan;
        const Algorithm *strict = find(scans ? "prefix_chain" : "direct");
        EXPECT_TRUE(strict->serves(collective, 33)) << name_of(collective);
        const BitClass bits = strict->bits(collective);
        EXPECT_TRUE(bits == (scans ? BitClass::chain : BitClass::rank_order) || bits == BitClass::none)
            << name_of(collective);
    }
}

}  // namespace
}  // namespace flx::algorithms
