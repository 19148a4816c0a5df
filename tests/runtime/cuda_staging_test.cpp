/// The share of GPU collectives that goes through host memory: slots and flags run by host threads, one for each lane
/// of each rank, and how ranks agree on shares without waiting for each other.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/plan.h"
#include "cuda/share_control.h"
#include "cuda/staging.h"
#include "partition.h"

namespace flx::cuda {
namespace {

/// What ranks share, and what they count, over several operations.
struct Host {
    explicit Host(size_t bytes) : pinned(bytes) {}
    std::vector<char> pinned;
    std::atomic<uint32_t> flag[2][kMaxRanks][kMaxRanks] = {};  ///< [signal][of][from]
    uint32_t told[2][kMaxRanks][kMaxRanks] = {};
    uint32_t heard[2][kMaxRanks][kMaxRanks] = {};
};

/// Does at once what a stream would do later.
class HostLane {
  public:
    HostLane(Host &host, int rank) : host_(host), rank_(rank) {}
    Status tell(Lane /*lane*/, Signal signal, uint32_t peers, uint32_t times) {
        const auto s = static_cast<size_t>(signal);
        for (int peer = 0; peer < kMaxRanks; ++peer)
            if ((peers >> peer & 1) != 0)
                host_.flag[s][peer][rank_].store(host_.told[s][rank_][peer] += times, std::memory_order_release);
        return {};
    }
    Status hear(Lane /*lane*/, Signal signal, uint32_t peers, uint32_t times) {
        const auto s = static_cast<size_t>(signal);
        for (int peer = 0; peer < kMaxRanks; ++peer) {
            if ((peers >> peer & 1) == 0)
                continue;
            const uint32_t wanted = host_.heard[s][rank_][peer] += times;
            while (static_cast<int32_t>(host_.flag[s][rank_][peer].load(std::memory_order_acquire) - wanted) < 0)
                std::this_thread::yield();
        }
        return {};
    }
    Status fill(uint64_t slot, const char *from, uint64_t bytes) {
        std::memcpy(&host_.pinned.at(slot + bytes) - bytes, from, bytes);
        return {};
    }
    Status drain(char *to, uint64_t slot, uint64_t bytes) {
        std::memcpy(to, &host_.pinned.at(slot + bytes) - bytes, bytes);
        return {};
    }

  private:
    Host &host_;
    int rank_;
};

char byte_of(int writer, int reader, uint64_t at, int turn) {
    return static_cast<char>(1 + writer * 31 + reader * 7 + turn * 13 + at % 101);
}

struct Case {
    Kind kind;
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
        const bool bcast = test.kind == Kind::bcast;
        const bool scatters = test.kind == Kind::reduce_scatter_block;
        const bool apart = test.kind == Kind::alltoall || scatters;
        const uint64_t bytes = bcast ? test.part : test.part * ranks - test.short_by;
        std::vector<std::vector<char>> in(ranks, std::vector<char>(bytes));
        std::vector<std::vector<char>> out(ranks, std::vector<char>(bytes, 0));
        std::vector<Staging> staged;
        for (int rank = 0; rank < ranks; ++rank) {
            Job job;
            job.kind = test.kind;
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
            std::vector<char> &source = test.kind == Kind::allreduce ? out[rank] : in[rank];
            const uint64_t home = test.kind == Kind::allreduce ? rank * test.part : 0;
            for (uint64_t at = 0; !apart && at < test.part && home + at < bytes; ++at)
                source[home + at] = byte_of(rank, 0, at, turn);
            const Piece piece = staged_piece(job, test.staged);
            EXPECT_LE(piece.offset + piece.bytes, test.part);
            staged.push_back(stage(job, piece.offset, piece.bytes, pinned));
            EXPECT_GE(staged.back().slots, 2U);
        }
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) {
            threads.emplace_back([&, rank] {
                HostLane lane(host, rank);
                for (uint32_t step = 0; step < staged[rank].steps(); ++step)
                    EXPECT_TRUE(write_steps(lane, staged[rank], step, step + 1).ok());
                EXPECT_TRUE(end_writing(lane, staged[rank]).ok());
            });
            threads.emplace_back([&, rank] {
                HostLane lane(host, rank);
                EXPECT_TRUE(read_steps(lane, staged[rank], 0, staged[rank].steps()).ok());
                EXPECT_TRUE(end_reading(lane, staged[rank]).ok());
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
                EXPECT_EQ(wrong, 0U) << "kind " << static_cast<int>(test.kind) << " rank " << rank << " of " << ranks
                                     << " writer " << writer << " turn " << turn;
            }
        }
    }
}

std::vector<Case> cases_for(int ranks) {
    std::vector<Case> cases;
    for (const uint64_t staged : {uint64_t{0}, uint64_t{4096}, uint64_t{50'000}, uint64_t{70'001}}) {
        for (const Kind kind : {Kind::allgather, Kind::alltoall, Kind::allreduce})
            cases.push_back({kind, 70'001, staged});
        cases.push_back({Kind::allreduce, 70'001, staged, 0, 60'000});
        if (ranks == 2)
            cases.push_back({Kind::reduce_scatter_block, 70'001, staged});
        for (int root = 0; root < ranks; ++root)
            cases.push_back({Kind::bcast, 70'001, staged, root});
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

TEST(CudaStaging, AnAllgatherStagesWhatComesLastAnAllreduceWhatIsReducedFirst) {
    Job job;
    job.kind = Kind::allgather;
    job.ranks = 2;
    job.part_bytes = 64 << 20;
    job.bytes = 2 * job.part_bytes;
    const Piece last = staged_piece(job, 5'000'000);
    EXPECT_EQ(last.offset + last.bytes, job.part_bytes);
    EXPECT_EQ(last.offset % 4096, 0U);
    EXPECT_NEAR(static_cast<double>(last.bytes), 5e6, 4096);
    job.kind = Kind::allreduce;
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
            double latency, int calls) {
    double share = 0;
    for (int call = 0; call < calls; ++call) {
        std::vector<ShareControl::Turn> turns;
        for (auto &rank : ranks)
            turns.push_back(rank->next(Kind::allgather, message));
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
            EXPECT_EQ(turns[rank].share, turns[0].share);
            const auto staged = static_cast<uint64_t>(turns[rank].share * static_cast<double>(message));
            const double slower = rank == 1 ? 1.05 : 1;
            if (turns[rank].sampled)
                ranks[rank]->tell(Kind::allgather, message, turns[rank], staged,
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
        EXPECT_EQ(ranks.back()->next(Kind::allgather, 1 << 28).share, 0);  // nothing is known
        ranks.back()->set_estimates(Kind::allgather, {LinkEstimate{10e3, 380, 380}, LinkEstimate{100e3, 40, 40}});
    }
    const uint64_t message = 512 << 20;
    const double first = ranks[0]->first_share(Kind::allgather, message);
    // Both end together: (1 - s)/380 = s/40 + 100 us.
    const double best = (static_cast<double>(message) / 380 - 90e3) /
                        (static_cast<double>(message) / 40 + static_cast<double>(message) / 380);
    EXPECT_NEAR(first, best, 0.006);
    EXPECT_LT(play(ranks, message, 380, 20, 100e3, 60), 0.75 * first);
    EXPECT_NEAR(play(ranks, message, 380, 40, 100e3, 200), first, 0.02);
    // Too small to be worth the latency.
    EXPECT_LT(ranks[0]->first_share(Kind::allgather, 16 << 20), 0.01);
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
