/// Schedules that are broken on purpose: the verifier must say so, or its silence elsewhere would mean nothing.
#include "algorithms/verifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace flx::algorithms {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

struct Subject {
    std::vector<Schedule> schedules;
    Collective collective;
    BitClass bits;
    int root;
};

Subject make(const char *name, Collective collective, int size, int root = 0) {
    const Algorithm *algorithm = find(name);
    Subject subject{{}, collective, algorithm->bits(collective), root};
    for (int rank = 0; rank < size; ++rank)
        subject.schedules.push_back(algorithm->build({collective, rank, size, root}));
    return subject;
}

std::string run(const Subject &subject, const Trial &trial) {
    return verify(subject.schedules, subject.collective, subject.bits, subject.root, trial);
}

/// The first complaint with these words of several trials, else the last of any. Some faults show in few interleavings.
std::string complaint(const Subject &subject, const char *words = "", int trials = 300) {
    const bool single =
        input_layout(subject.collective) == Layout::single || output_layout(subject.collective) == Layout::single;
    const size_t size = subject.schedules.size();
    std::string complaint;
    for (int i = 0; i < trials; ++i) {
        const auto seed = static_cast<uint64_t>(i);
        const Trial trial{single ? 9 : 9 * size, 1 + seed % 2, 1 + seed % 3 / 2, i % 4 < 2, seed, {}};
        if (std::string error = run(subject, trial); !error.empty())
            complaint = error;
        if (!complaint.empty() && complaint.find(words) != std::string::npos)
            break;
    }
    return complaint;
}

AssertionResult says(const std::string &error, const char *words) {
    if (error.find(words) == std::string::npos)
        return AssertionFailure() << "expected `" << words << "` in `" << error << "`";
    return AssertionSuccess();
}

Step &step_of(Subject &subject, int rank, StepKind kind, int nth = 0) {
    for (Step &step : subject.schedules[static_cast<size_t>(rank)].steps) {
        if (step.kind == kind && nth-- == 0)
            return step;
    }
    ADD_FAILURE() << "no such step";
    static Step none;
    return none;
}

TEST(Verifier, AcceptsWhatTheMutationsStartFrom) {
    for (const Algorithm &algorithm : all()) {
        for (const Collective collective : kScheduled) {
            if (algorithm.serves(collective, 6)) {
                EXPECT_EQ(complaint(make(algorithm.name.data(), collective, 6, 2)), "");
            }
        }
    }
}

TEST(Verifier, SeesADuplicatedSend) {
    Subject subject = make("ring", Collective::allreduce, 4);
    auto &steps = subject.schedules[2].steps;
    steps.push_back(step_of(subject, 2, StepKind::send));
    EXPECT_TRUE(says(complaint(subject), "another step sends the same phase and block"));
    EXPECT_TRUE(says(complaint(subject), "rank 2"));
}

TEST(Verifier, SeesADuplicatedReceive) {
    Subject subject = make("ring", Collective::allgather, 4);
    subject.schedules[1].steps.push_back(step_of(subject, 1, StepKind::recv));
    EXPECT_TRUE(says(complaint(subject), "another step receives the same phase and block"));
}

TEST(Verifier, SeesAMissingSend) {
    Subject subject = make("direct", Collective::reduce, 4, 1);
    subject.schedules[3].steps.clear();
    EXPECT_TRUE(says(complaint(subject), "rank 3 does not send this"));
}

TEST(Verifier, SeesAWrongPeer) {
    Subject subject = make("double_binary_tree", Collective::allreduce, 7);
    Step &step = step_of(subject, 3, StepKind::send);
    step.peer = (step.peer + 1) % 7 == 3 ? (step.peer + 2) % 7 : (step.peer + 1) % 7;
    EXPECT_NE(complaint(subject), "");
    step.peer = 3;
    EXPECT_TRUE(says(complaint(subject), "not another rank"));
    step.peer = 7;
    EXPECT_TRUE(says(complaint(subject), "not another rank"));
}

TEST(Verifier, SeesSwappedOperands) {
    for (const char *name : {"ring", "recursive_doubling"}) {
        Subject subject = make(name, Collective::allreduce, 4);
        Step &step = step_of(subject, 1, StepKind::recv_reduce);
        step.received_first = !step.received_first;
        EXPECT_NE(complaint(subject), "") << name;
    }
    Subject direct = make("direct", Collective::allreduce, 4);
    std::swap(direct.schedules[1].groups[0][0], direct.schedules[1].groups[0][1]);
    EXPECT_TRUE(says(complaint(direct), "not added in the declared order"));
}

TEST(Verifier, SeesRanksThatDisagree) {
    // Each rank's own sum first: every rank has a right sum, but not the same bits.
    Subject subject = make("recursive_doubling", Collective::allreduce, 4);
    for (int rank = 0; rank < 4; ++rank) {
        for (int round = 0; round < 2; ++round)
            step_of(subject, rank, StepKind::recv_reduce, round).received_first = false;
    }
    EXPECT_TRUE(says(complaint(subject), "elsewhere in its block"));
}

TEST(Verifier, SeesAMissingFinish) {
    for (const Algorithm &algorithm : all()) {
        if (!algorithm.serves(Collective::allreduce, 5))
            continue;
        Subject subject = make(algorithm.name.data(), Collective::allreduce, 5);
        for (Step &step : subject.schedules[4].steps)
            step.finish = false;
        for (Step &step : subject.schedules[2].steps)
            step.finish = false;
        for (Step &step : subject.schedules[0].steps)  // where it finishes for all
            step.finish = false;
        EXPECT_TRUE(says(complaint(subject), "not finished last")) << algorithm.name;
    }
}

TEST(Verifier, SeesAScanOutOfOrder) {
    for (const char *name : {"prefix_chain", "prefix_doubling"}) {
        for (const Collective collective : {Collective::scan, Collective::exscan}) {
            Subject subject = make(name, collective, 6);
            Step &step = step_of(subject, 4, StepKind::recv_reduce);
            step.received_first = false;
            EXPECT_TRUE(says(complaint(subject), "in this order")) << name;
        }
    }
}

TEST(Verifier, SeesABlockFromTheWrongPlace) {
    Subject scattered = make("direct", Collective::scatter, 4, 1);
    Subject gathered = make("direct", Collective::gather, 4, 1);
    scattered.schedules[2].steps[0].from = {Buffer::input, 0};
    EXPECT_NE(complaint(scattered), "");
    std::swap(step_of(gathered, 1, StepKind::recv, 0).peer, step_of(gathered, 1, StepKind::recv, 1).peer);
    EXPECT_NE(complaint(gathered), "");
}

TEST(Verifier, SeesADivisionTooMuch) {
    Subject subject = make("ring", Collective::reduce_scatter_block, 4);
    step_of(subject, 1, StepKind::recv_reduce).finish = true;
    EXPECT_TRUE(says(complaint(subject), "does not contain each contribution once"));
    Subject moved = make("direct", Collective::allgather, 3);
    step_of(moved, 1, StepKind::recv).finish = true;
    EXPECT_TRUE(says(complaint(moved), "only reductions finish"));
}

TEST(Verifier, SeesAContributionThatCountsTwice) {
    Subject subject = make("ring", Collective::allreduce, 4);
    // The second sum goes on with the first one's block.
    Step &step = step_of(subject, 2, StepKind::recv_reduce, 2);
    step.from = {Buffer::output, 0};
    EXPECT_NE(complaint(subject), "");
}

TEST(Verifier, SeesAnOverwriteBeforeTheSend) {
    // In place, the result of reduce_scatter_block lies over the contribution to block 0.
    for (const char *name : {"direct", "ring"}) {
        Subject subject = make(name, Collective::reduce_scatter_block, 4);
        for (int rank = 1; rank < 4; ++rank) {
            Step &last = subject.schedules[static_cast<size_t>(rank)].steps.back();
            ASSERT_EQ(last.dependencies, 1);
            last.dependencies = 0;
        }
        EXPECT_NE(complaint(subject), "") << name;
    }
}

TEST(Verifier, SeesADependencyThatHoldsNotOnlyInPlace) {
    Subject subject = make("ring", Collective::reduce_scatter_block, 4);
    Step &send = step_of(subject, 2, StepKind::send, 1);
    ASSERT_GE(send.dependencies, 1);
    send.in_place_only = 1;  // the sum that it sends
    EXPECT_NE(complaint(subject), "");
}

TEST(Verifier, SeesAnOverwriteOfAChunkInFlight) {
    // Doubling into what an earlier round sent, without waiting for that send: the output in place, and with 16 ranks
    // also the scratch slots.
    for (const Buffer target : {Buffer::output, Buffer::scratch}) {
        Subject subject = make("recursive_doubling", Collective::allreduce, 16);
        int changed = 0;
        for (Schedule &schedule : subject.schedules) {
            for (Step &step : schedule.steps) {
                if (step.kind == StepKind::recv_reduce && step.to.buffer == target && step.dependencies == 2) {
                    step.dependencies = 1;
                    ++changed;
                }
            }
        }
        EXPECT_EQ(changed, 16);
        EXPECT_TRUE(says(complaint(subject, "not consumed yet"), "not consumed yet"));
    }
}

TEST(Verifier, SeesAReadOfNothing) {
    Subject subject = make("ring", Collective::bcast, 4, 1);
    step_of(subject, 3, StepKind::send).dependencies = 0;
    EXPECT_TRUE(says(complaint(subject), "never written"));
    Subject input = make("direct", Collective::bcast, 3, 0);
    input.schedules[1].steps[0] = Step{.kind = StepKind::copy, .from = {Buffer::input, 0}, .to = {Buffer::output, 0}};
    EXPECT_NE(complaint(input), "");
}

TEST(Verifier, SeesAnUnwrittenOutput) {
    Subject subject = make("direct", Collective::allgather, 3);
    auto &steps = subject.schedules[2].steps;
    std::erase_if(steps, [](const Step &step) { return step.kind == StepKind::copy; });
    EXPECT_TRUE(says(complaint(subject), "never written"));
}

TEST(Verifier, SeesAWrittenInput) {
    Subject subject = make("ring", Collective::allreduce, 3);
    step_of(subject, 0, StepKind::recv_reduce).to = {Buffer::input, 0};
    EXPECT_TRUE(says(complaint(subject), "writes the input"));
}

TEST(Verifier, SeesAnOutputWhereThereIsNone) {
    Subject subject = make("double_binary_tree", Collective::reduce, 6, 2);
    for (Schedule &schedule : subject.schedules) {
        for (Step &step : schedule.steps) {
            if (step.to.buffer == Buffer::scratch)
                step.to = {Buffer::output, 0};
        }
    }
    EXPECT_TRUE(says(complaint(subject), "only the root has an output"));
}

TEST(Verifier, SeesADeadlock) {
    // One scratch slot on every rank: all wait for their successors, around the ring.
    Subject subject = make("ring", Collective::reduce_scatter_block, 6);
    for (Schedule &schedule : subject.schedules) {
        schedule.scratch_slots = 1;
        uint32_t last_send = 0;
        for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
            Step &step = schedule.steps[i];
            if (step.to.buffer == Buffer::scratch) {
                step.to.slot = 0;
                step.dependencies = 0;
                if (last_send > 0)
                    step.depends(last_send);
            }
            if (step.kind == StepKind::send && i > 0)
                last_send = i;
            if (step.from.buffer == Buffer::scratch)
                step.from.slot = 0;
        }
    }
    EXPECT_TRUE(says(complaint(subject), "deadlock"));
}

TEST(Verifier, SeesAChunkThatOvertakesTheOneItWaitsFor) {
    // The dependencies that keep the last send of reduce_scatter_block behind that of block 0: see ring.cpp.
    Subject subject = make("ring", Collective::reduce_scatter_block, 5);
    int changed = 0;
    for (Schedule &schedule : subject.schedules) {
        for (Step &step : schedule.steps) {
            if (step.kind == StepKind::send && step.dependencies == 2) {
                step.dependencies = 1;
                ++changed;
            }
        }
    }
    EXPECT_GT(changed, 0);
    EXPECT_TRUE(says(complaint(subject, "deadlock", 3000), "deadlock"));
}

/// Every dependency of every schedule is needed: without it, some interleaving goes wrong.
class Dependencies : public testing::TestWithParam<const char *> {};

TEST_P(Dependencies, AreAllNeeded) {
    const Algorithm *algorithm = find(GetParam());
    for (const Collective collective : kScheduled) {
        for (const int size : {2, 3, 4, 5, 6}) {
            if (!algorithm->serves(collective, size))
                continue;
            const Subject whole = make(GetParam(), collective, size, 1);
            for (size_t rank = 0; rank < whole.schedules.size(); ++rank) {
                for (size_t step = 0; step < whole.schedules[rank].steps.size(); ++step) {
                    for (int drop = 0; drop < whole.schedules[rank].steps[step].dependencies; ++drop) {
                        Subject broken = whole;
                        Step &changed = broken.schedules[rank].steps[step];
                        changed.after[drop] = changed.after[changed.dependencies - 1];
                        --changed.dependencies;
                        EXPECT_NE(complaint(broken, "", 1000), "")
                            << name_of(collective) << " of " << size << " ranks works without dependency " << drop
                            << " of rank " << rank << "'s step " << step;
                    }
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Dependencies,
                         testing::Values("direct", "ring", "double_binary_tree", "recursive_doubling"));

}  // namespace
}  // namespace flx::algorithms
