/// Schedules as data: proved as those of functions are, and for any root.
#include "algorithms/written.h"

#include <gtest/gtest.h>

#include <string>

#include "algorithms/verifier.h"

namespace flx::algorithms {
namespace {

TEST(Written, AreProvedForEveryAlgorithm) {
    for (const Algorithm &algorithm : all()) {
        for (const Collective collective : kScheduled) {
            for (const int size : {1, 2, 3, 4, 6, 8}) {
                if (!algorithm.serves(collective, size))
                    continue;
                std::vector<int> host_of;
                for (int rank = 0; rank < size; ++rank)
                    host_of.push_back(rank / 2);
                const Placement placement = Placement::of(host_of);
                const Written written = written_of(algorithm, collective, size, 0, &placement);
                EXPECT_EQ(prove(written), "") << algorithm.name << ", " << name_of(collective) << " of " << size;
                EXPECT_EQ(written.host_of.empty(), algorithm.family == Family::flat);
                const Algorithm again = algorithm_of(written);
                EXPECT_TRUE(again.serves(collective, size));
                EXPECT_FALSE(again.serves(collective, size + 1));
                EXPECT_FALSE(again.serves(Collective::alltoall, size));
                EXPECT_EQ(again.build({collective, size - 1, size, 0, nullptr}).steps.size(),
                          algorithm.build({collective, size - 1, size, 0, &placement}).steps.size());
            }
        }
    }
}

TEST(Written, GoRoundWithTheRoot) {
    for (const Algorithm &algorithm : all()) {
        for (const Collective collective : kScheduled) {
            constexpr int kSize = 5;
            if (!rooted(collective) || !algorithm.serves(collective, kSize))
                continue;
            const Written written = written_of(algorithm, collective, kSize, 1, nullptr);
            for (int root = 0; root < kSize; ++root) {
                std::vector<Schedule> schedules;
                for (int rank = 0; rank < kSize; ++rank)
                    schedules.push_back(schedule_of(written, rank, root));
                for (const bool in_place : {false, true}) {
                    Trial trial;
                    trial.in_place = in_place;
                    EXPECT_EQ(verify(schedules, collective, BitClass::own, root, trial), "")
                        << algorithm.name << ", " << name_of(collective) << ", root " << root;
                    ResendReasons reasons;
                    EXPECT_EQ(verify_resend(schedules, collective, root, in_place, reasons), "");
                }
            }
            EXPECT_EQ(algorithm_of(written).bits(collective), reduces(collective) ? BitClass::own : BitClass::none);
        }
    }
}

/// What is said of the order of sums is not believed.
TEST(Written, AreHeldToTheOrderThatTheySay) {
    Written written = written_of(*find("ring"), Collective::allreduce, 4, 0, nullptr);
    for (const BitClass wrong : {BitClass::rank_order, BitClass::doubling}) {
        written.bits = wrong;
        EXPECT_NE(prove(written).find("is not added in the"), std::string::npos) << prove(written);
    }
    written.bits = BitClass::own;
    EXPECT_EQ(prove(written), "");
    written = written_of(*find("recursive_halving"), Collective::allreduce, 4, 0, nullptr);
    written.bits = BitClass::doubling;
    EXPECT_NE(prove(written), "");
    written = written_of(*find("recursive_doubling"), Collective::allreduce, 7, 0, nullptr);
    EXPECT_EQ(written.bits, BitClass::doubling);
    EXPECT_EQ(prove(written), "");
}

TEST(Written, HaveIdentitiesOfTheirOwn) {
    Written written = written_of(*find("ring"), Collective::allreduce, 4, 0, nullptr);
    written.identity = uint64_t{1} << 63;
    EXPECT_EQ(identity_of(algorithm_of(written)), written.identity);
    EXPECT_EQ(identity_of(all()[2]), 3U);
}

}  // namespace
}  // namespace flx::algorithms
