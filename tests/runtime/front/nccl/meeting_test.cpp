/// Where ranks meet, as threads and as processes, and how they agree.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <thread>

#include "runtime/communicator/communicator.h"
#include "runtime/front/nccl/agreement.h"
#include "runtime/front/nccl/communicators.h"
#include "runtime/front/nccl/outputs.h"
#include "runtime/front/nccl/rendezvous.h"

namespace flx::nccl {
namespace {

constexpr int64_t kLong = 60'000'000'000;

void with_threads(int ranks, const std::function<void(int)> &body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread &thread : threads)
        thread.join();
}

std::string new_key() {
    std::random_device random;
    return key_of({"a test's", std::to_string(random()), std::to_string(random()), std::to_string(getpid())});
}

TEST(Agreement, AllComeWithTheSame) {
    auto board = std::make_unique<AgreementBoard>();
    with_threads(4, [&](int rank) {
        Agreement agreement(*board, rank, 4);
        Offer offer;
        offer.bytes = 8;
        for (int turn = 0; turn < 500; ++turn) {
            ASSERT_TRUE(agreement.offer(offer)) << turn;
            ASSERT_TRUE(agreement.decide(kLong)) << turn;
            for (int peer = 0; peer < 4; ++peer) {
                ++offer.sent[peer];
                ++offer.received[peer];
            }
        }
    });
}

TEST(Agreement, OtherLengthsOrMissedMessagesAreApart) {
    auto board = std::make_unique<AgreementBoard>();
    with_threads(3, [&](int rank) {
        Agreement agreement(*board, rank, 3);
        Offer offer;
        offer.bytes = rank == 1 ? 9 : 8;
        ASSERT_TRUE(agreement.offer(offer));
        EXPECT_FALSE(agreement.decide(kLong));
        offer.bytes = 8;
        ASSERT_TRUE(agreement.offer(offer));
        EXPECT_TRUE(agreement.decide(kLong));
        offer.sent[2] = rank == 0 ? 1 : 0;  // rank 2 has not received it
        ASSERT_TRUE(agreement.offer(offer));
        EXPECT_FALSE(agreement.decide(kLong));
    });
}

TEST(Agreement, NobodyWaitsForWhoDoesNotCome) {
    auto board = std::make_unique<AgreementBoard>();
    Agreement early(*board, 0, 2);
    for (int turn = 0; turn < 4; ++turn) {
        ASSERT_TRUE(early.offer({}));
        EXPECT_FALSE(early.decide(1000));
    }
    // After some of them nobody tries any more.
    EXPECT_FALSE(early.offer({}));
    Agreement late(*board, 1, 2);
    EXPECT_FALSE(late.offer({}));
}

TEST(Agreement, WhoComesLateHearsThatItIsDecided) {
    auto board = std::make_unique<AgreementBoard>();
    Agreement early(*board, 0, 2);
    Agreement late(*board, 1, 2);
    ASSERT_TRUE(early.offer({}));
    EXPECT_FALSE(early.decide(1000));
    EXPECT_FALSE(late.offer({}));
    // And comes in time for the next.
    ASSERT_TRUE(early.offer({}));
    ASSERT_TRUE(late.offer({}));
    EXPECT_TRUE(early.decide(1000));
    EXPECT_TRUE(late.decide(1000));
}

TEST(Communicators, WhatWasAbandonedWhileItWasPreparedIsNeverActive) {
    nccl::Communicator comm;
    comm.state = nccl::Communicator::State::preparing;
    comm.abandon(Reason::revoked);
    EXPECT_TRUE(comm.over());
    EXPECT_FALSE(comm.activate());
    EXPECT_FALSE(comm.active());
    nccl::Communicator other;
    EXPECT_TRUE(other.activate());
    EXPECT_TRUE(other.active());
    EXPECT_FALSE(other.serves()) << "it has no lane";
}

/// A lane whose outputs are open everywhere.
class OpenLane final : public Lane {
  public:
    void abort() override {}
    Status enqueue(const Operation & /*operation*/, cudaStream_t /*stream*/,
                   std::span<const cuda::Showing> /*shown*/) override {
        return {};
    }
    Status post(std::span<const cuda::Message> /*messages*/, cudaStream_t /*stream*/) override { return {}; }
    Status expect_shown() override { return {}; }
    void show(const Operation & /*operation*/, bool /*frozen*/, cuda::Showing &mine) override { mine.number = 0; }
    Status open_shown(std::span<const cuda::Showing> /*all*/) override { return {}; }
    void settle_shown(std::span<const cuda::Showing> /*all*/, bool /*opened*/) override {}
    void close_shown() override {}
    Status failure() override { return {}; }
    void close() override {}
};

/// Which of `calls` were met, on two ranks of which one comes late by so much. `works`: the other's GPU has work.
std::array<std::vector<bool>, 2> meet(int calls, std::chrono::milliseconds late, int64_t patience_ns,
                                      bool works = false) {
    auto board = std::make_unique<AgreementBoard>();
    std::array<std::vector<bool>, 2> met;
    with_threads(2, [&](int rank) {
        OpenLane lane;
        Outputs outputs(*board, rank, 2);
        for (int call = 0; call < calls; ++call) {
            if (rank == 1)
                std::this_thread::sleep_for(late);
            outputs.begin(lane, {}, Outputs::kLeast, false);
            outputs.compare(lane, patience_ns);
            if (works)
                outputs.lost_nothing();
            met[static_cast<size_t>(rank)].push_back(outputs.end(lane));
        }
    });
    return met;
}

TEST(Outputs, RanksThatCostEachOtherTimeMeetNoMoreForAWhile) {
    constexpr int64_t kPatience = 40'000'000;  // of which a quarter may be lost
    const auto met = meet(30, std::chrono::milliseconds(4), kPatience);
    EXPECT_EQ(met[0], met[1]);
    EXPECT_LT(std::count(met[0].begin(), met[0].end(), true), 30);
}

TEST(Outputs, RanksMeetWhoseGpusHaveWorkMeanwhile) {
    const auto met = meet(30, std::chrono::milliseconds(4), kLong, true);
    EXPECT_EQ(std::count(met[0].begin(), met[0].end(), true), 30);
    EXPECT_EQ(met[0], met[1]);
}

TEST(Outputs, RanksThatComeTogetherMeetAlways) {
    const auto met = meet(200, {}, kLong);
    EXPECT_EQ(std::count(met[0].begin(), met[0].end(), true), 200);
    EXPECT_EQ(met[0], met[1]);
}

/// Ranks skip, dawdle and give up at random; whatever comes of it, all that offered the same group hear the same, and
/// together only if all of them did.
TEST(Agreement, AtRandomAllHearTheSame) {
    constexpr int kRanks = 4;
    constexpr int kTurns = 400;
    for (unsigned seed = 0; seed < 8; ++seed) {
        auto board = std::make_unique<AgreementBoard>();
        std::array<std::array<std::atomic<int>, kTurns>, kRanks> heard{};
        with_threads(kRanks, [&](int rank) {
            std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
            Agreement agreement(*board, rank, kRanks);
            Offer offer;
            for (int turn = 0; turn < kTurns; ++turn) {
                offer.sent.fill(static_cast<uint64_t>(turn));
                offer.received.fill(static_cast<uint64_t>(turn));
                if (random() % 100 == 0)
                    continue;  // to this rank it does not look like one
                if (random() % 16 == 0)
                    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                // So that it goes on although ranks are apart often.
                board->given_up.store(0);
                const bool together = agreement.offer(offer) && agreement.decide(random() % 200'000);
                heard[static_cast<size_t>(rank)][static_cast<size_t>(turn)] = together ? 2 : 1;
            }
        });
        for (size_t turn = 0; turn < kTurns; ++turn) {
            int together = 0;
            for (int rank = 0; rank < kRanks; ++rank)
                together += heard[static_cast<size_t>(rank)][turn] == 2 ? 1 : 0;
            EXPECT_TRUE(together == 0 || together == kRanks) << "seed " << seed << ", group " << turn;
        }
    }
}

/// As ranks do it around NCCL's init, which the barrier of threads stands for.
std::shared_ptr<Rendezvous> come(const std::string &key, int rank, int ranks, std::atomic<int> &entered) {
    std::shared_ptr<Rendezvous> here;
    const Status status = Rendezvous::attend(key, here);
    EXPECT_TRUE(status.ok()) << status.sentence();
    ++entered;
    while (entered < ranks)
        std::this_thread::yield();
    EXPECT_TRUE(here->complete(ranks));
    EXPECT_TRUE(here->bind(rank, ranks).ok());
    return here;
}

TEST(Rendezvous, RanksExchangeWhatTheyHave) {
    const std::string key = new_key();
    std::atomic<int> entered{0};
    with_threads(4, [&](int rank) {
        const auto here = come(key, rank, 4, entered);
        const std::unique_ptr<Bootstrap> bootstrap = here->bootstrap();
        std::vector<std::string> texts;
        const std::string mine(static_cast<size_t>(rank) * 5000, static_cast<char>('a' + rank));
        ASSERT_TRUE(bootstrap->allgather_text(mine, texts).ok());
        for (int other = 0; other < 4; ++other)
            EXPECT_EQ(texts[static_cast<size_t>(other)].size(), static_cast<size_t>(other) * 5000);
        EXPECT_EQ(texts[3].back(), 'd');
        // Groups of some of them, several times, with traffic in all.
        for (int turn = 0; turn < 20; ++turn) {
            std::unique_ptr<Bootstrap> half, all;
            ASSERT_TRUE(bootstrap->split(rank == 3 ? -1 : rank % 2, -rank, half).ok());
            ASSERT_EQ(half == nullptr, rank == 3);
            ASSERT_TRUE(bootstrap->dup(all).ok());
            if (half) {
                std::vector<int> ranks(static_cast<size_t>(half->size()));
                ASSERT_TRUE(half->allgather(&rank, sizeof rank, ranks.data()).ok());
                EXPECT_EQ(ranks, rank == 1 ? std::vector<int>{1} : (std::vector<int>{2, 0}));
            }
            ASSERT_TRUE(all->barrier().ok());
        }
        EXPECT_TRUE(here->decide(true));
    });
}

TEST(Rendezvous, AllSayYesOrNoneIsAnsweredSo) {
    const std::string key = new_key();
    std::atomic<int> entered{0};
    with_threads(3, [&](int rank) { EXPECT_FALSE(come(key, rank, 3, entered)->decide(rank != 1)); });
}

TEST(Rendezvous, WhoIsNotHereIsNotWaitedFor) {
    std::shared_ptr<Rendezvous> here;
    ASSERT_TRUE(Rendezvous::attend(new_key(), here).ok());
    EXPECT_FALSE(here->complete(2));
}

TEST(Rendezvous, ARankThatLeavesEndsTheWait) {
    const std::string key = new_key();
    std::atomic<int> entered{0};
    with_threads(2, [&](int rank) {
        const auto here = come(key, rank, 2, entered);
        const std::unique_ptr<Bootstrap> bootstrap = here->bootstrap();
        if (rank == 1) {
            here->leave();
            return;
        }
        const Status status = bootstrap->barrier();
        EXPECT_EQ(status.code(), FLX_ERR_PEER);
        EXPECT_EQ(status.sentence(), "rank 1 has given up its communicator [FLX-E604]");
        EXPECT_FALSE(here->decide(true));
    });
}

TEST(Rendezvous, PatienceEnds) {
    const std::string key = new_key();
    std::atomic<int> entered{0};
    std::atomic<bool> over{false};
    with_threads(2, [&](int rank) {
        const auto here = come(key, rank, 2, entered);
        if (rank == 0) {
            here->set_patience(0.05);
            const Status status = here->bootstrap()->barrier();
            EXPECT_FALSE(status.ok());
            EXPECT_EQ(status.number(), number_of(Fault::peer_late));
            over = true;
        }
        while (!over)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
}

/// FLX's own communicator, between ranks that met here: what libflx_nccl.so makes, without the GPUs.
TEST(Rendezvous, FlxMakesACommunicatorOverIt) {
    const std::string key = new_key();
    constexpr int kRanks = 3;
    std::atomic<int> entered{0};
    with_threads(kRanks, [&](int rank) {
        const auto here = come(key, rank, kRanks, entered);
        const std::unique_ptr<Bootstrap> bootstrap = here->bootstrap();
        for (int turn = 0; turn < 2; ++turn) {
            std::unique_ptr<Bootstrap> own;
            ASSERT_TRUE(bootstrap->dup(own).ok());
            std::shared_ptr<Process> process;
            ASSERT_TRUE(Process::make(true, process).ok());
            Config config;
            for (const auto &[name, value] : {std::pair{"FLX_RAILS", "none"}, {"FLX_PROBE_MS", "0"}})
                ASSERT_TRUE(config.set(name, value, "test").ok());
            std::unique_ptr<flx::Communicator> comm;
            const Status made = flx::Communicator::make(process, std::move(own), config, nullptr, comm);
            ASSERT_TRUE(made.ok()) << made.sentence();
            std::vector<int32_t> in(1000, rank + 1), out(1000);
            Call call;
            call.operation.collective = algorithms::Collective::allreduce;
            call.operation.in = in.data();
            call.operation.out = out.data();
            call.operation.count = in.size();
            call.operation.dtype = FLX_INT32;
            call.operation.op = FLX_SUM;
            ASSERT_TRUE(comm->run(call).ok());
            EXPECT_EQ(out[999], 1 + 2 + 3);
            comm->close();
        }
    });
}

TEST(Rendezvous, ProcessesMeetAndADeathIsNoticed) {
    const std::string key = new_key();
    std::shared_ptr<Rendezvous> here;
    ASSERT_TRUE(Rendezvous::attend(key, here).ok());
    int attended[2];
    ASSERT_EQ(pipe(attended), 0);
    const pid_t child = fork();
    if (child == 0) {
        // Its own, as another program's; what it inherited stays the parent's.
        std::shared_ptr<Rendezvous> there;
        if (!Rendezvous::attend(key, there).ok() || write(attended[1], "", 1) != 1 || !there->bind(1, 2).ok() ||
            !there->bootstrap()->barrier().ok())
            _exit(1);
        pause();
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(attended[0], &byte, 1), 1);
    EXPECT_TRUE(here->complete(2));
    ASSERT_TRUE(here->bind(0, 2).ok());
    const std::unique_ptr<Bootstrap> bootstrap = here->bootstrap();
    const Status met = bootstrap->barrier();
    kill(child, SIGKILL);
    ASSERT_TRUE(met.ok()) << met.sentence();
    const Status status = bootstrap->barrier();
    EXPECT_EQ(status.code(), FLX_ERR_PEER);
    EXPECT_EQ(status.sentence(), "rank 1 died while the communicator was made; its own output says why [FLX-E601]");
    waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace flx::nccl
