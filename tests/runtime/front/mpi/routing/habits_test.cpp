/// Whether data are on GPUs, as ranks agree on it: several ranks in one process, whose agreements are the greatest of
/// what each says.
#include "runtime/front/mpi/routing/habits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace flx::preload {
namespace {

class Ranks {
  public:
    explicit Ranks(size_t ranks) : habits_(ranks) {}

    /// A call of all; whether it is taken to be on GPUs, which must be the same on all.
    bool call(CallClass which, const std::vector<Memory> &memory) {
        const bool agree = habits_[0].is_time_to_agree(which);
        Habits::Seen any{};
        for (size_t rank = 0; rank < habits_.size(); ++rank) {
            EXPECT_EQ(habits_[rank].is_time_to_agree(which), agree);
            const Habits::Seen seen = habits_[rank].seen(which, memory[rank]);
            for (size_t kind = 0; kind < any.size(); ++kind)
                any[kind] = std::max(any[kind], seen[kind]);
        }
        agreements_ += agree ? 1 : 0;
        for (size_t rank = 0; rank < habits_.size(); ++rank) {
            if (agree)
                habits_[rank].agree(which, any);
            EXPECT_FALSE(habits_[rank].is_time_to_agree(which)) << "a second time for one call";
            EXPECT_EQ(habits_[rank].on_gpus(which), habits_[0].on_gpus(which));
            habits_[rank].carried_out(which, memory[rank]);
        }
        return habits_[0].on_gpus(which);
    }
    [[nodiscard]] int agreements() const { return agreements_; }
    Habits &operator[](size_t rank) { return habits_[rank]; }

  private:
    std::vector<Habits> habits_;
    int agreements_ = 0;
};

const CallClass kSum(Collective::allreduce, 4096);
const std::vector<Memory> kGpus(3, Memory::gpu);
const std::vector<Memory> kHosts(3, Memory::host);
const std::vector<Memory> kMixed = {Memory::gpu, Memory::host, Memory::gpu};
const std::vector<Memory> kSomeIdle = {Memory::gpu, Memory::none, Memory::none};

TEST(Habits, FirstCallCounts) {
    for (const auto &memory : {kGpus, kHosts, kMixed, kSomeIdle}) {
        Ranks ranks(3);
        EXPECT_EQ(ranks.call(kSum, memory), memory == kGpus || memory == kSomeIdle);
    }
}

TEST(Habits, OneBufferElsewhereIsEnough) {
    Ranks ranks(3);
    EXPECT_FALSE(ranks.call(kSum, {Memory::gpu, Memory::gpu, Memory::both}));
}

TEST(Habits, AgreementsBecomeSeldom) {
    Ranks ranks(3);
    for (int call = 0; call < 4096; ++call)
        EXPECT_TRUE(ranks.call(kSum, kGpus));
    EXPECT_EQ(ranks.agreements(), 8);  // before calls 0, 4, 16, 64, 256, 1024, 2048, 3072
}

TEST(Habits, ChangesAreSeenLater) {
    Ranks ranks(3);
    EXPECT_FALSE(ranks.call(kSum, kHosts));
    for (int call = 1; call < 4; ++call)
        EXPECT_FALSE(ranks.call(kSum, kGpus)) << call;  // between agreements
    for (int call = 4; call < 17; ++call)
        EXPECT_TRUE(ranks.call(kSum, kGpus)) << call;
    for (int call = 17; call < 64; ++call)
        EXPECT_TRUE(ranks.call(kSum, kMixed)) << call;
    EXPECT_FALSE(ranks.call(kSum, kGpus));  // some were elsewhere since
}

TEST(Habits, ClassesAreApart) {
    Ranks ranks(3);
    const CallClass small(Collective::allreduce, 8);
    EXPECT_TRUE(ranks.call(kSum, kGpus));
    EXPECT_FALSE(ranks.call(small, kHosts));
    EXPECT_TRUE(ranks[0].on_gpus(kSum));
}

TEST(Habits, OfUnknownClassesMostDecide) {
    Ranks ranks(3);
    const CallClass unknown(Collective::scan, 8);
    EXPECT_FALSE(ranks[0].on_gpus(unknown));
    ranks.call(kSum, kGpus);
    EXPECT_TRUE(ranks[0].on_gpus(unknown));
    ranks.call(CallClass(Collective::bcast, 8), kHosts);
    EXPECT_FALSE(ranks[0].on_gpus(unknown));
}

TEST(Habits, NothingIsAgreedTwiceForACallThatARankTookNoPartIn) {
    Habits habits;
    habits.agree(kSum, {0, 1});
    EXPECT_FALSE(habits.is_time_to_agree(kSum));  // the call was given up, and the next one is paired with the others'
    habits.carried_out(kSum, Memory::gpu);
    EXPECT_TRUE(habits.on_gpus(kSum));
}

}  // namespace
}  // namespace flx::preload
