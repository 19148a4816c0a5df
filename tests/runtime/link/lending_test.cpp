/// Rails that are lent: the owner is served first, here and at the receiver, borrowers are capped, and nobody waits for
/// an owner that stands still.
#include "runtime/link/lending.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

#include "runtime/base/clock.h"

namespace flx {
namespace {

/// Takes `room` chunks, all in flight, until told that they were acknowledged.
class Rail final : public Link {
  public:
    explicit Rail(size_t room) : room_(room) {}
    void acknowledge() {
        done_.push_back(flying_.front());
        flying_.pop_front();
    }
    [[nodiscard]] const std::string &name() const override { return name_; }
    [[nodiscard]] LinkKind kind() const override { return LinkKind::rail; }
    [[nodiscard]] bool reaches(int) const override { return true; }
    [[nodiscard]] size_t max_chunk() const override { return kMaxCellBytes; }
    [[nodiscard]] size_t good_chunk(size_t) const override { return kMaxCellBytes; }
    SendResult send(int peer, const ChunkHeader &header, const void *) override {
        if (flying_.size() >= room_)
            return SendResult::busy;
        if (copies)
            return SendResult::copied;
        flying_.push_back({header, peer});
        return SendResult::in_flight;
    }
    bool receive(int peer, Arrival &arrival) override {
        arrival = {};
        arrival.peer = peer;
        arrival.header.bytes = kMaxCellBytes;
        return true;
    }
    void release(const Arrival &) override {}
    bool completed(Completion &completion) override {
        if (done_.empty())
            return false;
        completion = done_.front();
        done_.pop_front();
        return true;
    }
    bool progress() override { return false; }
    [[nodiscard]] size_t outstanding() const override { return flying_.size(); }
    [[nodiscard]] size_t unacknowledged(int) const override { return 0; }
    [[nodiscard]] Pace pace(int) const override { return known_pace; }
    [[nodiscard]] size_t good_chunk_to(int, size_t) const override { return 512; }
    void ended(int peer, uint64_t sequence) override { last_ended = {peer, sequence}; }
    [[nodiscard]] LinkState state(int) const override { return lost ? LinkState::lost : LinkState::up; }
    void tell(int, uint16_t links) override { told_to_peer = links; }
    [[nodiscard]] uint16_t told(int) const override { return told_by_peer; }
    [[nodiscard]] LinkCounters counters(int) const override { return {}; }
    [[nodiscard]] Status error(int) const override { return {}; }

    std::pair<int, uint64_t> last_ended{0, 0};
    Pace known_pace{2.0, 1000};
    bool lost = false;
    bool copies = false;
    uint16_t told_to_peer = 0;
    uint16_t told_by_peer = 0;

  private:
    std::string name_ = "rail1";
    size_t room_;
    std::deque<Completion> flying_, done_;
};

/// Three hosts: ranks 0 and 1 on host 0, 2 and 3 on host 1, 4 and 5 on host 2. Of two rails the first rank of each host
/// owns link 1 and the second link 2.
constexpr int kHosts = 3;
constexpr uint32_t kMost = 3;
constexpr uint32_t kBytes = 20000;

struct Host {
    std::vector<std::byte> memory = std::vector<std::byte>(Lending::bytes(kHosts) + 64);
    [[nodiscard]] std::byte *ledger() {
        return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    }
};

/// One rank, with both rails.
struct Rank {
    Rank(Host &host, int rank)
        : lending(host.ledger(), rank, {{0, 2}, {0, 4}, {1, 2}, {1, 4}, {2, 2}, {2, 4}}, kHosts, kMost) {
        for (int link = 1; link <= 2; ++link) {
            rails[link] = new Rail(100);
            links[link] = std::make_unique<LentLink>(std::unique_ptr<Link>(rails[link]), lending, link,
                                                     LentLink::Believed{0.5, 700});
        }
    }
    SendResult send(int link, int peer, uint32_t bytes = kBytes) {
        ChunkHeader header{};
        header.bytes = bytes;
        return links[link]->send(peer, header, nullptr);
    }
    void acknowledge(int link) {
        rails[link]->acknowledge();
        Completion completion;
        ASSERT_TRUE(links[link]->completed(completion));
    }
    void leave() {
        links[1]->leave();
        links[2]->leave();
        lending.leave();
    }
    Lending lending;
    std::array<Rail *, 3> rails{};
    std::array<std::unique_ptr<LentLink>, 3> links;
};

/// Rank 0 owns link 1, rank 1 borrows it.
class LendingRails : public testing::Test {
  protected:
    LedgerLine &line() { return owner_.lending.line(1); }
    /// However busy this machine is, the owner has moved just now.
    void owner_moves() { line().moved_ns = now_ns() + 1'000'000'000'000; }

    Host host_;
    Rank owner_{host_, 0};
    Rank borrower_{host_, 1};
};

TEST_F(LendingRails, BusyOwnerIsNoticedAtTheNextChunk) {
    borrower_.lending.enter(100 * kBytes);
    EXPECT_EQ(borrower_.send(1, 4), SendResult::in_flight);
    owner_.lending.enter(2 * kBytes);  // before it has sent anything
    EXPECT_EQ(line().backlog, 2 * kBytes);
    owner_moves();
    EXPECT_EQ(borrower_.send(1, 4), SendResult::busy);
    EXPECT_EQ(line().refused, 1U);
    EXPECT_EQ(owner_.send(1, 2), SendResult::in_flight);
    EXPECT_EQ(owner_.send(1, 2), SendResult::in_flight);
    owner_.acknowledge(1);
    owner_moves();
    EXPECT_EQ(borrower_.send(1, 4), SendResult::busy);
    owner_.acknowledge(1);
    EXPECT_EQ(line().backlog, 0U);
    EXPECT_EQ(borrower_.send(1, 4), SendResult::in_flight);
    EXPECT_EQ(line().lent, 2U);
}

TEST_F(LendingRails, WhatWasCopiedIsDone) {
    owner_.lending.enter(2 * kBytes);
    owner_.rails[1]->copies = true;
    EXPECT_EQ(owner_.send(1, 2), SendResult::copied);
    EXPECT_EQ(line().backlog, kBytes);
    EXPECT_EQ(owner_.send(1, 2), SendResult::copied);
    EXPECT_EQ(line().backlog, 0U);
}

TEST_F(LendingRails, TrafficWithinTheHostMakesNobodyBusy) {
    owner_.lending.enter(kBytes);
    EXPECT_EQ(owner_.send(1, 1), SendResult::in_flight);
    owner_.acknowledge(1);
    EXPECT_EQ(line().backlog, kBytes);  // still to be sent elsewhere
    owner_moves();
    borrower_.lending.enter(kBytes);
    EXPECT_EQ(borrower_.send(1, 0), SendResult::in_flight);
    EXPECT_EQ(line().borrowed, 0U);
}

/// All borrowers of a rail together, not each: what is ahead of an owner that returns does not grow with their number.
TEST_F(LendingRails, BorrowersTogetherAreCappedAndOwnersNot) {
    Host wide;
    const std::vector<Lending::Member> members = {{0, 2}, {0, 4}, {0, 8}, {1, 2}};
    Lending second(wide.ledger(), 1, members, 2, kMost);
    Lending third(wide.ledger(), 2, members, 2, kMost);
    const Lending first(wide.ledger(), 0, members, 2, kMost);
    std::array<Rail *, 4> rails{};
    const auto link = [&](Lending &lending, int index, int at) {
        rails[at] = new Rail(100);
        return std::make_unique<LentLink>(std::unique_ptr<Link>(rails[at]), lending, index, LentLink::Believed{});
    };
    const auto own2 = link(second, 2, 0);
    const auto own3 = link(third, 3, 1);
    const auto a = link(second, 1, 2);
    const auto b = link(third, 1, 3);
    second.enter(100 * kBytes);
    third.enter(100 * kBytes);
    ChunkHeader header{};
    header.bytes = kBytes;
    EXPECT_EQ(a->send(3, header, nullptr), SendResult::in_flight);
    EXPECT_EQ(b->send(3, header, nullptr), SendResult::in_flight);
    EXPECT_EQ(a->send(3, header, nullptr), SendResult::in_flight);
    EXPECT_EQ(a->send(3, header, nullptr), SendResult::busy);
    EXPECT_EQ(b->send(3, header, nullptr), SendResult::busy);
    EXPECT_EQ(second.line(1).borrowed, kMost);
    rails[2]->acknowledge();
    Completion completion;
    ASSERT_TRUE(a->completed(completion));
    EXPECT_EQ(second.line(1).borrowed, kMost - 1);
    EXPECT_EQ(b->send(3, header, nullptr), SendResult::in_flight);
    for (uint32_t i = 0; i < 3 * kMost; ++i)
        EXPECT_EQ(own2->send(3, header, nullptr), SendResult::in_flight);
    a->leave();
    b->leave();
    EXPECT_EQ(second.line(1).borrowed, 0U);
}

/// An owner that comes back finds at most the cap ahead of it, and is noticed by the next chunk that anyone tries.
TEST_F(LendingRails, AReturningOwnerWaitsForFewChunks) {
    borrower_.lending.enter(100 * kBytes);
    uint32_t sent = 0;
    while (borrower_.send(1, 4) == SendResult::in_flight)
        ++sent;
    EXPECT_EQ(sent, kMost);
    owner_.lending.enter(kBytes);
    for (uint32_t i = 0; i < kMost; ++i) {
        owner_moves();
        borrower_.acknowledge(1);
        EXPECT_EQ(borrower_.send(1, 4), SendResult::busy);
    }
    EXPECT_EQ(line().borrowed, 0U);
}

/// The receiver of an owner's chunk may need what the borrower holds back before it can take that chunk.
TEST_F(LendingRails, NobodyWaitsForAnOwnerThatStandsStill) {
    owner_.lending.enter(kBytes);
    borrower_.lending.enter(kBytes);
    EXPECT_EQ(owner_.send(1, 2), SendResult::in_flight);
    EXPECT_GT(line().moved_ns, 0);
    line().moved_ns = now_ns() - 60'000'000;
    EXPECT_EQ(borrower_.send(1, 4), SendResult::in_flight);
}

/// So that it takes no cells while the owner sends, and takes them again afterwards.
TEST_F(LendingRails, ARailThatItsOwnerUsesIsSlowForOthers) {
    borrower_.lending.enter(kBytes);
    EXPECT_EQ(borrower_.links[1]->pace(4).bytes_per_ns, 2);
    owner_.lending.enter(kBytes);
    owner_moves();
    EXPECT_EQ(owner_.links[1]->pace(4).bytes_per_ns, 2);
    EXPECT_GT(borrower_.links[1]->pace(4).bytes_per_ns, 0);
    EXPECT_LT(borrower_.links[1]->pace(4).bytes_per_ns, 0.1);
    EXPECT_EQ(borrower_.links[1]->pace(4).round_trip_ns, 1000);
    owner_.leave();
    EXPECT_EQ(borrower_.links[1]->pace(4).bytes_per_ns, 2);
}

/// A rail that never carried anything to a peer must be able to take its first cells.
TEST_F(LendingRails, UntilARailHasShownItsPaceTheProbesCounts) {
    borrower_.rails[1]->known_pace = {};
    EXPECT_EQ(borrower_.links[1]->pace(4).bytes_per_ns, 0);  // in a collective
    borrower_.lending.enter(kBytes);
    EXPECT_EQ(borrower_.links[1]->pace(4).bytes_per_ns, 0.5);
    EXPECT_EQ(borrower_.links[1]->pace(4).round_trip_ns, 1400);
}

TEST_F(LendingRails, ShortChunksAskNobody) {
    owner_.lending.enter(kBytes);
    borrower_.lending.enter(100 * kBytes);
    owner_moves();
    for (uint32_t i = 0; i < 3 * kMost; ++i)
        EXPECT_EQ(borrower_.send(1, 4, Lending::kFreeBytes), SendResult::in_flight);
    EXPECT_EQ(line().borrowed, 0U);
}

/// A rank whose own rail is lost has as good a right to the others as their owners.
TEST_F(LendingRails, WithoutAnOwnRailAllAreEveryones) {
    owner_.lending.enter(kBytes);
    borrower_.lending.enter(100 * kBytes);
    owner_moves();
    EXPECT_EQ(borrower_.send(1, 4), SendResult::busy);
    borrower_.rails[2]->lost = true;
    for (uint32_t i = 0; i < 3 * kMost; ++i)
        EXPECT_EQ(borrower_.send(1, 4), SendResult::in_flight);
}

TEST_F(LendingRails, OutsideExchangesRailsAreEveryones) {
    for (uint32_t i = 0; i < 3 * kMost; ++i)
        EXPECT_EQ(borrower_.send(1, 4), SendResult::in_flight);
    EXPECT_EQ(line().borrowed, 0U);
    EXPECT_EQ(owner_.send(1, 4), SendResult::in_flight);
    EXPECT_EQ(line().backlog, 0U);
}

TEST_F(LendingRails, WhatTheRailKnowsIsPassedOn) {
    EXPECT_EQ(borrower_.links[1]->good_chunk_to(1, 4096), 512U);
    borrower_.rails[1]->lost = true;
    EXPECT_EQ(borrower_.links[1]->state(1), LinkState::lost);
    borrower_.links[1]->ended(3, 7);
    EXPECT_EQ(borrower_.rails[1]->last_ended, std::make_pair(3, uint64_t{7}));
}

TEST_F(LendingRails, WhoLeavesNeedsNothing) {
    owner_.lending.enter(5 * kBytes);
    borrower_.lending.enter(5 * kBytes);
    EXPECT_EQ(owner_.send(1, 4), SendResult::in_flight);
    owner_.leave();
    EXPECT_EQ(line().backlog, 0U);
    EXPECT_EQ(borrower_.send(1, 4), SendResult::in_flight);
    EXPECT_EQ(line().borrowed, 1U);
    borrower_.leave();
    EXPECT_EQ(line().borrowed, 0U);
}

TEST_F(LendingRails, TheLedgerIsLeftAsItWas) {
    {
        Rank other(host_, 0);
        other.lending.enter(kBytes);
        EXPECT_EQ(line().owners, 2U);
        EXPECT_EQ(line().backlog, kBytes);
    }
    EXPECT_EQ(line().owners, 1U);
    EXPECT_EQ(line().backlog, 0U);
}

/// Rank 2, of host 1, receives on link 1 from rank 4 of host 2, which owns it there. Rank 1, of host 0, owns link 2: it
/// must not borrow link 1 towards host 1 meanwhile, though nobody on host 0 uses it.
TEST(Credits, TellWhereOwnersOfOtherHostsSend) {
    Host host0;
    Host host1;
    Rank owner(host0, 0);
    Rank sender(host0, 1);
    Rank receiver(host1, 2);
    Rank beside(host1, 3);
    sender.lending.enter(100 * kBytes);
    receiver.lending.enter(0);
    beside.lending.enter(0);
    const auto take = [](Rank &rank, int link, int from) {
        Arrival arrival;
        ASSERT_TRUE(rank.links[link]->receive(from, arrival));
        rank.links[link]->release(arrival);
    };
    take(beside, 2, 1);
    EXPECT_EQ(beside.rails[2]->told_to_peer, 0U);
    take(receiver, 1, 4);
    EXPECT_EQ(receiver.rails[1]->told_to_peer, 4U);  // of rank 1; of its own host rank 4 knows more
    const int64_t end = now_ns() + 10'000'000'000;
    do {  // also the other rank of the host says so, when its last credit is old enough
        take(receiver, 1, 4);
        take(beside, 2, 1);
    } while (beside.rails[2]->told_to_peer == 0 && now_ns() < end);
    EXPECT_EQ(beside.rails[2]->told_to_peer, 2U);

    EXPECT_EQ(sender.send(1, 3), SendResult::in_flight);
    EXPECT_EQ(sender.send(1, 5), SendResult::in_flight);
    EXPECT_EQ(sender.send(2, 3), SendResult::in_flight);
    sender.rails[2]->told_by_peer = 2;
    EXPECT_EQ(sender.lending.line(1).refused, 0U);
    bool refused = false;
    while (!refused && now_ns() < end) {  // a credit holds for a moment only
        sender.acknowledge(2);
        refused = sender.send(1, 3) == SendResult::busy && sender.lending.line(1).refused != 0;
        EXPECT_EQ(sender.send(2, 3), SendResult::in_flight);
        sender.leave();
        sender.lending.enter(100 * kBytes);
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(sender.send(1, 5), SendResult::in_flight);  // the other host's rail is idle
    sender.rails[2]->told_by_peer = 0;
    sender.acknowledge(2);
    EXPECT_EQ(sender.send(1, 3), SendResult::in_flight);
}

/// What a borrower sends makes no rail busy for others: only owners have a right to be served first.
TEST(Credits, BorrowersDoNotCount) {
    Host host1;
    Rank receiver(host1, 2);
    Rank beside(host1, 3);
    receiver.lending.enter(0);
    beside.lending.enter(0);
    Arrival arrival;
    ASSERT_TRUE(receiver.links[1]->receive(5, arrival));  // rank 5 owns link 2
    ASSERT_TRUE(beside.links[2]->receive(1, arrival));
    beside.links[2]->release(arrival);
    EXPECT_EQ(beside.rails[2]->told_to_peer, 0U);
}

}  // namespace
}  // namespace flx
