/// Collectives on GPU memory in two tiers, without GPUs: who is near whom, and that steps, carried out by whoever meets
/// in them, make what the call says, whatever the staging.
#include "runtime/cuda/far/tiers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/cuda/far/far_cut.h"
#include "runtime/cuda/protocol/plan.h"
#include "runtime/elements/reduce.h"
#include "tests/runtime/plan/calls.h"

namespace flx::cuda {
namespace {

using testing::TestBuffers;
using testing::TestCall;
using Where = TierStep::Where;

TEST(Tiers, AreFoundWhereRanksLieHostByHost) {
    Tiers tiers;
    EXPECT_EQ(find_tiers(std::vector{0, 0, 0, 1, 1, 1}, 4, tiers), "");
    EXPECT_EQ(tiers.hosts, 2);
    EXPECT_EQ(tiers.near, 3);
    EXPECT_EQ(tiers.host, 1);
    EXPECT_EQ(tiers.place, 1);
    for (const auto &[hosts, why] : {std::pair(std::vector{0, 0, 1}, "host 0 has 2 ranks, host 1 has 1"),
                                     std::pair(std::vector{0, 1, 2}, "each host has one rank"),
                                     std::pair(std::vector{0, 1, 0, 1}, "rank 1 is on host 1"),
                                     std::pair(std::vector{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                               "hosts have 9 ranks, and up to 8")}) {
        Tiers none;
        EXPECT_NE(find_tiers(hosts, 0, none).find(why), std::string::npos) << find_tiers(hosts, 0, none);
        EXPECT_EQ(none.near, 1);
    }
}

TEST(Tiers, AreForLargerVectorsWhereRanksShareGpus) {
    EXPECT_LT(least_for_tiers(false), least_for_tiers(true));
}

TEST(Tiers, SignaturesOfOtherCallsDiffer) {
    const Operation call{Collective::allreduce, nullptr, nullptr, 1000, FLX_F32, FLX_SUM, 0};
    std::vector<Operation> others(5, call);
    others[0].collective = Collective::reduce;
    others[1].count = 1001;
    others[2].dtype = FLX_INT32;
    others[3].op = FLX_MAX;
    others[4].root = 1;
    Operation same = call;
    int memory = 0;
    same.out = &memory;
    EXPECT_EQ(signature_of(call), signature_of(same));
    for (const Operation &other : others)
        EXPECT_NE(signature_of(call), signature_of(other));
}

/// One rank of a call, with staging between guards.
struct Rank {
    Tiers tiers;
    std::vector<char> staging;
    std::vector<TierStep> steps;
    size_t next = 0;
    [[nodiscard]] const TierStep *step() const { return next < steps.size() ? &steps[next] : nullptr; }
};

/// Carries out what all of them are at.
void carry_out(const std::vector<Rank *> &circle) {
    const Operation any = circle[0]->step()->call;
    const size_t ranks = circle.size();
    const size_t element = size_of(any.dtype);
    const size_t bytes = any.count * element;
    const size_t block = bytes / ranks;
    std::vector<std::vector<char>> inputs;
    std::vector<const void *> sources;
    for (const Rank *rank : circle) {
        const TierStep &step = *rank->step();
        ASSERT_EQ(step.call.collective, any.collective);
        ASSERT_EQ(step.call.count, any.count);
        ASSERT_EQ(step.call.op, any.op);
        ASSERT_EQ(step.call.root, any.root);
        ASSERT_EQ(step.apart, circle[0]->step()->apart);
        const bool gives = any.collective != Collective::bcast || rank == circle[static_cast<size_t>(any.root)];
        const size_t apart = step.apart * element;
        const auto *from = static_cast<const char *>(step.call.in);
        std::vector<char> &input = inputs.emplace_back(any.collective == Collective::allgather ? block : bytes);
        if (any.collective == Collective::reduce_scatter_block && apart != 0)
            for (size_t k = 0; k < ranks; ++k)
                std::memcpy(&input[k * block], from + k * apart, block);
        else if (gives)
            std::memcpy(input.data(), from, input.size());
    }
    for (const auto &input : inputs)
        sources.push_back(input.data());
    std::vector<char> sum(bytes);
    if (reduces(any.collective))
        reduce_many(any.dtype, any.op, sum.data(), sources.data(), static_cast<int>(ranks), any.count, any.divisor,
                    false);
    for (size_t k = 0; k < ranks; ++k) {
        const TierStep &step = *circle[k]->step();
        auto *out = static_cast<char *>(step.call.out);
        const size_t apart = step.apart == 0 ? block : step.apart * element;
        if (any.collective == Collective::allreduce ||
            (any.collective == Collective::reduce && static_cast<int>(k) == any.root))
            std::memcpy(out, sum.data(), bytes);
        else if (any.collective == Collective::reduce_scatter_block)
            std::memcpy(out, &sum[k * block], block);
        else if (any.collective == Collective::bcast)
            std::memcpy(out, inputs[static_cast<size_t>(any.root)].data(), bytes);
        else if (any.collective == Collective::allgather)
            for (size_t from = 0; from < ranks; ++from)
                std::memcpy(out + from * apart, inputs[from].data(), block);
    }
    for (Rank *rank : circle)
        ++rank->next;
}

/// Whether some went on.
bool advance(std::vector<Rank> &ranks, const Tiers &tiers) {
    bool moved = false;
    for (Rank &rank : ranks)
        while (rank.step() != nullptr && rank.step()->where == Where::pack) {
            const TierStep &step = *rank.step();
            for (uint64_t row = 0; row < step.rows; ++row)
                std::memcpy(step.to + row * step.bytes, step.from + row * step.pitch, step.bytes);
            ++rank.next;
            moved = true;
        }
    const auto meet = [&](Where where, int begin, int stride, int count) {
        std::vector<Rank *> circle;
        for (int k = 0; k < count; ++k) {
            Rank &rank = ranks.at(begin + k * stride);
            if (rank.step() == nullptr || rank.step()->where != where)
                return;
            circle.push_back(&rank);
        }
        carry_out(circle);
        moved = true;
    };
    for (int host = 0; host < tiers.hosts; ++host)
        meet(Where::near, host * tiers.near, 1, tiers.near);
    for (int place = 0; place < tiers.near; ++place)
        meet(Where::across, place, tiers.near, tiers.hosts);
    return moved;
}

constexpr size_t kGuard = 256;

uint64_t run(const TestCall &call, const Tiers &shape, uint64_t staging_bytes) {
    std::vector<std::unique_ptr<TestBuffers>> buffers;
    std::vector<Rank> ranks(static_cast<size_t>(call.ranks));
    uint64_t carried = 0;
    for (int one = 0; one < call.ranks; ++one) {
        const auto &data = buffers.emplace_back(std::make_unique<TestBuffers>(call, one));
        Rank &rank = ranks[static_cast<size_t>(one)];
        rank.tiers = {shape.hosts, shape.near, one / shape.near, one % shape.near};
        rank.staging.assign(staging_bytes + 2 * kGuard, '\x5a');
        const Operation given{call.collective, call.collective == Collective::bcast ? data->out() : data->in(),
                              data->out(),     call.count,
                              call.dtype,      call.op,
                              call.root};
        tier_steps(given, tier_stages(call.collective, call.root, rank.tiers), rank.tiers, rank.staging.data() + kGuard,
                   staging_bytes, rank.steps);
        for (const TierStep &step : rank.steps)
            if (one == 0 && step.where == Where::across)
                carried += step.call.count * size_of(call.dtype);
    }
    while (advance(ranks, shape)) {
    }
    for (int one = 0; one < call.ranks; ++one) {
        const Rank &rank = ranks[static_cast<size_t>(one)];
        EXPECT_EQ(rank.next, rank.steps.size()) << call.text() << ": rank " << one << " waits";
        EXPECT_EQ(buffers[static_cast<size_t>(one)]->result(), testing::result_of(call, one))
            << call.text() << " staging " << staging_bytes << ": rank " << one;
        EXPECT_TRUE(buffers[static_cast<size_t>(one)]->intact()) << call.text() << ": rank " << one;
        for (size_t k = 0; k < kGuard; ++k) {
            EXPECT_EQ(rank.staging[k], '\x5a') << call.text();
            EXPECT_EQ(rank.staging[rank.staging.size() - 1 - k], '\x5a') << call.text();
        }
    }
    return carried;
}

TEST(Tiers, StepsMakeTheCall) {
    const Collective collectives[] = {Collective::allreduce, Collective::reduce_scatter_block, Collective::allgather,
                                      Collective::bcast, Collective::reduce};
    std::mt19937 random(3);
    for (const auto &[hosts, near] : {std::pair(2, 2), std::pair(2, 3), std::pair(3, 2), std::pair(2, 8)}) {
        const Tiers shape{hosts, near, 0, 0};
        for (const Collective collective : collectives)
            for (const size_t count : {1U, 7U, 1000U, 1024U, 9'011U})
                for (const uint64_t staging : {least_tier_staging(shape), uint64_t{30'000}, uint64_t{1} << 20}) {
                    TestCall call;
                    call.collective = collective;
                    call.ranks = hosts * near;
                    const bool blocks =
                        collective == Collective::allgather || collective == Collective::reduce_scatter_block;
                    call.count = blocks ? count * static_cast<size_t>(call.ranks) : count;
                    const flx_dtype_t types[] = {FLX_INT8, FLX_INT32, FLX_INT64};
                    call.dtype = types[random() % 3];
                    call.op = random() % 3 == 0 ? FLX_MAX : random() % 2 == 0 ? FLX_SUM : FLX_AVG;
                    call.root = static_cast<int>(random() % static_cast<unsigned>(call.ranks));
                    call.in_place = random() % 2 == 0;
                    call.seed = random();
                    run(call, shape, staging);
                }
    }
}

TEST(Tiers, BetweenHostsEachRankCarriesItsPart) {
    TestCall call;
    call.ranks = 8;
    call.count = 100'003;
    call.dtype = FLX_INT32;
    EXPECT_EQ(run(call, {2, 4, 0, 0}, uint64_t{1} << 20), call.count / 128 * 32 * sizeof(int32_t));
}

TEST(FarCut, BlocksMayLieApart) {
    std::vector<char> in(1000), out(4000), space(8192);
    const Operation call{Collective::allgather, in.data(), out.data(), 2000, FLX_UINT8, FLX_SUM, 0};
    const FarCut cut = cut_far(call, 2, 4096, 2000);
    std::vector<FarCopy> give, take;
    far_copies(call, cut, 0, 2, 0, give, take);
    ASSERT_EQ(take.size(), 2U);
    EXPECT_EQ(take[0].device, out.data());
    EXPECT_EQ(take[1].device, out.data() + 2000);
    EXPECT_EQ(take[1].bytes, 1000U);
}

}  // namespace
}  // namespace flx::cuda
