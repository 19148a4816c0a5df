/// \file relay.cuh
/// A bcast of middle size, in lines (lines.cuh) and two hops: the root sends each line to one of the others, its owner,
/// who passes it on to the rest. So no link carries much more than the vector, and nobody waits for more than a line.
/// Between two ranks it serves outputs that peers may not write.
///
/// A block takes its tiles in rounds, each in the other one of its two places. In every round every rank sends each
/// other at least one line, if need be without data, so who has finished one knows that all others have finished the
/// one before.
#pragma once

#include "runtime/cuda/kernels/lines.cuh"

namespace flx::cuda {

/// What a block's thread has to do with lines: eight threads a line.
class Relay {
  public:
    __device__ explicit Relay(const Job &job)
        : job_(job),
          owners_(job.ranks - 1),
          lane_(threadIdx.x % kLineLanes),
          first_(threadIdx.x / kLineLanes),
          step_(blockDim.x / kLineLanes) {}

    __device__ void begin_round(uint32_t flag, uint64_t tile) {
        flag_ = flag;
        begin_ = tile * job_.tile_bytes;
        end_ = begin_ + job_.tile_bytes < job_.bytes ? begin_ + job_.tile_bytes : job_.bytes;
        lines_ = static_cast<uint32_t>((end_ - begin_ + kLineData - 1) / kLineData);
    }

    /// Whether this thread waited for something that did not come.
    [[nodiscard]] __device__ bool gave_up() const { return gave_up_; }

    __device__ void send() {
        for (uint32_t from = first_; from - first_ < lines_; from += step_ * kUnroll) {
            Words words[kUnroll];
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; ++u)
                words[u] = load(from + u * step_);
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; ++u) {
                const uint32_t line = from + u * step_;
                put_words(place_at(rank_of(line % owners_ + 1), job_.rank, line / owners_), words[u], line < lines_);
            }
        }
        const bool has_owner = first_ < owners_;
        const int owner = rank_of(has_owner ? first_ + 1 : 0);
        put_nothing(owner, has_owner && lines_of(first_ + 1) == 0);
        await(owner, 0, has_owner);
    }

    /// `mine`: of 1 to the number of owners.
    __device__ void pass_on(uint32_t mine) {
        put_nothing(job_.root, first_ == 0);
        if (lines_of(mine) == 0)
            for (uint32_t k = 1; k < owners_; ++k)
                put_nothing(rank_of(after(mine, k)), first_ == 0);
        receive(job_.root, mine, [&](uint32_t index, const Words &words, bool valid) {
            for (uint32_t k = 1; k < owners_; ++k)
                put_words(place_at(rank_of(after(mine, k)), job_.rank, index), words, valid);
        });
        for (uint32_t k = 1; k < owners_; ++k)
            receive(rank_of(after(mine, k)), after(mine, k), [](uint32_t, const Words &, bool) {});
    }

  private:
    static constexpr uint32_t kUnroll = 4;

    [[nodiscard]] __device__ int rank_of(uint32_t owner) const {
        return static_cast<int>((job_.root + owner) % static_cast<uint32_t>(job_.ranks));
    }
    [[nodiscard]] __device__ uint32_t after(uint32_t owner, uint32_t k) const {
        return (owner - 1 + k) % owners_ + 1;
    }
    /// Lines in turn belong to owners in turn.
    [[nodiscard]] __device__ uint32_t lines_of(uint32_t owner) const {
        return (lines_ + owners_ - owner) / owners_;
    }
    [[nodiscard]] __device__ char *place_at(int rank, int source, uint32_t index) const {
        return job_.windows[rank] + job_.layout.lines(flag_ % 2, blockIdx.x) + job_.layout.beside(source, rank) +
               index * kLineBytes + lane_ * sizeof(Words);
    }
    [[nodiscard]] __device__ bool has_flag() const {
        return lane_ == kLineLanes - 1;
    }
    [[nodiscard]] __device__ uint64_t offset(uint32_t line) const {
        return begin_ + line * kLineData + lane_ * sizeof(Words);
    }

    [[nodiscard]] __device__ Words load(uint32_t line) const {
        const uint64_t at = offset(line);
        Words words{0, flag_};
        if (at < end_)
            words.low = load_some(job_.in + at, end_ - at);
        if (!has_flag())
            words.high = at + sizeof(uint64_t) < end_
                             ? load_some(job_.in + at + sizeof(uint64_t), end_ - at - sizeof(uint64_t))
                             : 0;
        return words;
    }
    __device__ void store(uint32_t line, const Words &words) const {
        const uint64_t at = offset(line);
        if (at < end_)
            store_some(job_.out + at, words.low, end_ - at);
        if (!has_flag() && at + sizeof(uint64_t) < end_)
            store_some(job_.out + at + sizeof(uint64_t), words.high, end_ - at - sizeof(uint64_t));
    }
    __device__ void put_nothing(int rank, bool valid) const {
        put_words(place_at(rank, job_.rank, 0), Words{0, flag_}, valid);
    }
    __device__ Words await(int source, uint32_t index, bool valid) {
        const bool flagged = valid && has_flag();
        const Words words = await_lines(job_, place_at(job_.rank, source, index), flag_, source, valid, flagged);
        gave_up_ = gave_up_ || (flagged && words.high != flag_);
        return words;
    }

    /// The lines of `owner` that `source` sends.
    template <typename Then>
    __device__ __forceinline__ void receive(int source, uint32_t owner, const Then &then) {
        const uint32_t lines = lines_of(owner);
        if (lines == 0)
            await(source, 0, first_ == 0);
        for (uint32_t from = first_; from - first_ < lines; from += step_ * kUnroll) {
            Words words[kUnroll];
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; ++u)
                words[u] = look_at_words(place_at(job_.rank, source, from + u * step_), from + u * step_ < lines);
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; ++u) {
                const uint32_t index = from + u * step_;
                const bool valid = index < lines;
                if (missing(words[u], flag_, valid && has_flag()))
                    words[u] = await(source, index, valid);
                then(index, words[u], valid);
                if (valid)
                    store(index * owners_ + owner - 1, words[u]);
            }
        }
    }

    const Job &job_;
    uint32_t owners_;
    uint32_t lane_;
    uint32_t first_;
    uint32_t step_;
    uint64_t flag_ = 0;
    uint64_t begin_ = 0;
    uint64_t end_ = 0;
    uint32_t lines_ = 0;
    bool gave_up_ = false;
};

static __global__ void __launch_bounds__(kThreads) relay(const __grid_constant__ Job job) {
    auto *count = reinterpret_cast<uint32_t *>(job.windows[job.rank] + WindowLayout::line_count(blockIdx.x));
    const uint32_t before = *count;
    if (before == kGaveUp || gave_up_before(job)) {
        if (threadIdx.x == 0)
            count_ended(job, false);
        return;
    }
    const uint32_t rounds = job.steps(blockIdx.x);
    const auto place = static_cast<uint32_t>((job.rank - job.root + job.ranks) % job.ranks);
    Relay relay(job);
    bool ended = true;
    for (uint32_t round = 0; round < rounds && ended; ++round) {
        relay.begin_round(before + round + 1, uint64_t{round} * job.blocks + blockIdx.x);
        if (place == 0)
            relay.send();
        else
            relay.pass_on(place);
        ended = __syncthreads_or(relay.gave_up() ? 1 : 0) == 0;
    }
    const uint32_t after = before + rounds;
    if (threadIdx.x == 0) {
        *count = !ended             ? kGaveUp
                 : after == kGaveUp ? 1
                                    : after;  // odd after odd: the next flag is even as it would be
        count_ended(job, !ended);
    }
}

}  // namespace flx::cuda
