/// Where copy engines put what is to be reduced: all of it within memory that is there, no two things in one place at a
/// time, in chunks that follow each other.
#include "runtime/cuda/protocol/landing.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/cuda/protocol/plan.h"

namespace flx::cuda {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// Addresses that nobody reads: each rank's window and output are far from all others.
Job job_of(Collective collective, int ranks, uint64_t bytes, bool direct, uint64_t budget) {
    Job job;
    job.collective = collective;
    job.ranks = ranks;
    job.direct = direct;
    job.bytes = bytes;
    job.part_bytes = has_blocks(collective) ? bytes / ranks : (bytes / ranks + 127) / 128 * 128;
    job.layout = window_for(budget, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        job.windows[rank] = reinterpret_cast<char *>(uint64_t(2 * rank + 1) << 40);
        job.outputs[rank] = reinterpret_cast<char *>(uint64_t(2 * rank + 2) << 40);
    }
    return job;
}

uint64_t address(const char *place) {
    return reinterpret_cast<uint64_t>(place);
}

void check(const Job &job, uint64_t bytes, bool in_place = false, bool whole = false) {
    const Landing landing(job, bytes, in_place, whole);
    uint64_t end = 0;
    for (const Chunk &chunk : landing.chunks()) {
        EXPECT_EQ(chunk.begin, end);
        EXPECT_GE(chunk.end, chunk.begin);
        EXPECT_LE(chunk.round_begin, chunk.begin);
        EXPECT_GE(chunk.round_end, chunk.end);
        end = chunk.end;
    }
    EXPECT_EQ(end, bytes);
    EXPECT_TRUE(landing.chunks().front().opens());
    const std::vector<Chunk> &chunks = landing.chunks();
    for (size_t c = 0; c < chunks.size(); ++c) {
        EXPECT_LT(chunks[c].after, static_cast<int>(c));
        if (chunks[c].after >= 0) {
            EXPECT_TRUE(chunks[c].opens() && chunks[chunks[c].after].frees);
            EXPECT_LE(c - chunks[c].after, kChunksBack);
        }
    }
    for (int owner = 0; owner < job.ranks; ++owner) {
        std::map<uint64_t, uint64_t> taken;
        std::vector<std::vector<uint64_t>> by_chunk;
        size_t freed = 0;
        int before = -1;  // what the round before waited for
        for (const Chunk &chunk : landing.chunks()) {
            by_chunk.emplace_back();
            // Among more ranks than two, the first peer's copies do not wait.
            const int known = landing.pause() == 1 ? chunk.after : before;
            before = chunk.opens() ? chunk.after : before;
            for (; static_cast<int>(freed) <= known; ++freed)
                for (const uint64_t place : by_chunk[freed])
                    taken.erase(place);
            for (int source = 0; source < job.ranks; ++source) {
                if (source == owner || chunk.end == chunk.begin)
                    continue;
                const uint64_t from = address(landing.place(owner, source, chunk, chunk.begin));
                const uint64_t to = from + chunk.end - chunk.begin;
                const uint64_t window = address(job.windows[owner]);
                const uint64_t output = address(job.outputs[owner]);
                const bool in_window = from >= window + job.layout.slots() && to <= window + job.layout.bytes();
                const uint64_t out_bytes = job.collective == Collective::allreduce ? job.bytes : job.part_bytes;
                const bool in_output = from >= output && to <= output + out_bytes;
                EXPECT_TRUE(in_window || (in_output && job.direct)) << "owner " << owner << " source " << source;
                const auto after = taken.lower_bound(from);
                EXPECT_TRUE(after == taken.end() || after->first >= to);
                EXPECT_TRUE(after == taken.begin() || std::prev(after)->second <= from);
                taken[from] = to;
                by_chunk.back().push_back(from);
            }
        }
    }
}

TEST(CudaLanding, EverythingHasAPlaceOfItsOwn) {
    for (const int ranks : {2, 3, 4, 8}) {
        for (const uint64_t budget : {8 * kMiB, 256 * kMiB}) {
            for (const uint64_t part : {uint64_t{16}, 5 * kMiB, 61 * kMiB + 4096, 300 * kMiB + 16}) {
                for (const bool in_place : {false, true}) {
                    const Job sum = job_of(Collective::allreduce, ranks, part * ranks, true, budget);
                    check(sum, sum.part_bytes, in_place);
                    check(sum, sum.part_bytes, in_place, true);
                }
                for (const bool direct : {false, true}) {
                    const Job scatter = job_of(Collective::reduce_scatter_block, ranks, part * ranks, direct, budget);
                    check(scatter, part);
                    check(scatter, part / 2);
                    check(scatter, 0);
                }
            }
        }
    }
}

TEST(CudaLanding, WhatIsUsedAgainIsToldOf) {
    const Job large = job_of(Collective::reduce_scatter_block, 4, 1024 * kMiB, false, 256 * kMiB);
    const std::vector<Chunk> several = Landing(large, large.part_bytes, false).chunks();
    ASSERT_GT(several.back().round, 2U);
    for (size_t c = 0; c + 1 < several.size(); ++c)
        EXPECT_EQ(several[c].frees, several[c + 1].opens());
    EXPECT_TRUE(several.back().frees) << "others may write there when the operation is over";
    for (const Chunk &chunk : several)
        EXPECT_EQ(chunk.after >= 0, chunk.opens() && chunk.round >= 1);
    const Job alone = job_of(Collective::reduce_scatter_block, 2, 1024 * kMiB, true, 256 * kMiB);
    const Landing in_output(alone, alone.part_bytes, false);
    for (const Chunk &chunk : in_output.chunks())
        EXPECT_FALSE(chunk.frees) << "no window was used";
    const Job sum = job_of(Collective::allreduce, 2, 256 * kMiB, true, 256 * kMiB);
    const Landing landing(sum, sum.part_bytes, false);
    for (const Chunk &chunk : landing.chunks())
        EXPECT_TRUE(chunk.frees) << "results are written over it";
}

TEST(CudaLanding, WholeRoundsAreAddedAtOnce) {
    for (const bool in_place : {false, true}) {
        const Job job = job_of(Collective::allreduce, 2, 1024 * kMiB, true, 256 * kMiB);
        const Landing landing(job, job.part_bytes, in_place, true);
        for (const Chunk &chunk : landing.chunks())
            EXPECT_TRUE(chunk.begin == chunk.round_begin && chunk.end == chunk.round_end);
    }
}

TEST(CudaLanding, TheLastReductionOfAReduceScatterIsShort) {
    const Job job = job_of(Collective::reduce_scatter_block, 2, 1024 * kMiB, true, 256 * kMiB);
    const std::vector<Chunk> chunks = Landing(job, job.part_bytes, false).chunks();
    ASSERT_GT(chunks.size(), 3U);
    EXPECT_TRUE(chunks.front().end == 256 * kMiB && chunks.back().round_begin == 0);
    EXPECT_LE(chunks.back().end - chunks.back().begin, 16 * kMiB);
}

TEST(CudaLanding, AmongMoreRanksReductionsKeepUpWithCopies) {
    for (const uint64_t bytes : {128 * kMiB, 256 * kMiB, 1024 * kMiB}) {
        const Job job = job_of(Collective::reduce_scatter_block, 4, bytes, true, 256 * kMiB);
        const std::vector<Chunk> chunks = Landing(job, job.part_bytes, false).chunks();
        for (const Chunk &chunk : chunks) {
            if (chunk.round == chunks.back().round) {
                EXPECT_GE(chunk.end - chunk.begin, 8 * kMiB);
                EXPECT_LE(chunk.end - chunk.begin, 16 * kMiB);
            }
        }
    }
}

}  // namespace
}  // namespace flx::cuda
