#include "runtime/execute/inbox.h"

#include <gtest/gtest.h>

#include <vector>

namespace flx {
namespace {

Arrival chunk_of(int peer, uint64_t sequence) {
    Arrival arrival;
    arrival.peer = peer;
    arrival.header.sequence = sequence;
    return arrival;
}

/// Uses up what is kept of `sequence`, or `all`: their sequences.
std::vector<uint64_t> sifted(Inbox &inbox, uint64_t sequence, bool all) {
    std::vector<uint64_t> seen;
    const auto use = [&](const Inbox::Early &early, bool &stays) {
        stays = !all && early.arrival.header.sequence != sequence;
        if (!stays)
            seen.push_back(early.arrival.header.sequence);
        return Status();
    };
    const Status status = all ? inbox.sift_all(use) : inbox.sift(sequence, use);
    EXPECT_TRUE(status.ok());
    return seen;
}

/// Peers that are hundreds of operations ahead: each operation finds its own chunks, in the order in which they came.
TEST(Inbox, GivesEachOperationItsOwn) {
    Inbox inbox(4);
    EXPECT_TRUE(inbox.keeps_nothing());
    constexpr uint64_t kOperations = 500;
    for (uint64_t sequence = 1; sequence <= kOperations; ++sequence)
        for (const int peer : {2, 1, 3})
            inbox.keep(chunk_of(peer, sequence), 0);
    for (uint64_t number = 1; number <= 5; ++number)
        inbox.keep(chunk_of(1, kPairwise | number), 0);
    for (uint64_t sequence = 1; sequence <= kOperations; ++sequence) {
        EXPECT_FALSE(inbox.keeps_nothing());
        EXPECT_EQ(sifted(inbox, sequence, false), std::vector<uint64_t>(3, sequence));
        EXPECT_TRUE(sifted(inbox, sequence, false).empty());
    }
    EXPECT_FALSE(inbox.keeps_nothing());
    inbox.keep(chunk_of(1, 3), 0);
    inbox.keep(chunk_of(1, 4), 0);
    EXPECT_EQ(sifted(inbox, 0, true).size(), 7U);
    EXPECT_TRUE(inbox.keeps_nothing());
}

/// What an error leaves unseen stays.
TEST(Inbox, KeepsWhatAnErrorLeaves) {
    Inbox inbox(2);
    for (int i = 0; i < 6; ++i)
        inbox.keep(chunk_of(1, 9), i);
    int looked = 0;
    const Status status = inbox.sift(9, [&](const Inbox::Early &early, bool &stays) {
        ++looked;
        stays = false;
        return early.link == 2 ? fail(Fault::calls_differ, "this one") : Status();
    });
    EXPECT_EQ(status.code(), FLX_ERR_MISMATCH);
    EXPECT_EQ(looked, 3);
    std::vector<int> left;
    ASSERT_TRUE(inbox
                    .sift(9,
                          [&](const Inbox::Early &early, bool &stays) {
                              left.push_back(early.link);
                              stays = false;
                              return Status();
                          })
                    .ok());
    EXPECT_EQ(left, std::vector<int>({2, 3, 4, 5})) << "the one that failed is still there";
    EXPECT_TRUE(inbox.keeps_nothing());
}

/// What a peer sends in an operation that awaits nothing from it is told from what a link sent twice.
TEST(Inbox, KnowsWhatNobodyAwaited) {
    Inbox inbox(3);
    const auto unasked = [&](int peer, uint64_t sequence) {
        return inbox.unasked(peer, chunk_of(peer, sequence).header);
    };
    EXPECT_FALSE(unasked(1, 0)) << "before the first operation";
    for (uint64_t sequence = 1; sequence <= 200; ++sequence) {
        inbox.begins(sequence);
        if (sequence % 3 == 0)
            inbox.receives(1, sequence);
        for (uint64_t back = 0; back < 60 && back < sequence; ++back)
            EXPECT_EQ(unasked(1, sequence - back), (sequence - back) % 3 != 0) << sequence << ", " << back;
        EXPECT_TRUE(unasked(2, sequence));
        EXPECT_FALSE(unasked(1, 0) || unasked(2, 0)) << "what measured a link comes late";
    }
    EXPECT_FALSE(unasked(1, 200 - 64 * 2)) << "too long ago to be known";
    inbox.begins(1000);
    inbox.receives(1, 1000);
    inbox.receives(1, 999);  // numbered in another order than they begin
    EXPECT_FALSE(unasked(1, 1000));
    EXPECT_FALSE(unasked(1, 999));
    EXPECT_TRUE(unasked(1, 998));
    inbox.receives(1, kPairwise | 7);
    EXPECT_FALSE(unasked(1, kPairwise | 7));
    EXPECT_FALSE(unasked(2, kPairwise | 7)) << "those of pairs are judged by their own numbers";
}

}  // namespace
}  // namespace flx
