/// \file landing.h
/// Where in a pipeline of copy engines lies what comes to an owner to be reduced, and in which runs it is. It lands in
/// the owner's output where there is room that is not used yet: in an allreduce whose output is not its input in the
/// parts that others will fill with results later, in a reduce-scatter just where the sum will be, which is room for
/// one peer. What remains lands in the owner's window, which may hold a part of it at a time: a round. Plain logic.
#pragma once

#include <algorithm>
#include <vector>

#include "exchange.h"

namespace flx::cuda {

/// A run of a part that is reduced at a time.
struct Chunk {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t round_begin = 0;
    uint64_t round_end = 0;
    bool frees = false;  ///< where it lies something else comes later in this operation

    [[nodiscard]] bool opens() const { return begin == round_begin; }
};

class Landing {
  public:
    /// `bytes` of each part come this way. `in_place`: on any rank.
    Landing(const Job &job, uint64_t bytes, bool in_place) : job_(job) {
        const bool gathers = job.kind == Kind::allreduce;
        in_parts_ = gathers && !in_place && job.bytes == job.part_bytes * job.ranks;
        one_in_output_ = !gathers && job.direct;
        const int in_window = in_parts_ ? 0 : job.ranks - 1 - (one_in_output_ ? 1 : 0);
        if (in_window > 0)
            place_bytes_ = (job.layout.bytes() - job.layout.slots()) / in_window / kLine * kLine;
        const uint64_t rounds = std::max<uint64_t>((bytes + place_bytes_ - 1) / place_bytes_, 1);
        const uint64_t round = std::min((bytes / rounds + kLine) / kLine * kLine, place_bytes_);
        uint64_t at = 0;
        do {
            const uint64_t end = std::min(at + round, bytes);
            // Nobody copies while the last reduction of a round is under way, so it shall be short; every other one is
            // over before the next chunk, half as long, has come. But results of an allreduce are sent meanwhile.
            cut(at, end, gathers && end == bytes ? 1 : 6);
            chunks_.back().frees = end < bytes;
            at = end;
        } while (at < bytes);
        for (Chunk &chunk : chunks_)
            chunk.frees = chunk.frees || in_parts_;
    }

    [[nodiscard]] const std::vector<Chunk> &chunks() const { return chunks_; }

    /// Where `source` puts what `owner` adds from `at` of its part on.
    [[nodiscard]] char *place(int owner, int source, const Chunk &chunk, uint64_t at) const {
        if (in_parts_)
            return job_.outputs[owner] + job_.part_offset(source) + at;
        const int step = (owner - source + job_.ranks) % job_.ranks;
        if (one_in_output_ && step == job_.ranks - 1)
            return job_.outputs[owner] + at;
        return job_.windows[owner] + job_.layout.slots() + (step - 1) * place_bytes_ + at - chunk.round_begin;
    }

  private:
    static constexpr uint64_t kLine = 4096;
    static constexpr uint64_t kLeast = 4 << 20;

    void cut(uint64_t begin, uint64_t end, int times) {
        uint64_t at = begin;
        for (int cut = 0; cut < times && end - at > 2 * kLeast; ++cut) {
            const uint64_t half = (end - at) / 2 / kLine * kLine;
            chunks_.push_back({at, at + half, begin, end});
            at += half;
        }
        chunks_.push_back({at, end, begin, end});
    }

    const Job &job_;
    bool in_parts_ = false;
    bool one_in_output_ = false;
    uint64_t place_bytes_ = uint64_t{1} << 60;
    std::vector<Chunk> chunks_;
};

}  // namespace flx::cuda
