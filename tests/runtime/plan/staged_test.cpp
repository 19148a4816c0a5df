#include "runtime/plan/staged.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/plan/planner.h"

namespace flx {
namespace {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::Placement;

Placement even(int hosts, int each) {
    std::vector<int> of;
    for (int rank = 0; rank < hosts * each; ++rank)
        of.push_back(rank / each);
    return Placement::of(of);
}

constexpr Collective kStaged[] = {Collective::allreduce, Collective::reduce_scatter_block,
                                  Collective::allgather, Collective::bcast,
                                  Collective::reduce,    Collective::barrier,
                                  Collective::gather,    Collective::scatter,
                                  Collective::alltoall,  Collective::scan,
                                  Collective::exscan};

TEST(Staged, HasNamesThatAreFoundAgain) {
    std::vector<Collective> all(std::begin(kStaged), std::end(kStaged));
    all.insert(all.end(), {Collective::alltoallv, Collective::gatherv, Collective::scatterv});
    for (const Collective collective : all) {
        EXPECT_FALSE(staged(collective).empty()) << algorithms::name_of(collective);
        for (const Algorithm *algorithm : staged(collective)) {
            const std::string name = staged_name(algorithm);
            EXPECT_NE(name.find("(fused,"), std::string::npos) << name;
            const Algorithm *found = nullptr;
            EXPECT_TRUE(find_staged(name, collective, found)) << name;
            EXPECT_EQ(found, algorithm);
        }
        const Algorithm *found = nullptr;
        EXPECT_FALSE(find_staged("leaders(direct,direct)", collective, found));
        EXPECT_FALSE(find_staged("fused", collective, found));
    }
    for (const Collective collective : {Collective::send_recv, Collective::reduce_scatter, Collective::allgatherv})
        EXPECT_TRUE(staged(collective).empty()) << algorithms::name_of(collective);
}

/// What a rank shows in Staged (runtime/communicator/staged.cpp) has room in `payload`.
TEST(Staged, FitsUpToWhatARankMayShow) {
    constexpr size_t kPayload = 64 << 10;
    const Placement placement = even(4, 4);
    const auto fits = [&](Collective collective, size_t bytes, const char *name = nullptr) {
        const Algorithm *algorithm = staged(collective).back();
        if (name != nullptr) {
            EXPECT_TRUE(find_staged(name, collective, algorithm));
        }
        return fits_staged(collective, algorithm, bytes, placement, kPayload);
    };
    EXPECT_TRUE(fits(Collective::allgather, 16 * kPayload));
    EXPECT_FALSE(fits(Collective::allgather, 16 * kPayload + 16));
    EXPECT_TRUE(fits(Collective::scatter, 4 * kPayload));
    EXPECT_FALSE(fits(Collective::scatter, 4 * kPayload + 16));
    EXPECT_TRUE(fits(Collective::reduce_scatter_block, 4 * kPayload));
    EXPECT_FALSE(fits(Collective::reduce_scatter_block, 4 * kPayload + 16));
    EXPECT_TRUE(fits(Collective::allreduce, kPayload, "lanes(fused,ring)"));
    EXPECT_FALSE(fits(Collective::allreduce, kPayload + 1, "lanes(fused,ring)"));
    EXPECT_TRUE(fits(Collective::allreduce, 100 * kPayload, "leaders(fused,recursive_doubling)")) << "in pieces";
    EXPECT_TRUE(fits(Collective::alltoall, kPayload, "lanes(fused,exchange)"));
    EXPECT_FALSE(fits(Collective::alltoall, kPayload + 16, "lanes(fused,exchange)"));
    // Leaders show three ranks what came from twelve.
    EXPECT_TRUE(fits(Collective::alltoall, kPayload / 36 * 16, "leaders(fused,direct)"));
    EXPECT_FALSE(fits(Collective::alltoall, (kPayload / 36 + 1) * 16, "leaders(fused,direct)"));
    EXPECT_TRUE(fits(Collective::scan, kPayload));
    EXPECT_FALSE(fits(Collective::scan, kPayload + 1));
    // On a large host beside many small ones, a rank shows each of the others a place for one rank of each host.
    std::vector<int> of(64);
    for (int host = 2; host < 32; ++host)
        of.push_back(host);
    for (size_t rank = 32; rank < 64; ++rank)
        of[rank] = 1;
    const Placement uneven = Placement::of(of);
    const size_t shown = size_t{32} * 32;
    EXPECT_TRUE(fits_staged(Collective::alltoall, nullptr, kPayload / shown * of.size(), uneven, kPayload));
    EXPECT_FALSE(fits_staged(Collective::alltoall, nullptr, (kPayload / shown + 1) * of.size(), uneven, kPayload));
    for (const Collective collective : kStaged)
        EXPECT_FALSE(fits_staged(collective, staged(collective).back(), 16 << 10, placement, 0));
}

/// Messages of lengths that only their ends know, by those that carry them.
TEST(Staged, HasRoomForMessagesUpToALength) {
    constexpr size_t kPayload = 100'000;
    const Placement placement = even(4, 4);
    for (const Collective collective : {Collective::alltoallv, Collective::gatherv, Collective::scatterv})
        for (const Algorithm *algorithm : staged(collective)) {
            const size_t longest = longest_staged(collective, algorithm, placement, kPayload);
            const auto has_room = [&](size_t each) {
                return shown_messages(collective, placement, each) <= kPayload &&
                       (algorithm == nullptr || dealt_messages(collective, placement, each) <= kPayload);
            };
            EXPECT_GE(longest, 64U);
            EXPECT_TRUE(has_room(longest)) << staged_name(algorithm);
            EXPECT_FALSE(has_room(2 * longest)) << staged_name(algorithm);
            EXPECT_TRUE(fits_staged(collective, algorithm, 16 * longest, placement, kPayload));
            EXPECT_FALSE(fits_staged(collective, algorithm, 16 * longest + 1, placement, kPayload));
            EXPECT_EQ(longest_staged(collective, algorithm, placement, 0), 0U);
            EXPECT_EQ(predict_staged_ns(collective, algorithm, 4096, placement, nominal_costs()),
                      predict_staged_ns(equal_blocks_of(collective), algorithm, 4096, placement, nominal_costs()));
        }
}

TEST(Staged, IsExpectedToTakeLongerForMore) {
    for (const Placement &placement : {even(2, 8), even(4, 4), even(8, 2), Placement::of({0, 1, 0, 0, 2, 1})})
        for (const Collective collective : kStaged)
            for (const Algorithm *algorithm : staged(collective)) {
                double before = 0;
                for (size_t bytes = 64; bytes <= 1 << 20; bytes *= 16) {
                    const double ns = predict_staged_ns(collective, algorithm, bytes, placement, nominal_costs());
                    EXPECT_GT(ns, nominal_costs().far.latency_ns);
                    EXPECT_GE(ns, before) << staged_name(algorithm) << " of " << bytes;
                    before = ns;
                }
            }
    const Placement placement = even(4, 4);
    EXPECT_LT(predict_staged_ns(Collective::alltoall, nullptr, 1024, placement, nominal_costs()),
              predict_exchange_ns(1024, placement, nominal_costs()));
}

}  // namespace
}  // namespace flx
