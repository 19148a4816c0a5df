/// Every send of every algorithm may be sent again until it is acknowledged; and schedules for which that does not
/// hold, each broken in another way, are refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/builder.h"
#include "algorithms/verifier.h"
#include "tests/algorithms/case_name.h"

namespace flx::algorithms {
namespace {

struct Resent {
    const Algorithm *algorithm;
    Collective collective;
};

std::vector<Resent> resent() {
    std::vector<Resent> cases;
    for (const Algorithm &algorithm : all()) {
        for (const Collective collective : kScheduled) {
            if (algorithm.serves(collective, 2))
                cases.push_back({&algorithm, collective});
        }
    }
    return cases;
}

class Resend : public testing::TestWithParam<Resent> {};
INSTANTIATE_TEST_SUITE_P(All, Resend, testing::ValuesIn(resent()),
                         [](const auto &info) { return case_name(*info.param.algorithm, info.param.collective); });

TEST_P(Resend, IsSafeForUpTo33Ranks) {
    const auto [algorithm, collective] = GetParam();
    const bool has_root = rooted(collective);
    for (int size = 1; size <= 33; ++size) {
        for (const int root : has_root &&size > 1 ? std::vector{0, size / 2, size - 1} : std::vector{0}) {
            for (const bool in_place : {false, true}) {
                ResendReasons reasons;
                ASSERT_EQ(verify_resend(*algorithm, collective, size, root, in_place, reasons), "")
                    << size << " ranks, root " << root << (in_place ? ", in place" : "");
            }
        }
    }
}

ResendReasons reasons(const char *name, Collective collective, int size, bool in_place) {
    ResendReasons result;
    EXPECT_EQ(verify_resend(*find(name), collective, size, 0, in_place, result), "") << name;
    return result;
}

/// The table of docs/algorithms.md: where something is overwritten, and what makes it safe.
TEST(ResendReasons, AreThoseThatTheAlgorithmsClaim) {
    using enum Collective;
    for (const char *name : {"direct", "ring", "double_binary_tree"}) {
        const ResendReasons in_place = reasons(name, allreduce, 8, true);
        EXPECT_GT(in_place.receiver_used, 0U) << name;
        EXPECT_EQ(in_place.send_ended, 0U) << name << ": no dependency on a send";
    }
    EXPECT_EQ(reasons("direct", allreduce, 8, false).pairs(), 7U * (8 + 1 + 2 + 3 + 4 + 5 + 6 + 7))
        << "each result to seven ranks, for cells that all, and that the first 1 to 7 blocks have";
    for (const char *name : {"direct", "ring"}) {
        EXPECT_GT(reasons(name, reduce_scatter_block, 8, true).send_ended, 0U) << name;
        EXPECT_EQ(reasons(name, reduce_scatter_block, 8, false).send_ended, 0U) << name;
        EXPECT_EQ(reasons(name, allgather, 8, true).receiver_used, 0U) << name;
        EXPECT_EQ(reasons(name, allgather, 8, true).send_ended, 0U) << name;
    }
    EXPECT_GT(reasons("recursive_doubling", allreduce, 8, true).send_ended, 0U);
    EXPECT_GT(reasons("recursive_doubling", allreduce, 16, false).send_ended, 0U) << "scratch slots in turn";
    EXPECT_GT(reasons("recursive_doubling", allreduce, 6, true).receiver_used, 0U) << "pairs";
}

// ---- schedules that are wrong

std::string verdict(const std::vector<Schedule> &schedules, Collective collective, bool in_place) {
    ResendReasons reasons;
    return verify_resend(schedules, collective, 0, in_place, reasons);
}

std::vector<Schedule> built(const char *name, Collective collective, int size) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < size; ++rank)
        schedules.push_back(find(name)->build({collective, rank, size, 0}));
    return schedules;
}

testing::AssertionResult names(const std::string &error, const char *words) {
    if (error.find(words) != std::string::npos)
        return testing::AssertionSuccess();
    return testing::AssertionFailure() << "expected `" << words << "` in `" << error << "`";
}

/// Removes each dependency of a writing step on a send, one at a time: each must be missed.
int forget_sends(const char *name, Collective collective, int size, bool in_place) {
    const std::vector<Schedule> whole = built(name, collective, size);
    EXPECT_EQ(verdict(whole, collective, in_place), "");
    int forgotten = 0;
    for (size_t rank = 0; rank < whole.size(); ++rank) {
        for (size_t i = 0; i < whole[rank].steps.size(); ++i) {
            for (int d = 0; d < whole[rank].steps[i].dependencies; ++d) {
                std::vector<Schedule> broken = whole;
                Step &step = broken[rank].steps[i];
                if (step.kind == StepKind::send || broken[rank].steps[step.after[d]].kind != StepKind::send)
                    continue;
                step.after[d] = step.after[--step.dependencies];
                ++forgotten;
                EXPECT_TRUE(names(verdict(broken, collective, in_place), "may overwrite"))
                    << name << ", rank " << rank << ", step " << i;
            }
        }
    }
    return forgotten;
}

TEST(BrokenResend, EveryForgottenDependencyOnASendIsSeen) {
    EXPECT_EQ(forget_sends("direct", Collective::reduce_scatter_block, 5, true), 4);
    EXPECT_GT(forget_sends("ring", Collective::reduce_scatter_block, 2, true), 0);
    EXPECT_GT(forget_sends("recursive_doubling", Collective::allreduce, 4, true), 0);
    EXPECT_GT(forget_sends("recursive_doubling", Collective::allreduce, 8, true), 0);
    EXPECT_GT(forget_sends("recursive_doubling", Collective::allreduce, 16, true), 0);
}

/// In place, two ranks of recursive doubling: the sum must not be made where the input is being sent from.
TEST(BrokenResend, AnExchangeInPlaceIsSeen) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < 2; ++rank) {
        Builder builder(1, 1);
        builder.send(1 - rank, 0, 0, kInput);
        builder.finish(builder.recv_reduce(1 - rank, 0, 0, kInput, kOutput, rank == 1));
        schedules.push_back(builder.take());
    }
    EXPECT_EQ(verdict(schedules, Collective::allreduce, false), "");
    EXPECT_TRUE(names(verdict(schedules, Collective::allreduce, true), "rank 0, step 1 (recv_reduce"));
}

/// What comes over a source was sent by a rank that knows nothing of the one that the source was sent to.
TEST(BrokenResend, AResultThatComesBeforeTheSumWasUsedIsSeen) {
    // Rank 0 sends x to rank 1, and y to rank 2. Rank 2 answers over x, without rank 1.
    Builder zero(2, 2);
    zero.send(1, 0, 0, kInput);
    zero.send(2, 0, 1, kInput);
    zero.recv(2, 1, 0, kOutput);
    Builder one(2, 2);
    one.recv(0, 0, 0, kOutput);
    Builder two(2, 2);
    const uint32_t y = two.recv(0, 0, 1, kOutput);
    two.send(0, 1, 0, kInput, {y});
    const std::vector<Schedule> schedules = {zero.take(), one.take(), two.take()};
    EXPECT_EQ(verdict(schedules, Collective::allreduce, false), "");
    EXPECT_TRUE(names(verdict(schedules, Collective::allreduce, true), "neither after that send's end nor after"));
}

/// The receiver used another chunk of the same rank: that says nothing about this one, over whatever links they go.
TEST(BrokenResend, OrderOfSendsIsNoOrderOfUse) {
    for (const bool used_in_order : {false, true}) {
        Builder zero(1, 3);
        zero.send(1, 0, 0, kInput);
        zero.slots(1).send(1, 1, 0, scratch(0));
        zero.recv(1, 2, 0, kOutput);
        Builder one(1, 3);
        const uint32_t x = one.recv(0, 0, 0, scratch(0));
        const uint32_t y = one.recv(0, 1, 0, scratch(1), {used_in_order ? x : kNoStep});
        one.slots(2).send(0, 2, 0, scratch(1), {y});
        const std::string error = verdict({zero.take(), one.take()}, Collective::allreduce, true);
        EXPECT_EQ(error.empty(), used_in_order) << error;
    }
}

/// The end of another send proves nothing about this one, even if that one's receiver had to use this one first:
/// the other may have been copied, and then it ended at once.
TEST(BrokenResend, TheEndOfAnotherSendProvesNothing) {
    for (const bool waits_for_both : {false, true}) {
        Builder zero(1, 3);
        const uint32_t x = zero.send(1, 0, 0, kInput);
        const uint32_t y = zero.slots(1).send(1, 1, 0, scratch(0));
        zero.recv(2, 2, 0, kOutput, {y, waits_for_both ? x : kNoStep});
        Builder one(1, 3);
        const uint32_t first = one.recv(0, 0, 0, kOutput);
        one.recv(0, 1, 0, kOutput, {first});
        Builder two(1, 3);
        two.send(0, 2, 0, kInput);
        const std::string error = verdict({zero.take(), one.take(), two.take()}, Collective::allreduce, true);
        EXPECT_EQ(error.empty(), waits_for_both) << error;
    }
}

/// A dependency through a shorter block holds for all cells but the longer block's last.
TEST(BrokenResend, ADependencyThroughAShorterBlockIsSeen) {
    for (const uint32_t through : {0U, 1U}) {
        Builder zero(2, 2);
        zero.send(1, 0, 0, kInput);
        zero.recv(1, 1, 0, kOutput);
        Builder one(2, 2);
        const uint32_t x = one.recv(0, 0, 0, scratch(0));
        // Block 1 is the shorter one.
        one.slots(2);
        const uint32_t copied = one.copy(through, kInput, scratch(1));
        Schedule &&second = one.take();
        second.steps[copied].depends(x);
        Step back{.kind = StepKind::send, .phase = 1, .peer = 0, .block = 0, .from = kInput};
        back.depends(copied);
        second.steps.push_back(back);
        const std::string error = verdict({zero.take(), second}, Collective::allreduce, true);
        if (through == 0)
            EXPECT_EQ(error, "");
        else
            EXPECT_TRUE(names(error, "in a cell that only the first 1 blocks have"));
    }
}

/// Two receives into one scratch slot, with the first one sent on in between.
TEST(BrokenResend, AScratchSlotUsedAgainIsSeen) {
    for (const bool waits : {false, true}) {
        std::vector<Schedule> schedules = built("ring", Collective::reduce_scatter_block, 5);
        for (Schedule &schedule : schedules) {
            uint32_t sent = kNoStep;
            for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
                Step &step = schedule.steps[i];
                step.from.slot = step.to.slot = 0;
                if (step.kind == StepKind::recv_reduce && step.to.buffer == Buffer::scratch && waits && sent != kNoStep)
                    step.depends(sent);
                if (step.kind == StepKind::send && step.from.buffer == Buffer::scratch)
                    sent = i;
            }
        }
        const std::string error = verdict(schedules, Collective::reduce_scatter_block, false);
        EXPECT_EQ(error.empty(), waits) << error;
    }
}

}  // namespace
}  // namespace flx::algorithms
