#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "runtime/plan/planner.h"

namespace {

/// So many allocations succeed, and then one fails; negative: all do.
int allocations_left = -1;

void *allocate(size_t bytes) {
    if (allocations_left >= 0 && allocations_left-- == 0)
        throw std::bad_alloc();
    if (void *memory = std::malloc(bytes == 0 ? 1 : bytes))
        return memory;
    throw std::bad_alloc();
}

}  // namespace

void *operator new(size_t bytes) {
    return allocate(bytes);
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}

namespace flx {
namespace {

using algorithms::Collective;

std::unique_ptr<Planner> make() {
    Agreed agreed{.size = 8, .hosts = 4, .staged_bytes = 256 << 10};
    agreed.placement = algorithms::Placement::of({0, 0, 1, 1, 2, 2, 3, 3});
    std::unique_ptr<Planner> planner;
    EXPECT_TRUE(Planner::make(0, agreed, "", planner).ok());
    return planner;
}

/// A rank that had no memory for a decision must not take another one from then on: its peers decided.
TEST(Planner, DecidesAlikeAfterItHadNoMemory) {
    for (const Collective collective : {Collective::allreduce, Collective::bcast, Collective::alltoall}) {
        const Choice right = make()->choose(collective, 1024);
        int failures = 0;
        bool failed = true;
        for (int allowed = 0; failed; allowed = allowed < 10 ? allowed + 1 : allowed * 3 / 2) {
            const std::unique_ptr<Planner> planner = make();
            failed = false;
            allocations_left = allowed;
            try {
                static_cast<void>(planner->choose(collective, 1024));
            } catch (const std::bad_alloc &) {
                failed = true;
            }
            allocations_left = -1;
            failures += failed ? 1 : 0;
            const Choice again = planner->choose(collective, 1024);
            ASSERT_EQ(again.way, right.way) << algorithms::name_of(collective) << ", " << allowed << " allocations";
            ASSERT_EQ(again.algorithm, right.algorithm) << algorithms::name_of(collective) << ", " << allowed;
        }
        EXPECT_GE(failures, 3) << algorithms::name_of(collective);
    }
}

/// Of one class of sizes what candidates take is reckoned once, whoever asks: for that there would be no memory.
TEST(Planner, ReckonsOnceForCallsThatBlockAndThoseThatDoNot) {
    constexpr int kFew = 20;
    const std::unique_ptr<Planner> planner = make();
    const Choice blocking = planner->choose(Collective::allreduce, 1024);
    ASSERT_EQ(blocking.way, Way::staged) << "others may not go so";
    const Choice expected = make()->choose(Collective::allreduce, 1024, {.steps = true});
    allocations_left = kFew;
    const Choice steps = planner->choose(Collective::allreduce, 1024, {.steps = true});
    const size_t candidates = planner->candidates(Collective::allreduce, 1024).size();
    allocations_left = -1;
    EXPECT_EQ(steps.way, Way::scheduled);
    EXPECT_EQ(steps.algorithm, expected.algorithm);
    EXPECT_GT(candidates, 5U);
}

}  // namespace
}  // namespace flx
