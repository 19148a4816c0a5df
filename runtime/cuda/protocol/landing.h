/// \file landing.h
/// Where in a pipeline of copy engines lies what comes to an owner to be reduced, and in which runs it is. It lands in
/// the owner's output where there is room that is not used yet: in an allreduce whose output is not its input in the
/// parts that others will fill with results later, in a reduce-scatter just where the sum will be, which is room for
/// one peer. What remains lands in the owner's window. Where that cannot hold all of it, it has two halves for rounds
/// in turn: one is filled while the other is reduced, so that copies need not stop. Plain logic.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

/// A run of a part that is reduced at a time.
struct Chunk {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t round_begin = 0;
    uint64_t round_end = 0;
    uint32_t round = 0;
    int after = -1;      ///< the chunk that must have been reduced everywhere before pause() of this one's copies
    bool frees = false;  ///< where it lies something else comes later, or others may write once this operation is over

    [[nodiscard]] bool opens() const { return begin == round_begin; }
};

/// A chunk waits for none that is more than this further back.
inline constexpr size_t kChunksBack = 4;

class Landing {
  public:
    /// `bytes` of each part come this way. `in_place`: on any rank. `whole`: rounds are not cut.
    Landing(const Job &job, uint64_t bytes, bool in_place, bool whole = false) : job_(job) {
        const bool gathers = job.collective == Collective::allreduce;
        in_parts_ = gathers && !in_place && job.bytes == job.part_bytes * job.ranks;
        one_in_output_ = !gathers && job.direct;
        in_window_ = in_parts_ ? 0 : job.ranks - 1 - (one_in_output_ ? 1 : 0);
        if (in_window_ > 0) {
            const uint64_t room = (job.layout.bytes() - job.layout.slots()) / in_window_;
            place_bytes_ = (bytes <= room / kLine * kLine ? room : room / 2) / kLine * kLine;
        }
        const uint64_t rounds = std::max<uint64_t>((bytes + place_bytes_ - 1) / place_bytes_, 1);
        const uint64_t length = std::min((bytes / rounds + kLine) / kLine * kLine, place_bytes_);
        std::vector<int> last_of;  // by round
        uint64_t at = 0;
        do {
            const uint64_t end = std::min(at + length, bytes);
            const auto round = static_cast<uint32_t>(last_of.size());
            const size_t first = chunks_.size();
            cut_round(at, end, round, end == bytes && !whole, gathers);
            if (round >= back()) {
                chunks_[first].after = last_of[round - back()];
                chunks_[last_of[round - back()]].frees = true;
            }
            last_of.push_back(static_cast<int>(chunks_.size()) - 1);
            at = end;
        } while (at < bytes);
        for (Chunk &chunk : chunks_)
            chunk.frees = chunk.frees || in_parts_;
        // After an allreduce all meet.
        chunks_.back().frees = in_parts_ || (!gathers && in_window_ > 0);
    }

    [[nodiscard]] const std::vector<Chunk> &chunks() const { return chunks_; }
    /// The peer, counted from 1, before whose copies a round waits. Among more than two ranks it is the second: what is
    /// waited for is then over if ranks are in step, and else keeps them from drifting into two that write to one GPU.
    [[nodiscard]] int pause() const { return job_.ranks > 2 ? 2 : 1; }

    /// Where `source` puts what `owner` adds from `at` of its part on.
    [[nodiscard]] char *place(int owner, int source, const Chunk &chunk, uint64_t at) const {
        if (in_parts_)
            return job_.outputs[owner] + job_.part_offset(source) + at;
        const int step = (owner - source + job_.ranks) % job_.ranks;
        if (one_in_output_ && step == job_.ranks - 1)
            return job_.outputs[owner] + at;
        const uint64_t place = chunk.round % 2 * in_window_ + step - 1;
        return job_.windows[owner] + job_.layout.slots() + place * place_bytes_ + at - chunk.round_begin;
    }

  private:
    /// So many rounds back lies what a round waits for.
    [[nodiscard]] uint32_t back() const { return job_.ranks > 2 ? 1 : 2; }

    static constexpr uint64_t kLine = 4096;
    static constexpr uint64_t kLeast = 4 << 20;
    static constexpr uint64_t kEven = 11 << 20;

    /// Nobody copies while the very last reduction is under way, so it shall be short, and every other one over before
    /// the next chunk has come. Between two ranks reductions are twice as fast as copies: each chunk is half the one
    /// before. Among more, a reduction of less than kEven takes longer than its copy did: all are alike. Results of an
    /// allreduce are sent meanwhile.
    void cut_round(uint64_t begin, uint64_t end, uint32_t round, bool last, bool gathers) {
        uint64_t at = begin;
        const auto cut = [&](uint64_t bytes) {
            chunks_.push_back({at, at + bytes, begin, end, round});
            at += bytes;
        };
        if (last && !gathers && job_.ranks > 2) {
            const uint64_t many = std::max<uint64_t>((end - begin + kEven / 2) / kEven, 1);
            const uint64_t each = std::max(((end - begin) / many + kLine - 1) / kLine * kLine, kLine);
            while (end - at > each)
                cut(each);
        } else {
            const int halvings = !last ? 0 : gathers ? 1 : 6;
            for (int i = 0; i < halvings && end - at > 2 * kLeast; ++i)
                cut((end - at) / 2 / kLine * kLine);
        }
        cut(end - at);
    }

    const Job &job_;
    bool in_parts_ = false;
    bool one_in_output_ = false;
    int in_window_ = 0;  ///< peers
    uint64_t place_bytes_ = uint64_t{1} << 60;
    std::vector<Chunk> chunks_;
};

}  // namespace flx::cuda
