/// The flag protocol of collectives between GPUs and the plans for it, run by host threads: one for each team of each
/// rank, with the very code of the kernels.
#include "runtime/cuda/protocol/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/cuda/protocol/bulk.h"
#include "runtime/cuda/protocol/chain.h"
#include "runtime/cuda/protocol/mailbox.h"
#include "runtime/cuda/protocol/plan.h"
#include "tests/runtime/cuda/protocol/exchange_windows.h"

namespace flx::cuda {
namespace {

using testing::ExchangeWindows;
using testing::job_for;

/// As the blocks of a kernel, in ordinary memory. Adds bytes.
class HostTeam {
  public:
    HostTeam(const Job &job, const std::atomic<bool> &abort) : job_(job), abort_(abort) {}

    bool alive() const { return job_.dead == nullptr || *job_.dead == 0; }
    uint32_t count(uint32_t block) const { return *number(job_.windows[job_.rank], WindowLayout::count(block)); }
    void set_count(uint32_t block, uint32_t value) {
        *number(job_.windows[job_.rank], WindowLayout::count(block)) = value;
    }
    void signal(Stage stage, uint32_t block, uint32_t count) {
        for (int peer = 0; peer < job_.ranks; ++peer)
            if (peer != job_.rank)
                flag(peer, stage, block, job_.rank).store(count, std::memory_order_release);
    }
    bool wait(Stage stage, uint32_t block, uint32_t count) {
        for (int peer = 0; peer < job_.ranks; ++peer) {
            while (peer != job_.rank &&
                   static_cast<int32_t>(flag(job_.rank, stage, block, peer).load(std::memory_order_acquire) - count) <
                       0) {
                if (gives_up())
                    return false;
                std::this_thread::yield();
            }
        }
        return true;
    }
    void signal_to(int peer, Stage stage, uint32_t block, uint32_t count) {
        flag(peer, stage, block, job_.rank).store(count, std::memory_order_release);
    }
    bool wait_for(int peer, Stage stage, uint32_t block, uint32_t count) {
        while (static_cast<int32_t>(flag(job_.rank, stage, block, peer).load(std::memory_order_acquire) - count) < 0) {
            if (gives_up())
                return false;
            std::this_thread::yield();
        }
        return true;
    }
    void copy(const char *from, const Targets &to, uint64_t bytes) {
        each(to, [&](char *target) { std::memcpy(target, from, bytes); });
    }
    void reduce(const Sources &from, const Targets &to, uint64_t bytes, int divisor) {
        std::vector<char> sum(bytes);
        for (int rank = 0; rank < from.ranks; ++rank) {
            const char *source = rank == from.rank ? from.own : from.slots + rank * from.stride;
            // Not commutative, so that the order shows.
            for (uint64_t i = 0; i < bytes; ++i)
                sum[i] = static_cast<char>(3 * sum[i] + source[i]);
        }
        for (uint64_t i = 0; i < bytes; ++i)
            sum[i] = static_cast<char>(sum[i] + divisor);
        copy(sum.data(), to, bytes);
    }

  private:
    bool gives_up() {
        if (!abort_.load(std::memory_order_relaxed))
            return false;
        if (job_.dead != nullptr)
            *job_.dead = 1;
        return true;
    }
    static uint32_t *number(char *window, uint64_t offset) { return reinterpret_cast<uint32_t *>(window + offset); }
    std::atomic_ref<uint32_t> flag(int rank, Stage stage, uint32_t block, int source) {
        return std::atomic_ref<uint32_t>(*number(job_.windows[rank], WindowLayout::flag(stage, block, source)));
    }
    template <typename Store>
    void each(const Targets &to, const Store &store) {
        if (to.local != nullptr)
            store(to.local);
        for (int peer = 0; peer < job_.ranks; ++peer)
            if ((to.peers >> peer & 1) != 0)
                store(to.bases[peer] + to.offset);
    }

    const Job &job_;
    const std::atomic<bool> &abort_;
};

/// As the kernels of collectives that add, and of those that do not.
void run_exchange_of(HostTeam &team, const Job &job, uint32_t block) {
    if (adds(job.collective))
        run_exchange<Kind::adds>(team, job, block);
    else
        run_exchange<Kind::moves>(team, job, block);
}

/// As the warps of bulk.cuh: one sends, another one takes. What is taken out of a slot is not added before this rank
/// has read what it sends from there, as that may be where the result goes.
void run_bulk(HostTeam &team, const Job &job, uint32_t block) {
    const uint32_t before = team.count(block);
    const BulkTeam bulk(job, block, before);
    std::atomic<uint32_t> read{0};
    std::thread sender([&] {
        for (uint32_t step = 0; step < bulk.sends(); ++step) {
            const Piece piece = bulk.piece(step);
            const std::vector<char> tile(bulk.sent() + piece.offset, bulk.sent() + piece.offset + piece.bytes);
            read.store(step + 1, std::memory_order_release);
            ASSERT_TRUE(team.wait_for(bulk.peer(), Stage::gathered, block, bulk.credit(step)));
            team.copy(tile.data(), Targets{nullptr, job.windows, bulk.slot(step), 1U << bulk.peer()}, piece.bytes);
            team.signal_to(bulk.peer(), Stage::scattered, block, bulk.done(step));
        }
        if (bulk.sends() == 0)
            team.signal_to(bulk.peer(), Stage::scattered, block, bulk.end());
    });
    for (uint32_t step = 0; step < bulk.takes(); ++step) {
        const Piece piece = bulk.piece(step);
        ASSERT_TRUE(team.wait_for(bulk.peer(), Stage::scattered, block, bulk.number(step)));
        const char *slot = job.windows[job.rank] + bulk.slot(step);
        const std::vector<char> tile(slot, slot + piece.bytes);
        team.signal_to(bulk.peer(), Stage::gathered, block, bulk.done(step));
        while (bulk.sends() != 0 && read.load(std::memory_order_acquire) <= step)
            std::this_thread::yield();
        team.reduce(Sources{bulk.own() + piece.offset, tile.data(), 0, job.rank, job.ranks},
                    Targets{bulk.out() + piece.offset, nullptr, 0, 0}, piece.bytes, job.divisor);
    }
    if (bulk.takes() == 0)
        team.signal_to(bulk.peer(), Stage::gathered, block, bulk.end());
    ASSERT_TRUE(team.wait_for(bulk.peer(), Stage::scattered, block, bulk.end()));
    sender.join();
    team.set_count(block, bulk.end());
}

struct Case {
    Collective collective;
    uint64_t bytes;  ///< of the whole vector
    bool direct = false;
    bool in_place = false;
    int root = 0;
    bool bulk = false;
};

uint64_t input_bytes(const Case &test, int ranks) {
    return test.collective == Collective::allgather ? test.bytes / ranks : test.bytes;
}

std::vector<char> input_of(const Case &test, int rank, int ranks, int turn) {
    std::vector<char> input(input_bytes(test, ranks));
    for (size_t i = 0; i < input.size(); ++i)
        input[i] = static_cast<char>(i * 31 + i / 251 * 7 + static_cast<size_t>(rank) * 91 + turn * 13);
    return input;
}

std::vector<char> expected(const Case &test, int rank, int ranks, int turn) {
    const uint64_t block = test.bytes / ranks;
    std::vector<std::vector<char>> inputs;
    for (int source = 0; source < ranks; ++source)
        inputs.push_back(input_of(test, source, ranks, turn));
    std::vector<char> result;
    if (test.collective == Collective::bcast)
        return inputs[test.root];
    if (!reduces(test.collective)) {
        for (int source = 0; source < ranks; ++source) {
            const auto from = inputs[source].begin() + (test.collective == Collective::alltoall ? rank * block : 0);
            result.insert(result.end(), from, from + block);
        }
        return result;
    }
    result.resize(test.bytes);
    for (uint64_t i = 0; i < test.bytes; ++i) {
        for (int source = 0; source < ranks; ++source)
            result[i] = static_cast<char>(3 * result[i] + inputs[source][i]);
        result[i] = static_cast<char>(result[i] + 1);
    }
    if (test.collective == Collective::reduce_scatter_block)
        return {result.begin() + rank * block, result.begin() + (rank + 1) * block};
    return result;
}

/// Runs operations one after the other, every rank at its own pace, as streams do.
void run(ExchangeWindows &memory, const std::vector<Case> &cases, Limits limits, uint64_t tile) {
    const int ranks = static_cast<int>(memory.windows.size());
    std::atomic<bool> abort{false};
    std::vector<std::vector<std::vector<char>>> outputs(cases.size());
    for (size_t c = 0; c < cases.size(); ++c)
        for (int rank = 0; rank < ranks; ++rank)
            outputs[c].emplace_back(cases[c].bytes + 1, 'x');
    std::vector<std::thread> threads;
    std::vector<std::vector<std::vector<char>>> inputs(cases.size());
    for (size_t c = 0; c < cases.size(); ++c)
        for (int rank = 0; rank < ranks; ++rank)
            inputs[c].push_back(input_of(cases[c], rank, ranks, static_cast<int>(c)));
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            for (size_t c = 0; c < cases.size(); ++c) {
                const Case &test = cases[c];
                Limits here = limits;
                here.bulk = test.bulk;
                Plan plan = plan_of(test.collective, test.bytes, ranks, {test.direct, true}, memory.layout, here);
                ASSERT_TRUE(plan.way == Way::bulk ||
                            (!test.bulk && (plan.way == Way::tiles || plan.way == Way::chain)));
                if (tile != 0 && !test.bulk)
                    plan.tile_bytes = std::min(tile, plan.tile_bytes);
                Job job = job_for(test.collective, test.bytes, test.root, rank, plan, memory);
                job.direct = test.direct;
                job.out = outputs[c][rank].data();
                job.in = inputs[c][rank].data();
                if (test.in_place || (test.collective == Collective::bcast && rank == test.root)) {
                    char *place = job.out + (test.collective == Collective::allgather ? rank * plan.part_bytes : 0);
                    std::memcpy(place, job.in, inputs[c][rank].size());
                    job.in = place;
                }
                for (int peer = 0; peer < ranks; ++peer)
                    job.outputs[peer] = outputs[c][peer].data();
                job.blocks = std::min(plan.blocks, job.tiles());
                std::vector<std::thread> teams;
                for (uint32_t block = 0; block < job.blocks; ++block)
                    teams.emplace_back([&job, &abort, &plan, block] {
                        HostTeam team(job, abort);
                        if (plan.way == Way::bulk)
                            run_bulk(team, job, block);
                        else if (plan.way == Way::chain)
                            run_chain(team, job, block);
                        else
                            run_exchange_of(team, job, block);
                    });
                for (std::thread &team : teams)
                    team.join();
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (size_t c = 0; c < cases.size(); ++c) {
        for (int rank = 0; rank < ranks; ++rank) {
            if (cases[c].collective == Collective::reduce && rank != cases[c].root)
                continue;
            const std::vector<char> want = expected(cases[c], rank, ranks, static_cast<int>(c));
            const std::vector<char> &out = outputs[c][rank];
            EXPECT_TRUE(std::equal(want.begin(), want.end(), out.begin()))
                << name_of(cases[c].collective) << " of " << cases[c].bytes << " on rank " << rank << " of " << ranks;
            EXPECT_EQ(out[cases[c].bytes], 'x') << name_of(cases[c].collective) << " wrote past its output";
        }
    }
}

void run(int ranks, const std::vector<Case> &cases, Limits limits, uint64_t tile, uint64_t budget = 16 << 20) {
    ExchangeWindows memory(ranks, budget);
    run(memory, cases, limits, tile);
}

std::vector<Case> cases_for(int ranks) {
    std::vector<Case> cases;
    for (const bool direct : {false, true}) {
        for (const uint64_t block : {uint64_t{1}, uint64_t{999}, uint64_t{40'000}}) {
            const uint64_t bytes = block * ranks;
            const int root = static_cast<int>(block) % ranks;
            cases.push_back({Collective::allreduce, bytes + 5, direct, block == 999});
            cases.push_back({Collective::reduce_scatter_block, bytes, false, block != 999});
            cases.push_back({Collective::allgather, bytes, direct, block == 999});
            cases.push_back({Collective::bcast, bytes + 3, direct, false, root});
            cases.push_back({Collective::reduce, bytes + 1, false, false, root});
            cases.push_back({Collective::alltoall, bytes, direct, !direct});
        }
    }
    return cases;
}

TEST(CudaExchange, EveryCollectiveIsExactInRankOrder) {
    for (const int ranks : {2, 3, 4}) {
        const auto cases = cases_for(ranks);
        run(ranks, cases, {0, UINT64_MAX, 3}, 0);
    }
}

TEST(CudaExchange, ManyTilesReuseTheSlots) {
    run(3, cases_for(3), {0, UINT64_MAX, 2}, 4096);
    run(2, cases_for(2), {0, UINT64_MAX, 1}, 2048);
}

TEST(CudaExchange, ALargeBroadcastGoesFromRankToRankBetweenOthers) {
    const uint64_t large = (1 << 20) + 12'345;
    for (const int ranks : {3, 4}) {
        std::vector<Case> cases;
        for (int root = 0; root < ranks; ++root) {
            cases.push_back({Collective::bcast, large, true, false, root});
            cases.push_back({Collective::allreduce, 70'001, root % 2 == 1});
            cases.push_back({Collective::allgather, uint64_t{5'000} * ranks, root % 2 == 0});
        }
        run(ranks, cases, {0, UINT64_MAX, 2, large}, 64 << 10);
    }
}

/// They count in the same words and use the same slots as tiles do.
TEST(CudaExchange, ReductionsOfTwoByBulkCopiesAreExactBetweenOthers) {
    std::vector<Case> cases;
    for (const uint64_t bytes : {uint64_t{6}, uint64_t{2} * kBulkTile, uint64_t{700'002}}) {
        for (const bool bulk : {true, true, false, true, false}) {
            const bool in_place = cases.size() % 2 == 0;
            cases.push_back({Collective::allreduce, bytes, false, in_place, 0, bulk});
            cases.push_back({Collective::reduce_scatter_block, bytes, false, !in_place, 0, bulk});
            for (const int root : {0, 1})
                cases.push_back({Collective::reduce, bytes, false, in_place, root, bulk});
            cases.push_back({Collective::allgather, bytes, in_place});
        }
    }
    for (const uint32_t blocks : {1U, 3U}) {
        run(2, cases, {0, UINT64_MAX, blocks}, 0, 64 << 20);
        std::reverse(cases.begin(), cases.end());
        run(2, cases, {0, UINT64_MAX, blocks}, 2048, 32 << 20);
    }
}

TEST(CudaExchange, SmallWindowsDoTheSame) {
    for (const int ranks : {2, 3, 8}) {
        ExchangeWindows memory(ranks, small_window(512 << 10, ranks));
        std::vector<Case> cases;
        for (const uint64_t bytes : {uint64_t{48}, uint64_t{4800}, uint64_t{96000}, uint64_t{480000}})
            for (const Collective collective : kServed) {
                const bool in_place = cases.size() % 2 == 0 && collective != Collective::alltoall;
                cases.push_back({collective, bytes, false, in_place});
            }
        run(memory, cases, {0, UINT64_MAX, 32}, 0);
        std::reverse(cases.begin(), cases.end());
        run(memory, cases, {0, UINT64_MAX, 3}, 0);
    }
}

TEST(CudaExchange, SlotsOfBulkCopiesAreTheTeamsOwn) {
    for (const uint64_t budget : {uint64_t{32} << 20, uint64_t{64} << 20, uint64_t{256} << 20}) {
        Job job;
        job.collective = Collective::reduce;
        job.ranks = 2;
        job.layout = window_for(budget, 2);
        job.bytes = job.part_bytes = uint64_t{1} << 30;
        job.tile_bytes = kBulkTile;
        job.blocks = kMaxBlocks;
        const uint32_t slots = bulk_slots(job.layout);
        ASSERT_GE(slots, kLeastBulkSlots);
        for (const uint32_t block : {0U, 77U, kMaxBlocks - 1}) {
            std::vector<uint64_t> places;
            const BulkTeam bulk(job, block, 0xfffffff8);  // numbers wrap around meanwhile
            for (uint32_t step = 0; step < slots; ++step) {
                places.push_back(bulk.slot(step));
                EXPECT_EQ(bulk.slot(step), bulk.slot(step + slots));
                bool fits = false;
                for (const uint32_t place : {0U, 1U}) {
                    const uint64_t from = job.layout.slot(Stage::scattered, place, block, 0);
                    fits = fits || (places.back() >= from &&
                                    places.back() + kBulkSlot <= from + job.layout.ranks * job.layout.slot_bytes);
                }
                EXPECT_TRUE(fits) << "slot " << step << " of " << slots;
            }
            std::sort(places.begin(), places.end());
            for (uint32_t i = 1; i < slots; ++i)
                EXPECT_GE(places[i], places[i - 1] + kBulkSlot);
        }
    }
}

TEST(CudaExchange, AWaitEndsWhenItIsToldTo) {
    ExchangeWindows memory(2);
    std::atomic<bool> abort{false};
    std::vector<char> in(1000), out(1000);
    Job job;
    job.ranks = 2;
    job.bytes = 1000;
    job.part_bytes = 512;
    job.tile_bytes = 512;
    job.layout = memory.layout;
    job.in = in.data();
    job.out = out.data();
    job.windows[0] = memory.window(0);
    job.windows[1] = memory.window(1);  // whose rank never comes
    std::thread alone([&] {
        HostTeam team(job, abort);
        run_exchange_of(team, job, 0);
    });
    abort = true;
    alone.join();
    HostTeam team(job, abort);
    EXPECT_EQ(team.count(0), 0U) << "an operation that was given up does not count";
}

/// It would put its own data where the peer takes them for those of the operation that was given up.
TEST(CudaExchange, WhatIsQueuedBehindAnOperationThatWasGivenUpTellsPeersNothing) {
    ExchangeWindows memory(2);
    const Case test{Collective::reduce_scatter_block, 512};
    const Plan plan = plan_of(test.collective, test.bytes, 2, {}, memory.layout, {1 << 20, 0, 1});
    std::array<uint32_t, 2> dead{};
    std::vector<char> out(test.bytes);
    const auto run = [&](int rank, int turn, bool gives_up) {
        const std::vector<char> in = input_of(test, rank, 2, turn);
        const std::atomic<bool> abort{gives_up};
        Job job = job_for(test.collective, test.bytes, test.root, rank, plan, memory);
        job.tile_bytes = memory.layout.slot_bytes;
        job.in = in.data();
        job.out = out.data();
        job.dead = &dead[rank];
        HostTeam team(job, abort);
        run_exchange_of(team, job, 0);
    };
    run(0, 1, true);  // rank 1 does not come, and rank 0 is told not to wait for it
    run(0, 2, true);
    run(1, 1, false);
    const std::vector<char> want = expected(test, 1, 2, 1);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), out.begin()));
}

TEST(CudaPlan, TilesCoverEveryPartOnce) {
    for (const int ranks : {2, 3, 4, 8}) {
        const WindowLayout layout = window_for(256 << 20, ranks);
        EXPECT_LE(layout.bytes(), uint64_t{256} << 20);
        for (const Collective which : kServed) {
            for (uint64_t bytes : {uint64_t{1}, uint64_t{100'000}, uint64_t{77'777'777}, uint64_t{5} << 30}) {
                bytes = has_blocks(which) ? bytes * ranks : bytes;
                const Plan plan = plan_of(which, bytes, ranks, {}, layout, {0, UINT64_MAX, 32});
                Job job;
                job.collective = which;
                job.ranks = ranks;
                job.bytes = bytes;
                job.part_bytes = plan.part_bytes;
                job.tile_bytes = plan.tile_bytes;
                job.blocks = plan.blocks;
                EXPECT_LE(plan.tile_bytes, layout.slot_bytes);
                EXPECT_EQ(plan.tile_bytes % kGrain, 0U);
                uint64_t covered = 0;
                for (int part = 0; part < job.owners(); ++part)
                    covered += job.part_length(part);
                EXPECT_EQ(covered, bytes) << name_of(which);
                uint64_t tiles = 0;
                for (uint32_t block = 0; block < job.blocks; ++block) {
                    EXPECT_GE(job.steps(block), 1U) << "a team without work";
                    tiles += job.steps(block);
                }
                EXPECT_EQ(tiles, job.tiles());
            }
        }
    }
}

TEST(CudaPlan, WindowsTakeWhatIsOfUse) {
    constexpr uint64_t kMiB = 1 << 20;
    const Limits limits{1 << 20, UINT64_MAX, 128};
    for (const int ranks : {2, 4}) {
        const WindowLayout layout = window_for(256 * kMiB, ranks);
        EXPECT_LE(layout.bytes(), (ranks * 34 + (ranks == 2 ? 18 : 24)) * kMiB + kMiB);
        // More room would change no plan.
        WindowLayout larger = layout;
        larger.slot_bytes *= 16;
        for (const Collective collective :
             {Collective::allreduce, Collective::reduce_scatter_block, Collective::reduce})
            for (uint64_t bytes = kMiB; bytes <= 1024 * kMiB; bytes *= 2)
                EXPECT_EQ(plan_of(collective, bytes, ranks, {}, layout, limits).tile_bytes,
                          plan_of(collective, bytes, ranks, {}, larger, limits).tile_bytes);
    }
    EXPECT_EQ(bulk_slots(window_for(256 * kMiB, 2)), kMostBulkSlots);
    EXPECT_GT(window_for(224 * kMiB, 2, true).bytes(), 223 * kMiB) << "rounds of copy engines";
    EXPECT_LE(window_for(32 * kMiB, 8).bytes(), 32 * kMiB) << "what there is may be less";
}

TEST(CudaPlan, WaysFollowSizeAndRegistration) {
    const WindowLayout layout = window_for(256 << 20, 4);
    const Limits limits{1 << 20, 0, 128};
    const auto plan = [&](Collective collective, uint64_t bytes, Outputs outputs) {
        return plan_of(collective, bytes, 4, outputs, layout, limits);
    };
    const Outputs registered{true, false, true};
    EXPECT_EQ(plan(Collective::allreduce, 87'381, registered).way, Way::packets);
    EXPECT_EQ(plan(Collective::allreduce, 87'382, registered).way, Way::lines)
        << "three messages are more than 256 KiB";
    EXPECT_EQ(plan(Collective::allgather, 349'524, registered).way, Way::packets) << "a message is one rank's block";
    EXPECT_EQ(plan(Collective::allreduce, 524'288, registered).way, Way::lines);
    EXPECT_EQ(plan(Collective::allreduce, 524'289, registered).way, Way::tiles)
        << "three messages are more than 1.5 MiB";
    EXPECT_EQ(plan(Collective::reduce_scatter_block, 2 << 20, registered).way, Way::lines);
    EXPECT_EQ(plan(Collective::bcast, 8 << 20, registered).way, Way::relay);
    EXPECT_EQ(plan(Collective::bcast, 1 << 30, registered).way, Way::chain);
    EXPECT_EQ(plan(Collective::bcast, 1 << 30, {}).way, Way::relay) << "ranks cannot write into each other's outputs";
    EXPECT_EQ(plan(Collective::allgather, 1 << 30, registered).way, Way::engines);
    EXPECT_EQ(plan(Collective::allgather, 1 << 30, {}).way, Way::tiles) << "peers may not write into this output";
    const Outputs odd{true, false, false};
    EXPECT_EQ(plan(Collective::allgather, 1 << 30, odd).way, Way::tiles) << "an allocation that is not whole pages";
    EXPECT_EQ(plan(Collective::reduce, 1 << 30, registered).way, Way::tiles);
    EXPECT_EQ(plan(Collective::allreduce, 1 << 30, registered).way, Way::engines);
    EXPECT_EQ(plan(Collective::allreduce, (1 << 30) - 4, registered).way, Way::tiles) << "parts are not equally long";
    const Outputs in_place{true, true, true};
    EXPECT_EQ(plan(Collective::allreduce, 1 << 30, in_place).way, Way::engines) << "what comes in lands in the window";
    EXPECT_EQ(plan(Collective::reduce_scatter_block, 1 << 30, registered).way, Way::engines);
    EXPECT_EQ(plan(Collective::reduce_scatter_block, 1 << 30, {}).way, Way::tiles);
    const auto scatter_of_two = [&](Outputs outputs) {
        return plan_of(Collective::reduce_scatter_block, 1 << 30, 2, outputs, window_for(256 << 20, 2), limits).way;
    };
    EXPECT_EQ(scatter_of_two(registered), Way::engines);
    EXPECT_EQ(scatter_of_two({}), Way::engines) << "what comes in lands in the window";
    EXPECT_EQ(scatter_of_two(odd), Way::tiles);
    EXPECT_EQ(plan_of(Collective::reduce_scatter_block, 64 << 20, 4, {}, layout, {1 << 20, 64 << 20, 128}).way,
              Way::engines)
        << "where the knob says so";
}

/// Over PCIe lines may come in parts.
TEST(CudaPlan, LinesAreUsedOnlyWhereLinksKeepThemWhole) {
    for (const int ranks : {2, 3, 8})
        for (const bool lines : {true, false}) {
            const WindowLayout layout = window_for(256 << 20, ranks);
            Limits limits{1 << 20, 0, 128};
            limits.lines = lines;
            bool seen = false;
            for (const Collective collective :
                 {Collective::allreduce, Collective::reduce_scatter_block, Collective::allgather, Collective::bcast,
                  Collective::reduce, Collective::alltoall})
                for (uint64_t bytes = 8; bytes <= 64 << 20; bytes *= 2)
                    for (const bool direct : {false, true}) {
                        const Plan plan =
                            plan_of(collective, bytes * ranks, ranks, {direct, false, true}, layout, limits);
                        seen = seen || plan.way == Way::lines || plan.way == Way::relay;
                        EXPECT_TRUE(bytes * ranks * ranks > 1024 || plan.way == Way::packets);
                    }
            EXPECT_EQ(seen, lines);
        }
}

/// Flags stay odd after even, and what a kernel that gave up leaves is no count.
TEST(CudaExchange, CountsPassOverTheOneThatSaysThatAKernelGaveUp) {
    EXPECT_EQ(next_flag(0), 1U);
    EXPECT_EQ(next_flag(kGaveUp - 2), kGaveUp - 1);
    EXPECT_EQ(next_flag(kGaveUp - 1), 1U);
    EXPECT_EQ((kGaveUp - 1) % 2, 0U);
}

/// Kernels that add as they go need many multiprocessors to keep up with copy engines.
TEST(CudaPlan, CopyEnginesServeReductionsOfTwoEarlierWhereBlocksAreFew) {
    const Outputs registered{true, false, true};
    const auto way = [&](Collective collective, uint64_t mib, uint32_t blocks, Outputs outputs) {
        return plan_of(collective, mib << 20, 2, outputs, window_for(256 << 20, 2), {128 << 10, 0, blocks}).way;
    };
    struct Case {
        Collective collective;
        uint32_t blocks;
        uint64_t least_mib;
    };
    for (const auto &[collective, blocks, least_mib] :
         {Case{Collective::allreduce, 32, 32}, Case{Collective::allreduce, 64, 64},
          Case{Collective::allreduce, 128, 128}, Case{Collective::reduce_scatter_block, 32, 16},
          Case{Collective::reduce_scatter_block, 64, 16}, Case{Collective::reduce_scatter_block, 128, 32}}) {
        EXPECT_EQ(way(collective, least_mib, blocks, registered), Way::engines)
            << blocks << " blocks, " << least_mib << " MiB";
        EXPECT_EQ(way(collective, least_mib / 2, blocks, registered), Way::tiles) << blocks << " blocks";
    }
    EXPECT_EQ(way(Collective::allreduce, 32, 32, {true, true, true}), Way::engines);
    EXPECT_EQ(way(Collective::allreduce, 32, 32, {}), Way::tiles) << "peers may not write into this output";
}

TEST(CudaPlan, BetweenTwoAllThatFitsGoesInLines) {
    constexpr uint64_t kMiB = 1 << 20;
    const Limits limits{kMiB, 0, 32};
    const auto way = [&](Collective collective, uint64_t bytes, const Limits &with, uint64_t budget = 224 << 20) {
        return plan_of(collective, bytes, 2, {true, false, true}, window_for(budget, 2), with).way;
    };
    EXPECT_EQ(way(Collective::bcast, 4 * kMiB, limits), Way::lines);
    EXPECT_EQ(way(Collective::bcast, 4 * kMiB + 4, limits), Way::tiles) << "straight into the output";
    for (const Collective collective : {Collective::allreduce, Collective::reduce}) {
        EXPECT_EQ(way(collective, 64 << 10, limits), Way::packets) << name_of(collective);
        EXPECT_EQ(way(collective, (64 << 10) + 4, limits), Way::lines) << name_of(collective);
        EXPECT_EQ(way(collective, 8 * kMiB, limits), Way::lines) << name_of(collective);
        EXPECT_EQ(way(collective, 9 * kMiB, limits), Way::tiles) << name_of(collective);
        EXPECT_EQ(way(collective, 8 * kMiB, limits, 32 * kMiB), Way::tiles) << "smaller lines";
        EXPECT_EQ(way(collective, 8 * kMiB, {kMiB / 8, 0, 32}), Way::tiles) << name_of(collective);
    }
    EXPECT_EQ(way(Collective::reduce_scatter_block, 16 * kMiB, limits), Way::lines);
    EXPECT_EQ(way(Collective::alltoall, 8 * kMiB, limits), Way::lines);
    EXPECT_EQ(way(Collective::allgather, 8 * kMiB + 8, limits), Way::tiles);
    Limits over_pcie = limits;
    over_pcie.lines = false;
    EXPECT_EQ(way(Collective::allreduce, 256 << 10, over_pcie), Way::packets) << "there are no lines to take";
    EXPECT_EQ(way(Collective::allreduce, 4 * kMiB, {kMiB, 2 * kMiB, 32}), Way::engines) << "as somebody wants it";
    EXPECT_EQ(way(Collective::allreduce, kMiB, {kMiB, 2 * kMiB, 32}), Way::lines);
    Limits bulk = limits;
    bulk.bulk = true;
    EXPECT_EQ(way(Collective::allreduce, 8 * kMiB, bulk), Way::lines);
    EXPECT_EQ(way(Collective::allreduce, 9 * kMiB, bulk), Way::bulk);
    EXPECT_EQ(way(Collective::allreduce, kMiB, over_pcie), Way::tiles);
    const auto unregistered = [&](uint64_t bytes) {
        return plan_of(Collective::bcast, bytes, 2, {}, window_for(224 * kMiB, 2), limits).way;
    };
    EXPECT_EQ(unregistered(8 * kMiB), Way::lines);
    EXPECT_EQ(unregistered(16 * kMiB), Way::relay);
    EXPECT_EQ(unregistered(64 * kMiB), Way::tiles);
}

TEST(CudaPlan, ReductionsOfTwoGoByBulkCopiesWhereGpusHaveThem) {
    constexpr uint64_t kMiB = 1 << 20;
    Limits limits{kMiB, 0, 32};
    const auto plan = [&](Collective collective, uint64_t bytes, int ranks = 2, uint64_t budget = 256 << 20) {
        return plan_of(collective, bytes, ranks, {}, window_for(budget, ranks), limits);
    };
    EXPECT_EQ(plan(Collective::allreduce, 16 * kMiB).way, Way::tiles);
    limits.bulk = true;
    for (const Collective collective : {Collective::allreduce, Collective::reduce_scatter_block, Collective::reduce}) {
        EXPECT_EQ(plan(collective, 8 * kMiB).way, Way::lines) << name_of(collective);
        EXPECT_EQ(plan(collective, 24 * kMiB).way, Way::bulk) << name_of(collective);
        EXPECT_EQ(plan(collective, 24 * kMiB).blocks, 32U) << name_of(collective);
        EXPECT_EQ(plan(collective, 24 * kMiB, 4).way, Way::tiles) << name_of(collective);
        const Way otherwise = collective == Collective::reduce_scatter_block ? Way::engines : Way::tiles;
        EXPECT_EQ(plan(collective, 24 * kMiB, 2, 16 << 20).way, otherwise) << "too few slots";
    }
    EXPECT_EQ(plan(Collective::allgather, 24 * kMiB).way, Way::tiles) << "nothing is added";
    EXPECT_EQ(plan(Collective::allreduce, 24 * kMiB).part_bytes, 24 * kMiB) << "both add the whole vector";
    EXPECT_EQ(plan(Collective::reduce_scatter_block, 24 * kMiB).part_bytes, 12 * kMiB);
    limits.line_bytes = 0;
    EXPECT_EQ(plan(Collective::allreduce, kBulkTile + 1).blocks, 2U) << "no team without work";
    limits.lines = false;
    EXPECT_EQ(plan(Collective::allreduce, 24 * kMiB).way, Way::tiles) << "measured over NVLink alone";
    limits.lines = true;
    limits.spare = true;
    EXPECT_EQ(plan(Collective::allreduce, 8 * kMiB).way, Way::tiles) << "the program's kernels need shared memory";
}

TEST(CudaPlan, OneKernelOfBulkCopiesIsTakenWhereMultiprocessorsAreFew) {
    constexpr uint64_t kMiB = 1 << 20;
    const auto way = [&](Collective collective, uint64_t bytes, uint32_t blocks, bool bulk) {
        Limits limits{kMiB, 0, blocks};
        limits.bulk = bulk;
        return plan_of(collective, bytes, 2, {true, false, true}, window_for(224 * kMiB, 2), limits).way;
    };
    EXPECT_EQ(way(Collective::allreduce, 64 * kMiB, 32, false), Way::engines);
    EXPECT_EQ(way(Collective::allreduce, 1024 * kMiB, 32, true), Way::bulk);
    EXPECT_EQ(way(Collective::allreduce, 64 * kMiB, 128, true), Way::bulk);
    EXPECT_EQ(way(Collective::allreduce, 128 * kMiB, 128, true), Way::engines);
    EXPECT_EQ(way(Collective::reduce_scatter_block, 1024 * kMiB, 128, true), Way::bulk);
    EXPECT_EQ(way(Collective::reduce_scatter_block, 64 * kMiB, 128, false), Way::engines);
    EXPECT_EQ(way(Collective::allgather, 128 * kMiB, 32, true), Way::engines) << "nothing is added";
}

TEST(CudaPlan, WhatBulkCopiesDoNotServeGoesAsWithoutThem) {
    constexpr uint64_t kMiB = 1 << 20;
    Limits without{kMiB, 0, 32};
    Limits over_pcie = without;
    over_pcie.bulk = true;
    over_pcie.lines = false;
    Limits with = without;
    with.bulk = true;
    for (const Collective collective : {Collective::allreduce, Collective::reduce_scatter_block}) {
        for (const uint64_t mib : {24, 64, 256}) {
            const auto way = [&](const WindowLayout &layout, const Limits &limits) {
                return plan_of(collective, mib * kMiB, 2, {true, false, true}, layout, limits).way;
            };
            const WindowLayout full = window_for(224 * kMiB, 2);
            const WindowLayout few_slots = window_for(16 * kMiB, 2);
            const WindowLayout few_teams = small_window(4 * kMiB, 2);
            EXPECT_EQ(way(full, over_pcie), way(full, without)) << name_of(collective) << mib;
            EXPECT_EQ(way(few_slots, with), way(few_slots, without)) << name_of(collective) << mib;
            EXPECT_EQ(way(few_teams, with), way(few_teams, without)) << name_of(collective) << mib;
            EXPECT_EQ(way(full, with), Way::bulk) << name_of(collective) << mib;
        }
    }
    EXPECT_EQ(plan_of(Collective::allreduce, 256 * kMiB, 2, {true, false, true}, window_for(16 * kMiB, 2), with).way,
              Way::engines);
}

TEST(CudaPlan, AShorterRingOfBulkCopiesIsNotAlike) {
    constexpr uint64_t kMiB = 1 << 20;
    Limits limits{kMiB, 0, 32};
    limits.bulk = true;
    const auto plan = [&](uint64_t budget) {
        return plan_of(Collective::allreduce, 24 * kMiB, 2, {}, window_for(budget, 2), limits);
    };
    ASSERT_EQ(plan(32 * kMiB).way, Way::bulk);
    EXPECT_FALSE(alike(Collective::allreduce, plan(224 * kMiB), plan(32 * kMiB)));
}

TEST(CudaPlan, OutputsAreOfUseWherePeersWriteIntoThem) {
    constexpr uint64_t kMiB = 1 << 20;
    Limits limits{kMiB, 0, 32};
    const WindowLayout layout = window_for(224 * kMiB, 2);
    const auto writes = [&](Collective collective, uint64_t bytes) {
        return writes_outputs(collective, bytes, 2, layout, limits);
    };
    EXPECT_FALSE(writes(Collective::allreduce, kMiB)) << "lines";
    EXPECT_TRUE(writes(Collective::allreduce, 16 * kMiB)) << "tiles";
    EXPECT_TRUE(writes(Collective::allgather, 64 * kMiB)) << "engines";
    limits.bulk = true;
    for (const uint64_t mib : {16, 64, 256})
        EXPECT_FALSE(writes(Collective::allreduce, mib * kMiB)) << "each rank writes into its own";
    limits.blocks = 128;
    EXPECT_TRUE(writes(Collective::allreduce, 256 * kMiB)) << "engines";
    EXPECT_TRUE(writes(Collective::allgather, 64 * kMiB));
}

TEST(CudaPlan, TheRootOfAReduceOfTwoAdds) {
    const Limits limits{128 << 10, 0, 128};
    for (const int ranks : {2, 4}) {
        const Plan plan = plan_of(Collective::reduce, 4 << 20, ranks, {}, window_for(256 << 20, ranks), limits);
        EXPECT_EQ(plan.way, Way::tiles);
        EXPECT_EQ(plan.flat, ranks == 2) << "among more, the root's link would carry all others' input";
    }
    Job job;
    job.collective = Collective::reduce;
    job.ranks = 2;
    job.flat = true;
    for (job.root = 0; job.root < 2; ++job.root) {
        EXPECT_EQ(job.owner(0), job.root);
        for (job.rank = 0; job.rank < 2; ++job.rank)
            EXPECT_FALSE(job.collects()) << "nobody waits for results";
        EXPECT_FALSE(job.gathers(1 - job.root, job.root)) << "nothing is sent back";
    }
}

TEST(CudaPlan, MultiprocessorsAreSpared) {
    Limits limits{1 << 20, 0, kSpareBlocks};
    limits.spare = true;
    for (const int ranks : {2, 4, 8}) {
        const WindowLayout layout = window_for(256 << 20, ranks);
        for (uint64_t bytes = 8 * ranks; bytes <= uint64_t{1} << 30; bytes *= 2) {
            for (const Outputs outputs : {Outputs{}, Outputs{true, false, false}, Outputs{true, true, true}}) {
                for (const Collective collective : {Collective::allgather, Collective::alltoall, Collective::bcast})
                    EXPECT_EQ(plan_of(collective, bytes, ranks, outputs, layout, limits).way, Way::engines) << bytes;
                for (const Collective collective :
                     {Collective::allreduce, Collective::reduce_scatter_block, Collective::reduce})
                    EXPECT_LE(plan_of(collective, bytes, ranks, outputs, layout, limits).blocks, kSpareBlocks) << bytes;
            }
        }
    }
    const WindowLayout layout = window_for(256 << 20, 4);
    EXPECT_EQ(plan_of(Collective::allreduce, 64 << 20, 4, {true, true, true}, layout, limits).way, Way::engines);
    EXPECT_EQ(plan_of(Collective::allreduce, 64 << 20, 4, {}, layout, limits).way, Way::tiles)
        << "results cannot go into outputs";
}

TEST(CudaPlan, WhatIsShortAndWhatNeedsNoSlotsTakesAsLongInASmallWindow) {
    const Limits limits{1 << 20, 0, 32};
    for (const int ranks : {2, 3, 4, 8}) {
        constexpr uint64_t kRoom = uint64_t{4} << 20;
        const Room room = room_for(kRoom, 32, ranks, false);
        const WindowLayout &small = room.window;
        EXPECT_LE(room.bytes(), kRoom);
        EXPECT_GT(small.bytes(), kRoom / 2);
        EXPECT_GT(small.packet_bytes, 0U);
        EXPECT_GT(small.slot_bytes, 1024U);
        const WindowLayout full = window_for(224 << 20, ranks);
        const auto same = [&](Collective collective, uint64_t bytes, const Outputs &outputs) {
            return alike(collective, plan_of(collective, bytes, ranks, outputs, full, limits),
                         plan_of(collective, bytes, ranks, outputs, small, limits));
        };
        for (const Collective collective : kServed)
            EXPECT_TRUE(same(collective, 1024 * ranks, {})) << name_of(collective) << " of " << ranks;
        EXPECT_TRUE(same(Collective::allreduce, 128 << 10, {}));
        EXPECT_FALSE(same(Collective::allreduce, 4 << 20, {}));
        EXPECT_TRUE(same(Collective::allgather, 64 << 20, {true, false, true}));
        EXPECT_TRUE(same(Collective::alltoall, 16 << 20, {true, false, true}));
        EXPECT_FALSE(same(Collective::allgather, 64 << 20, {}));
        EXPECT_FALSE(same(Collective::allreduce, 16 << 20, {true, true, true}));
        EXPECT_FALSE(same(Collective::allreduce, 256 << 20, {true, true, true})) << "rounds through the window";
    }
}

TEST(CudaPlan, LinesAndPacketsFitTheirPlaces) {
    for (const int ranks : {2, 3, 4, 8}) {
        for (const uint64_t budget : {uint64_t{8} << 20, uint64_t{256} << 20}) {
            const WindowLayout layout = window_for(budget, ranks);
            EXPECT_LE(layout.bytes(), budget);
            EXPECT_GT(layout.packet_bytes, 0U);
            for (uint64_t bytes = 1; bytes < (4 << 20); bytes = bytes * 3 / 2 + 1) {
                const Plan plan = plan_of(Collective::allreduce, bytes, ranks, {}, layout, {64 << 20, 0, 128});
                if (plan.way != Way::packets && plan.way != Way::lines)
                    continue;
                const bool packets = plan.way == Way::packets;
                EXPECT_LE(packets ? plan.tile_bytes * 2 : plan.tile_bytes / 120 * 128,
                          packets ? layout.packet_bytes : layout.line_bytes);
                EXPECT_GE(plan.tile_bytes * plan.blocks, bytes);
                EXPECT_LE(plan.blocks, kMaxBlocks);
                EXPECT_EQ(plan.threads % 32, 0U);
                EXPECT_TRUE(packets || (plan.threads >= 8 * kMaxRanks && plan.tile_bytes % 120 == 0)) << bytes;
            }
        }
    }
}

}  // namespace
}  // namespace flx::cuda
