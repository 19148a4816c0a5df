/// Looks at ways through shared memory, with ranks and times that are made up.
#include "runtime/shm/ways/review.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <vector>

namespace flx::shm {
namespace {

using algorithms::Collective;

constexpr size_t kBytes = size_t{256} << 10;

/// Ranks that call alike; what a way takes is the test's business.
class Job {
  public:
    using Model = std::function<double(Way way, int rank)>;  ///< ns

    explicit Job(int ranks, bool fetches = true, size_t fused_bytes = 32768)
        : ways(ranks, Ways(fetches)), reviews_(ranks, Review(ranks, fetches, fused_bytes)) {}

    /// One call. What it took on the slowest rank, and the way that all took.
    double call(const Model &model, Way &way, Collective collective = Collective::allgather, size_t bytes = kBytes) {
        const int ranks = static_cast<int>(reviews_.size());
        double slowest = 0;
        bool round_over = false;
        looked = false;
        for (int rank = 0; rank < ranks; ++rank) {
            const std::optional<Review::Look> look = reviews_[rank].next(collective, bytes, ways[rank]);
            const Way taken = look ? look->way : ways[rank].at(collective, bytes);
            const double ns = model(taken, rank);
            const bool over = look && reviews_[rank].took(static_cast<int64_t>(ns));
            if (rank > 0) {
                EXPECT_EQ(taken, way);
                EXPECT_EQ(look.has_value(), looked);
                EXPECT_EQ(over, round_over);
            }
            way = taken;
            looked = look.has_value();
            if (rank == 0 && look) {  // a run begins where none is under way, and ends before another one begins
                unpaired += look->begins == inside_ ? 1 : 0;
                inside_ = !look->ends;
            }
            round_over = over;
            slowest = std::max(slowest, ns);
        }
        if (round_over)
            tell();
        return slowest;
    }

    std::vector<Ways> ways;
    int changes = 0;
    bool looked = false;
    int unpaired = 0;

  private:
    void tell() {
        std::vector<bool> changed;
        for (Review &receiver : reviews_) {
            for (size_t sender = 0; sender < reviews_.size(); ++sender)
                receiver.all()[sender] = reviews_[sender].times();
            changed.push_back(receiver.judge(ways[changed.size()]));
        }
        EXPECT_EQ(std::ranges::count(changed, changed[0]), static_cast<std::ptrdiff_t>(changed.size()));
        changes += changed[0] ? 1 : 0;
    }

    bool inside_ = false;
    std::vector<Review> reviews_;
};

double of(Way way, double fused, double streamed, double fetched) {
    return way == Way::fused ? fused : way == Way::streamed ? streamed : fetched;
}

TEST(Review, FollowsWhatBecomesFaster) {
    for (const int ranks : {2, 3, 8}) {
        Job job(ranks, true, 1024);  // too large to be fused
        bool far = false;
        const auto model = [&](Way way, int rank) { return of(way, 1e9, far ? 90'000 : 30'000, 50'000 + 100 * rank); };
        Way way{};
        double taken = 0;
        double best = 0;
        for (int phase = 0; phase < 6; ++phase, far = !far) {
            for (int call = 0; call < 4000; ++call) {
                taken += job.call(model, way);
                best += far ? 50'000 + 100 * (ranks - 1) : 30'000;
                if (call > 1500 && !job.looked) {
                    ASSERT_EQ(way, far ? Way::fetched : Way::streamed) << "call " << call << " of phase " << phase;
                }
            }
        }
        EXPECT_EQ(job.changes, 6);  // from the rule, which is to fetch, and with each phase
        EXPECT_LT(taken, 1.2 * best);
    }
}

TEST(Review, CostsLittleWhereNothingChanges) {
    for (const double other : {1.0, 1.4, 5.0, 50.0}) {
        Job job(2);
        const auto model = [&](Way way, int) { return of(way, 1e9, other * 40'000, 40'000); };
        Way way{};
        double taken = 0;
        int looked = 0;
        constexpr int kCalls = 100'000;
        for (int call = 0; call < kCalls; ++call) {
            taken += job.call(model, way);
            looked += job.looked ? 1 : 0;
        }
        EXPECT_EQ(job.changes, 0);
        EXPECT_EQ(job.ways[0].at(Collective::allgather, kBytes), Way::fetched);
        EXPECT_GT(looked, 10) << other;
        EXPECT_LT(taken, 1.011 * 40'000 * kCalls) << other;
        EXPECT_LT(looked, 0.06 * kCalls) << other;
    }
}

TEST(Review, NoiseChangesLittle) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> noise(0.8, 1.2);
    Job job(2);
    Way way{};
    for (int call = 0; call < 200'000; ++call)
        job.call([&](Way asked, int) { return of(asked, 1e9, 41'000, 40'000) * noise(random); }, way);
    EXPECT_LT(job.changes, 5);
}

/// Once in a while a call takes a hundred times as long, as where another program runs.
TEST(Review, BurstsDoNotMislead) {
    std::mt19937 random(11);
    Job job(4);
    Way way{};
    int slower = 0;
    constexpr int kCalls = 100'000;
    for (int call = 0; call < kCalls; ++call) {
        const bool burst = random() % 20 == 0;
        job.call([&](Way asked, int) { return of(asked, 1e9, 60'000, 40'000) * (burst ? 100 : 1); }, way);
        slower += way == Way::streamed ? 1 : 0;
    }
    EXPECT_LT(slower, kCalls / 50);
}

/// A way that was hopeless is tried again, seldom: it may have become good.
TEST(Review, TriesWhatWasHopelessNowAndThen) {
    Job job(2);
    double streamed = 1'000'000;
    const auto model = [&](Way way, int) { return of(way, 1e9, streamed, 40'000); };
    Way way{};
    for (int call = 0; call < 20'000; ++call)
        job.call(model, way);
    EXPECT_EQ(way, Way::fetched);
    streamed = 20'000;
    int calls = 0;
    while (job.changes == 0 && calls < 100'000) {
        job.call(model, way);
        ++calls;
    }
    EXPECT_EQ(job.changes, 1) << calls;
    EXPECT_EQ(job.ways[1].at(Collective::allgather, kBytes), Way::streamed);
}

TEST(Review, TakesNoWayThatDoesNotExist) {
    Job job(2, false, 8192);
    Way way{};
    for (int call = 0; call < 3000; ++call) {
        job.call([&](Way asked, int) { return of(asked, 1, 1000, 2000); }, way, Collective::allreduce,
                 call % 2 == 0 ? 9000 : 8000);
        if (call % 2 == 0 && job.looked) {
            EXPECT_EQ(way, Way::streamed);
        }
        EXPECT_NE(way, Way::fetched);
    }
}

TEST(Review, LeavesTheSmallestAlone) {
    for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
        for (const size_t bytes : {8, 4096}) {
            Job job(2);
            Way way{};
            for (int call = 0; call < 2000; ++call) {
                job.call([](Way, int) { return 1000.0; }, way, collective, bytes);
                ASSERT_FALSE(job.looked);
                ASSERT_EQ(way, job.ways[0].at(collective, bytes));
            }
        }
    }
}

/// What no trial came to is looked at soon: a program may not call for it a hundred times.
TEST(Review, LooksSoonAtWhatWasNotTried) {
    constexpr size_t kLarge = size_t{128} << 20;
    Job job(2);
    Way way{};
    for (int call = 0; call < 40; ++call)
        job.call([](Way asked, int) { return of(asked, 9e9, 9e7, 5e7); }, way, Collective::allgather, kLarge);
    EXPECT_EQ(way, Way::fetched);
    Job tried(2);
    for (Ways &ways : tried.ways)
        ways.set_time(Collective::allgather, Ways::kSizes.size() - 1, Way::streamed, 1);
    for (int call = 0; call < 40; ++call) {
        tried.call([](Way, int) { return 1e7; }, way, Collective::allgather, kLarge);
        ASSERT_FALSE(tried.looked);
    }
}

/// After a look that was dear the next one is far away; what becomes much worse meanwhile is noticed.
TEST(Review, NoticesSoonWhatBecomesMuchWorse) {
    for (const Collective collective : {Collective::allgather, Collective::bcast}) {
        Job job(2, true, 1024);
        double streamed = 20'000;
        const auto model = [&](Way way, int) { return of(way, 1e9, streamed, 300'000); };
        Way way{};
        for (int call = 0; call < 5000; ++call)
            job.call(model, way, collective);
        ASSERT_EQ(way, Way::streamed);
        streamed = 3'000'000;
        for (int call = 0; call < 300; ++call)
            job.call(model, way, collective);
        EXPECT_EQ(way, Way::fetched);
    }
}

/// Where data flows one way, calls overlap: a way in which the first of some takes long, and none after it, is the best
/// one. Its calls stand between barriers together.
TEST(Review, ExplainsWhatWasCalled) {
    Review review(2, true, 32768);
    Ways ways(true);
    EXPECT_TRUE(review.explain(ways).empty());
    const size_t index = *Ways::size_index(kBytes);
    ways.set(Collective::allgather, index, Way::streamed);
    ways.set_time(Collective::allgather, index, Way::streamed, 1);
    ways.set_time(Collective::allgather, index, Way::fetched, 2);
    (void)review.next(Collective::allgather, kBytes, ways);
    const std::vector<Decision> decisions = review.explain(ways);
    ASSERT_EQ(decisions.size(), 1U);
    EXPECT_EQ(decisions[0].about, "allgather");
    EXPECT_EQ(decisions[0].bytes, kBytes);
    EXPECT_EQ(decisions[0].decided, "streamed");
    EXPECT_EQ(decisions[0].from, "streamed 262.1 us, fetched 524.3 us, looks since the trial: 0");
}

TEST(Review, TimesCallsThatOverlapTogether) {
    for (const Collective collective : {Collective::bcast, Collective::reduce}) {
        Job job(2, true, 1024);
        Way way{};
        Way last{};
        const auto model = [&](Way asked, int) {
            const bool first = asked != last;
            last = asked;
            return asked == Way::streamed ? (first ? 90'000.0 : 20'000.0) : 50'000.0;
        };
        for (int call = 0; call < 3000; ++call)
            job.call([&](Way asked, int rank) { return rank == 0 ? model(asked, 0) : 0; }, way, collective);
        EXPECT_EQ(job.changes, 1);
        EXPECT_EQ(way, Way::streamed);
        EXPECT_EQ(job.unpaired, 0);
    }
}

/// A program may have only some calls of many megabytes: few of them go a way that takes three times as long.
TEST(Review, FewLongCallsGoABadWay) {
    constexpr size_t kLarge = size_t{32} << 20;
    for (const Collective collective : {Collective::bcast, Collective::allgather}) {
        Job job(2);
        int bad = 0;
        for (int call = 0; call < 100; ++call) {
            Way way{};
            job.call([](Way asked, int) { return of(asked, 9e9, 6e6, 19e6); }, way, collective, kLarge);
            bad += way == Way::streamed ? 0 : 1;
        }
        EXPECT_GT(job.ways[0].times(collective, *Ways::size_index(kLarge))[static_cast<size_t>(Way::fetched)], 0);
        EXPECT_LE(bad, 4 + 2) << "before the look, and in it";
        EXPECT_EQ(job.unpaired, 0);
    }
}

/// Each collective and size has looks of its own, whatever is called in between.
TEST(Review, CellsDoNotDisturbEachOther) {
    Job job(3);
    Way way{};
    std::mt19937 random(3);
    constexpr std::array kCollectives = {Collective::allreduce, Collective::alltoall, Collective::allgather};
    for (int call = 0; call < 60'000; ++call) {
        const Collective collective = kCollectives[random() % kCollectives.size()];
        const size_t bytes = Ways::kSizes[3 + random() % 4];
        // Streamed is best of allreduces, fetched of the others.
        const double streamed = collective == Collective::allreduce ? 0.5 : 2;
        job.call([&](Way asked, int) { return static_cast<double>(bytes) * of(asked, 9, streamed, 1); }, way,
                 collective, bytes);
    }
    for (size_t size = 3; size < 7; ++size)
        for (const Collective collective : kCollectives)
            EXPECT_EQ(job.ways[2].at(collective, Ways::kSizes[size]),
                      collective == Collective::allreduce ? Way::streamed : Way::fetched);
}

}  // namespace
}  // namespace flx::shm
