/// A rail that is lent: the owner is served first, borrowers are capped, and nobody waits for an owner that stands
/// still.
#include "lending.h"

#include <gtest/gtest.h>

#include <deque>

#include "telemetry.h"

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
        flying_.push_back({header, peer});
        return SendResult::in_flight;
    }
    bool receive(int, Arrival &) override { return false; }
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
    [[nodiscard]] Pace pace(int) const override { return {2.0, 1000}; }
    [[nodiscard]] size_t good_chunk_to(int, size_t) const override { return 512; }
    void ended(int peer, uint64_t sequence) override { last_ended = {peer, sequence}; }
    [[nodiscard]] LinkState state(int) const override { return LinkState::lost; }
    [[nodiscard]] LinkCounters counters(int) const override { return {}; }
    [[nodiscard]] Status error(int) const override { return {}; }

    std::pair<int, uint64_t> last_ended{0, 0};

  private:
    std::string name_ = "rail1";
    size_t room_;
    std::deque<Completion> flying_, done_;
};

/// One rail, as its owner and as a borrower on the same host use it.
class Lending : public testing::Test {
  protected:
    static constexpr uint32_t kMost = 3;
    static constexpr uint32_t kBytes = 1000;

    struct End {
        Rail *rail;
        LentLink link;
        End(LedgerLine &line, bool own, size_t room) : End(new Rail(room), line, own) {}
        End(Rail *made, LedgerLine &line, bool own) : rail(made), link(std::unique_ptr<Link>(made), line, own, kMost) {}
        SendResult send() {
            ChunkHeader header{};
            header.bytes = kBytes;
            return link.send(1, header, nullptr);
        }
        void acknowledge() {
            rail->acknowledge();
            Completion completion;
            ASSERT_TRUE(link.completed(completion));
        }
    };
    void begin() {
        owner_.link.begin();
        borrower_.link.begin();
    }

    LedgerLine line_{};
    End owner_{line_, true, 2};
    End borrower_{line_, false, 100};
};

TEST_F(Lending, BusyOwnerIsNoticedAtTheNextChunk) {
    begin();
    EXPECT_EQ(borrower_.send(), SendResult::in_flight);
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    EXPECT_EQ(line_.backlog, kBytes);
    line_.moved_ns = now_ns() + 1'000'000'000'000;  // just now, however busy this machine is
    EXPECT_EQ(borrower_.send(), SendResult::busy);
    EXPECT_EQ(line_.refused, 1U);
    owner_.acknowledge();
    EXPECT_EQ(line_.backlog, 0U);
    EXPECT_EQ(borrower_.send(), SendResult::in_flight);
}

TEST_F(Lending, WhatTheOwnerCouldNotSendCountsToo) {
    begin();
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    EXPECT_EQ(owner_.send(), SendResult::busy);
    EXPECT_EQ(line_.backlog, 3 * kBytes);
    owner_.acknowledge();
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    EXPECT_EQ(line_.backlog, 2 * kBytes);
}

TEST_F(Lending, BorrowersAreCappedAndOwnersNot) {
    begin();
    for (uint32_t i = 0; i < kMost; ++i)
        EXPECT_EQ(borrower_.send(), SendResult::in_flight);
    EXPECT_EQ(line_.borrowed, kMost);
    EXPECT_EQ(borrower_.send(), SendResult::busy);
    borrower_.acknowledge();
    EXPECT_EQ(line_.borrowed, kMost - 1);
    EXPECT_EQ(borrower_.send(), SendResult::in_flight);
}

/// The receiver of an owner's chunk may need what the borrower holds back before it can take that chunk.
TEST_F(Lending, NobodyWaitsForAnOwnerThatStandsStill) {
    begin();
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    EXPECT_GT(line_.moved_ns, 0);
    line_.moved_ns = now_ns() - 60'000'000;
    EXPECT_EQ(borrower_.send(), SendResult::in_flight);
}

/// So that the executor moves a borrower's cells to other links while the owner sends, and back afterwards.
TEST_F(Lending, ARailThatItsOwnerUsesIsSlowForOthers) {
    begin();
    EXPECT_EQ(borrower_.link.pace(1).bytes_per_ns, 2);
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    line_.moved_ns = now_ns() + 1'000'000'000'000;
    EXPECT_EQ(owner_.link.pace(1).bytes_per_ns, 2);
    EXPECT_GT(borrower_.link.pace(1).bytes_per_ns, 0);
    EXPECT_LT(borrower_.link.pace(1).bytes_per_ns, 0.1);
    EXPECT_EQ(borrower_.link.pace(1).round_trip_ns, 1000);
    owner_.acknowledge();
    EXPECT_EQ(borrower_.link.pace(1).bytes_per_ns, 2);
}

TEST_F(Lending, WhatTheRailKnowsIsPassedOn) {
    EXPECT_EQ(borrower_.link.good_chunk_to(1, 4096), 512U);
    EXPECT_EQ(borrower_.link.state(1), LinkState::lost);
    borrower_.link.ended(3, 7);
    EXPECT_EQ(borrower_.rail->last_ended, std::make_pair(3, uint64_t{7}));
}

TEST_F(Lending, AnOwnerThatLeftIsIdle) {
    begin();
    EXPECT_EQ(owner_.send(), SendResult::in_flight);
    owner_.link.leave();
    EXPECT_EQ(line_.backlog, 0U);
    EXPECT_EQ(borrower_.send(), SendResult::in_flight);
    borrower_.link.leave();
    EXPECT_EQ(line_.borrowed, 0U);
}

TEST_F(Lending, RailsWithoutOwnerAreEveryones) {
    borrower_.link.begin();
    for (uint32_t i = 0; i < 3 * kMost; ++i)
        EXPECT_EQ(borrower_.send(), SendResult::in_flight);
}

TEST_F(Lending, TheLedgerIsLeftAsItWas) {
    {
        End other(line_, true, 5);
        other.link.begin();
        EXPECT_EQ(other.send(), SendResult::in_flight);
        EXPECT_EQ(line_.owners, 1U);
    }
    EXPECT_EQ(line_.owners, 0U);
    EXPECT_EQ(line_.backlog, 0U);
}

}  // namespace
}  // namespace flx
