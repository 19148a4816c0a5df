/// The share of GPU collectives that goes through host memory: slots and flags run by host threads, one for each team
/// of each rank's lanes, and how ranks agree on shares without waiting for each other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/cuda/near/share_control.h"
#include "runtime/cuda/protocol/lane.h"
#include "runtime/cuda/protocol/plan.h"
#include "runtime/shares/partition.h"

namespace flx::cuda {
namespace {

constexpr uint32_t kTeams = 3;

/// What ranks share, and what they count, over several operations.
struct Host {
    explicit Host(size_t bytes) : pinned(bytes) {}
    std::vector<char> pinned;
    std::atomic<uint32_t> flag[2][kMaxRanks][kMaxRanks][kTeams] = {};  ///< [signal][of][from][team]
    uint32_t count[2][kMaxRanks][kTeams] = {};                         ///< [lane][of][team]
};

/// A team of one rank's lane, as a block of the kernel in lane.h.
class HostLane {
  public:
    HostLane(Host &host, const Staging &staging, Lane lane, uint32_t team)
        : host_(host),
          chunk_(staging.chunk),
          rank_(staging.job.rank),
          team_(team),
          count_(host.count[static_cast<size_t>(lane)][rank_][team]) {}
    void tell(Signal signal, uint32_t peers, uint32_t count) {
        for (int peer = 0; peer < kMaxRanks; ++peer)
            if ((peers >> peer & 1) != 0)
                host_.flag[static_cast<size_t>(signal)][peer][rank_][team_].store(count_ + count,
                                                                                  std::memory_order_release);
    }
    bool hear(Signal signal, uint32_t peers, uint32_t count) {
        for (int peer = 0; peer < kMaxRanks; ++peer) {
            const auto &flag = host_.flag[static_cast<size_t>(signal)][rank_][peer][team_];
            while ((peers >> peer & 1) != 0 &&
                   static_cast<int32_t>(flag.load(std::memory_order_acquire) - count_ - count) < 0)
                std::this_thread::yield();
        }
        return true;
    }
    void fill(uint64_t slot, const char *from, uint64_t bytes) {
        const Piece run = run_of(team_, kTeams, chunk_, bytes);
        std::memcpy(&host_.pinned.at(slot + bytes) - bytes + run.offset, from + run.offset, run.bytes);
    }
    void drain(char *to, uint64_t slot, uint64_t bytes) {
        const Piece run = run_of(team_, kTeams, chunk_, bytes);
        std::memcpy(to + run.offset, &host_.pinned.at(slot + bytes) - bytes + run.offset, run.bytes);
    }
    void close(uint32_t steps) { count_ += steps; }

  private:
    Host &host_;
    uint64_t chunk_;
    int rank_;
    uint32_t team_;
    uint32_t &count_;
};

char byte_of(int writer, int reader, uint64_t at, int turn) {
    return static_cast<char>(1 + writer * 31 + reader * 7 + turn * 13 + at % 101);
}

struct Case {
    Collective collective;
    uint64_t part;
    uint64_t staged;
    int root = 0;
    uint64_t short_by = 0;  ///< the last part
};

void run(int ranks, uint64_t pinned, const std::vector<Case> &cases) {
    Host host(ranks * pinned + 1);
    int turn = 0;
    for (const Case &test : cases) {
        ++turn;
        const bool bcast = test.collective == Collective::bcast;
        const bool scatters = test.collective == Collective::reduce_scatter_block;
        const bool apart = test.collective == Collective::alltoall || scatters;
        const uint64_t bytes = bcast ? test.part : test.part * ranks - test.short_by;
        std::vector<std::vector<char>> in(ranks, std::vector<char>(bytes));
        std::vector<std::vector<char>> out(ranks, std::vector<char>(bytes, 0));
        std::vector<Staging> staged;
        for (int rank = 0; rank < ranks; ++rank) {
            Job job;
            job.collective = test.collective;
            job.rank = rank;
            job.ranks = ranks;
            job.root = test.root;
            job.bytes = bytes;
            job.part_bytes = test.part;
            job.in = in[rank].data();
            job.out = out[rank].data();
            for (int reader = 0; reader < ranks; ++reader)
                for (uint64_t at = 0; apart && at < test.part; ++at)
                    in[rank][reader * test.part + at] = byte_of(rank, reader, at, turn);
            std::vector<char> &source = test.collective == Collective::allreduce ? out[rank] : in[rank];
            const uint64_t home = test.collective == Collective::allreduce ? rank * test.part : 0;
            for (uint64_t at = 0; !apart && at < test.part && home + at < bytes; ++at)
                source[home + at] = byte_of(rank, 0, at, turn);
            const Piece piece = staged_piece(job, test.staged);
            EXPECT_LE(piece.offset + piece.bytes, test.part);
            staged.push_back(stage(job, piece.offset, piece.bytes, pinned));
            EXPECT_GE(staged.back().slots, 2U);
        }
        std::vector<std::thread> threads;
        for (uint32_t thread = 0; thread < ranks * kTeams; ++thread) {
            const auto rank = static_cast<int>(thread / kTeams);
            const uint32_t team = thread % kTeams;
            const uint32_t steps = staged[rank].steps();
            threads.emplace_back([&, rank, team, steps] {
                HostLane lane(host, staged[rank], Lane::out, team);
                for (uint32_t step = 0; step < steps; ++step)
                    EXPECT_TRUE(write_steps(lane, staged[rank], step, step + 1));
                EXPECT_TRUE(end_writing(lane, staged[rank]));
                lane.close(steps);
            });
            threads.emplace_back([&, rank, team, steps] {
                HostLane lane(host, staged[rank], Lane::in, team);
                EXPECT_TRUE(read_steps(lane, staged[rank], 0, steps));
                lane.close(steps);
            });
        }
        for (std::thread &thread : threads)
            thread.join();
        for (int rank = 0; rank < ranks; ++rank) {
            for (int writer = 0; writer < ranks; ++writer) {
                if (writer == rank || (bcast && writer != test.root))
                    continue;
                uint64_t wrong = 0;
                const uint64_t home = bcast || scatters ? 0 : writer * test.part;
                for (uint64_t at = 0; at < test.part && home + at < bytes; ++at) {
                    const bool here = at >= staged[rank].from && at < staged[rank].from + staged[rank].bytes;
                    const char want = here ? byte_of(writer, apart ? rank : 0, at, turn) : 0;
                    wrong += out[rank][home + at] != want ? 1 : 0;
                }
                EXPECT_EQ(wrong, 0U) << "collective " << static_cast<int>(test.collective) << " rank " << rank << " of "
                                     << ranks << " writer " << writer << " turn " << turn;
            }
        }
    }
}

std::vector<Case> cases_for(int ranks) {
    std::vector<Case> cases;
    for (const uint64_t staged : {uint64_t{0}, uint64_t{4096}, uint64_t{50'000}, uint64_t{70'001}}) {
        for (const Collective collective : {Collective::allgather, Collective::alltoall, Collective::allreduce})
            cases.push_back({collective, 70'001, staged});
        cases.push_back({Collective::allreduce, 70'001, staged, 0, 60'000});
        if (ranks == 2)
            cases.push_back({Collective::reduce_scatter_block, 70'001, staged});
        for (int root = 0; root < ranks; ++root)
            cases.push_back({Collective::bcast, 70'001, staged, root});
    }
    return cases;
}

TEST(CudaStaging, EveryShareArrivesWhoeverWrites) {
    for (const int ranks : {2, 3, 4})
        run(ranks, 1 << 20, cases_for(ranks));
}

TEST(CudaStaging, SlotsAreUsedAgainWhenTheyWereRead) {
    for (const int ranks : {2, 4, 8})
        run(ranks, kLeastPinned, cases_for(ranks));
}

TEST(CudaStaging, TeamsCarryEveryByteOfAChunkOnce) {
    constexpr uint64_t kChunk = 2 << 20;
    for (const uint32_t teams : {1U, 2U, kLaneTeams}) {
        for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{513}, kChunk - 4096, kChunk}) {
            uint64_t at = 0;
            for (uint32_t team = 0; team < teams; ++team) {
                const Piece run = run_of(team, teams, kChunk, bytes);
                EXPECT_EQ(run.offset, at);
                EXPECT_TRUE(run.bytes == 0 || run.offset % 128 == 0);
                at += run.bytes;
            }
            EXPECT_EQ(at, bytes);
        }
    }
}

TEST(CudaStaging, AnAllgatherStagesWhatComesLastAnAllreduceWhatIsReducedFirst) {
    Job job;
    job.collective = Collective::allgather;
    job.ranks = 2;
    job.part_bytes = 64 << 20;
    job.bytes = 2 * job.part_bytes;
    const Piece last = staged_piece(job, 5'000'000);
    EXPECT_EQ(last.offset + last.bytes, job.part_bytes);
    EXPECT_EQ(last.offset % 4096, 0U);
    EXPECT_NEAR(static_cast<double>(last.bytes), 5e6, 4096);
    job.collective = Collective::allreduce;
    EXPECT_EQ(staged_piece(job, 5'000'000).offset, 0U);
    EXPECT_EQ(staged_piece(job, uint64_t{1} << 40).bytes, job.part_bytes);
    EXPECT_EQ(staged_piece(job, 0).bytes, 0U);
}

TEST(CudaShares, AllRanksCutACallAlikeWhileSharesChange) {
    constexpr int kRanks = 4;
    constexpr uint64_t kCalls = 4000;
    const auto board = std::make_unique<ShareBoard>();
    std::vector<std::vector<uint32_t>> seen(kRanks, std::vector<uint32_t>(kCalls));
    uint32_t proposals = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            for (uint64_t call = 0; call < kCalls; ++call) {
                seen[rank][call] = board->share_of(rank, call, 77);
                if (rank == 0 && call % 3 == 0 && board->propose(kRanks, 100 + proposals))
                    ++proposals;
                if (call % 64 == 0)
                    std::this_thread::yield();
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (int rank = 1; rank < kRanks; ++rank)
        EXPECT_EQ(seen[rank], seen[0]);
    EXPECT_EQ(seen[0][0], 77U);
    EXPECT_GT(proposals, 0U);
}

TEST(CudaShares, NothingIsOverwrittenThatARankBehindMayNeed) {
    const auto board = std::make_unique<ShareBoard>();
    std::vector<uint32_t> first;
    int taken = 0;
    for (uint64_t call = 0; call < 100; ++call) {
        first.push_back(board->share_of(0, call, 5));
        taken += board->propose(2, static_cast<uint32_t>(call)) ? 1 : 0;
    }
    EXPECT_GT(taken, 1);
    EXPECT_LT(taken, 16);
    for (uint64_t call = 0; call < 100; ++call)
        EXPECT_EQ(board->share_of(1, call, 5), first[call]) << call;
    EXPECT_TRUE(board->propose(2, 1));
}

/// Plays calls of `message` bytes whose links take what `nvlink` and `pcie` say (bytes/ns); the last call's share.
double play(std::vector<std::unique_ptr<ShareControl>> &ranks, uint64_t message, double nvlink, double pcie,
            double latency, int calls, Collective collective = Collective::allgather, bool in_place = false) {
    double share = 0;
    for (int call = 0; call < calls; ++call) {
        std::vector<ShareControl::Turn> turns;
        for (auto &rank : ranks)
            turns.push_back(rank->next(collective, message, in_place));
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
            EXPECT_EQ(turns[rank].share, turns[0].share);
            const auto staged = static_cast<uint64_t>(turns[rank].share * static_cast<double>(message));
            const double slower = rank == 1 ? 1.05 : 1;
            if (turns[rank].sampled)
                ranks[rank]->tell(message, turns[rank], staged,
                                  {static_cast<uint64_t>(slower * static_cast<double>(message - staged) / nvlink),
                                   staged == 0 ? 0 : static_cast<uint64_t>(latency + slower * staged / pcie)});
        }
        share = turns[0].share;
    }
    return share;
}

TEST(CudaShares, TheShareFollowsWhatCallsTake) {
    const auto table = std::make_unique<ShareTable>();
    std::vector<std::unique_ptr<ShareControl>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        ranks.push_back(std::make_unique<ShareControl>(*table, rank, 3, false));
        EXPECT_EQ(ranks.back()->next(Collective::allgather, 1 << 28, false).share, 0);  // nothing is known
        ranks.back()->set_estimates(Collective::allgather, {LinkEstimate{10e3, 380, 380}, LinkEstimate{100e3, 40, 40}});
    }
    const uint64_t message = 512 << 20;
    const double first = ranks[0]->first_share(Collective::allgather, message);
    // Both end together: (1 - s)/380 = s/40 + 100 us.
    const double best = (static_cast<double>(message) / 380 - 90e3) /
                        (static_cast<double>(message) / 40 + static_cast<double>(message) / 380);
    EXPECT_NEAR(first, best, 0.006);
    EXPECT_LT(play(ranks, message, 380, 20, 100e3, 60), 0.75 * first);
    EXPECT_NEAR(play(ranks, message, 380, 40, 100e3, 200), first, 0.02);
    // Too small to be worth the latency.
    EXPECT_LT(ranks[0]->first_share(Collective::allgather, 16 << 20), 0.01);
}

TEST(CudaShares, AllreducesInPlaceLearnApart) {
    const auto table = std::make_unique<ShareTable>();
    std::vector<std::unique_ptr<ShareControl>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
        ranks.push_back(std::make_unique<ShareControl>(*table, rank, 2, false));
        ranks.back()->set_estimates(Collective::allreduce, {LinkEstimate{10e3, 380, 380}, LinkEstimate{100e3, 40, 40}});
    }
    const uint64_t message = 512 << 20;
    const double first = ranks[0]->first_share(Collective::allreduce, message);
    double in_place = 0;
    double apart = 0;
    for (int turn = 0; turn < 40; ++turn) {
        in_place = play(ranks, message, 380, 10, 100e3, 2, Collective::allreduce, true);
        apart = play(ranks, message, 380, 40, 100e3, 2, Collective::allreduce, false);
    }
    EXPECT_GT(first, 0.04);
    EXPECT_LT(in_place, 0.6 * first);
    EXPECT_NEAR(apart, first, 0.02);
    const std::vector<Decision> told = ranks[0]->explain();
    ASSERT_EQ(told.size(), 2U);
    EXPECT_EQ(told[0].about, "allreduce on GPUs");
    EXPECT_EQ(told[1].about, "allreduce on GPUs in place");
    EXPECT_EQ(told[1].decided, fmt::format("nvlink {:.3f}, pcie {:.3f}", 1 - in_place, in_place));
    EXPECT_NE(told[1].from.find(fmt::format("{:.3f} by what was measured", first)), std::string::npos) << told[1].from;
    EXPECT_NE(told[1].from.find(" of 80 calls were timed"), std::string::npos) << told[1].from;
    EXPECT_EQ(ranks[1]->explain()[1].from.find("timed"), std::string::npos);
}

TEST(CudaShares, LinksBetweenGpusAreToldFromOthersInAPartition) {
    const std::array<std::string, 2> names{"nvlink", "pcie"};
    const SplitPartition split = split_partition("nvlink:.9, shm:.5,pcie:.1,eth0:.5", names);
    EXPECT_EQ(split.named, "nvlink:.9,pcie:.1");
    EXPECT_EQ(split.rest, " shm:.5,eth0:.5");
    EXPECT_EQ(split_partition("shm:1", names).named, "");
    EXPECT_EQ(split_partition("", names).rest, "");
    EXPECT_EQ(split_partition("nonsense", names).rest, "nonsense");
}

}  // namespace
}  // namespace flx::cuda
