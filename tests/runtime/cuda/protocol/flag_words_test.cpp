/// Streams that wait for each other without kernels: their words, written and awaited by host threads.
#include "runtime/cuda/protocol/flag_words.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace flx::cuda {
namespace {

using Channel = FlagWords::Channel;
using Words = std::array<std::atomic<uint32_t>, FlagWords::kAll>;

void carry_out(Words &words, const std::vector<FlagStroke> &strokes) {
    for (const FlagStroke &stroke : strokes) {
        if (!stroke.waits)
            words[stroke.word].store(stroke.value, std::memory_order_release);
        while (stroke.waits &&
               static_cast<int32_t>(words[stroke.word].load(std::memory_order_acquire) - stroke.value) < 0)
            std::this_thread::yield();
    }
}

/// What a rank does in an operation, as a graph would hold it: a meeting, some steps in which each rank waits for all
/// others (or each for the one before it), a meeting.
struct Recorded {
    std::vector<std::vector<FlagStroke>> steps;
};

Recorded record(FlagWords &words, int rank, int ranks, uint32_t steps, bool in_row) {
    const uint32_t all = (1U << ranks) - 1;
    const uint32_t last = rank == 0 ? 0 : 1U << (rank - 1);
    const uint32_t next = rank + 1 == ranks ? 0 : 1U << (rank + 1);
    const uint32_t peers = all & ~(1U << rank);
    Recorded recorded;
    words.begin(recorded.steps.emplace_back());
    for (uint32_t step = 0; step < steps; ++step) {
        std::vector<FlagStroke> &strokes = recorded.steps.emplace_back();
        const Channel channel = step % 3 == 2 ? Channel::consumed : Channel::arrived;
        if (in_row)
            words.hear(channel, last, 1, strokes);
        words.tell(channel, in_row ? next : peers, 1, strokes);
        if (!in_row)
            words.hear(channel, peers, 1, strokes);
    }
    words.end(recorded.steps.emplace_back());
    return recorded;
}

/// No rank begins a step before all (or the one before it) have begun the same one of the same operation.
void run(int ranks, bool replays) {
    constexpr int kOperations = 300;
    Words words{};
    std::array<std::atomic<uint64_t>, kMaxRanks> at{};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            std::mt19937 same(7);  // on all ranks
            std::mt19937 own(rank);
            FlagWords flags(rank, ranks);
            const Recorded graph = record(flags, rank, ranks, 5, false);
            for (int operation = 0; operation < kOperations; ++operation) {
                const bool replayed = replays && same() % 2 == 0;
                const bool in_row = same() % 2 == 0 && !replayed;
                const auto steps = static_cast<uint32_t>(same() % 7);
                const Recorded eager = record(flags, rank, ranks, steps, in_row);
                const Recorded &chosen = replayed ? graph : eager;
                for (size_t step = 0; step < chosen.steps.size(); ++step) {
                    const uint64_t here = 1 + static_cast<uint64_t>(operation) * 16 + step;
                    at[rank].store(here);
                    if (own() % 8 == 0)
                        std::this_thread::yield();
                    carry_out(words, chosen.steps[step]);
                    const bool met = step == 0 || step + 1 == chosen.steps.size() || !in_row;
                    for (int peer = 0; peer < ranks; ++peer) {
                        if (met || peer + 1 == rank) {
                            EXPECT_GE(at[peer].load(), here) << "rank " << rank << " did not wait for " << peer;
                        }
                    }
                }
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (const std::atomic<uint32_t> &word : words)
        EXPECT_EQ(word.load(), 0U) << "an operation leaves words behind";
}

TEST(CudaFlagWords, RanksWaitForEachOther) {
    for (const int ranks : {2, 3, 8})
        run(ranks, false);
}

TEST(CudaFlagWords, WhatWasRecordedCanBeReplayed) {
    for (const int ranks : {2, 3, 8})
        run(ranks, true);
}

}  // namespace
}  // namespace flx::cuda
