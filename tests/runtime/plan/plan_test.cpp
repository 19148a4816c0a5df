#include "runtime/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace flx {
namespace {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::Request;
using algorithms::Step;
using algorithms::StepKind;

bool receives_from(const Plan &plan, const Step &step, int peer, int rank) {
    if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
        return step.peer == peer;
    const auto group = plan.schedule().groups.empty() ? std::vector<int32_t>() : plan.schedule().groups[0];
    return step.kind == StepKind::gather_reduce && peer != rank &&
           std::find(group.begin(), group.end(), peer) != group.end();
}

/// Asks for every (peer, phase, block), and a phase and block too many, and searches the schedule for the answer.
TEST(Plan, FindsTheStepOfEveryChunkOfEverySchedule) {
    int plans = 0;
    for (const Algorithm &algorithm : algorithms::all()) {
        for (const algorithms::Collective collective : algorithms::kScheduled) {
            for (const int size : {2, 3, 4, 7, 8}) {
                if (!algorithm.serves(collective, size))
                    continue;
                for (int rank = 0; rank < size; ++rank) {
                    const Plan plan(algorithm, Request{collective, rank, size, size - 1});
                    ++plans;
                    EXPECT_EQ(&plan.algorithm(), &algorithm);
                    const auto &schedule = plan.schedule();
                    std::set<int> peers;
                    for (int peer = 0; peer < size; ++peer) {
                        for (uint32_t phase = 0; phase <= schedule.phases; ++phase) {
                            for (uint32_t block = 0; block <= schedule.blocks; ++block) {
                                uint32_t sends = Plan::kNone;
                                uint32_t receives = Plan::kNone;
                                for (uint32_t s = 0; s < schedule.steps.size(); ++s) {
                                    const Step &step = schedule.steps[s];
                                    if (step.phase != phase || step.block != block)
                                        continue;
                                    if (step.kind == StepKind::send && step.peer == peer)
                                        sends = s;
                                    if (receives_from(plan, step, peer, rank))
                                        receives = s;
                                }
                                ASSERT_EQ(plan.sending_step(peer, phase, block), sends);
                                ASSERT_EQ(plan.receiving_step(peer, phase, block), receives);
                                if (sends != Plan::kNone || receives != Plan::kNone)
                                    peers.insert(peer);
                            }
                        }
                    }
                    EXPECT_EQ(std::set<int>(plan.peers().begin(), plan.peers().end()), peers);
                    EXPECT_EQ(plan.peers().size(), peers.size());
                    EXPECT_EQ(peers.count(rank), 0U);
                }
            }
        }
    }
    EXPECT_GT(plans, 100);
}

}  // namespace
}  // namespace flx
