#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "runtime/shm/ways/stream.h"
#include "tests/proof/interleave/programs.h"

namespace flx::interleave {
namespace {

using algorithms::Collective;
using shm::Stream;

/// Of a region, in the copies that are proved.
constexpr size_t kBlock = 64;
/// Rings are as short as they may be.
constexpr size_t kBudget = 1;

constexpr std::pair<Collective, const char *> kNames[] = {{Collective::allreduce, "allreduce"},
                                                          {Collective::reduce, "reduce"},
                                                          {Collective::reduce_scatter_block, "rs_block"},
                                                          {Collective::allgather, "allgather"},
                                                          {Collective::alltoall, "alltoall"},
                                                          {Collective::bcast, "bcast"}};

struct Call {
    Collective collective;
    size_t blocks;  ///< of a region, or of all where there are no regions
    int root = 0;

    [[nodiscard]] std::string text() const {
        for (const auto &[is, name] : kNames)
            if (is == collective)
                return fmt::format("{} of {} blocks{}", name, blocks, root != 0 ? fmt::format(" @{}", root) : "");
        return {};
    }
};
using Calls = std::vector<Call>;

struct Case {
    int ranks;
    size_t cache_share;  ///< 0: all go round the whole ring
    Calls calls;
};

class Rank {
  public:
    Rank(const Case &of, int rank)
        : of_(of), rank_(rank), ranks_(of.ranks), stream_(arena(), rank, of.ranks, kBudget, nullptr, of.cache_share) {}

    void run() {
        for (number_ = 0; number_ < of_.calls.size(); ++number_) {
            const Call &call = of_.calls[number_];
            begin_operation(fmt::format("{}: {}", number_ + 1, call.text()));
            prepare(call);
            Waiter waiter(policy_, watch_);
            flx::Call streamed;
            streamed.operation = {.collective = call.collective,
                                  .in = in_.data(),
                                  .out = out_.data(),
                                  .count = count_,
                                  .dtype = FLX_UINT8,
                                  .op = FLX_SUM,
                                  .root = call.root,
                                  .signature = static_cast<uint32_t>(number_ + 1)};
            const Status status = stream_.run(streamed, waiter);
            if (!status.ok())
                wrong("error", fmt::format("rank {}, operation {}: {}", rank_, number_ + 1, status.sentence()));
            for (size_t at = 0; at < expected_.size(); ++at)
                if (out_[at] != expected_[at])
                    wrong("wrong bytes", fmt::format("rank {}, operation {}: byte {} is {} instead of {}", rank_,
                                                     number_ + 1, at, out_[at], expected_[at]));
        }
    }

  private:
    /// Buffers, and what is to come out.
    void prepare(const Call &call) {
        const bool whole =
            call.collective == Collective::bcast || (call.collective == Collective::reduce && ranks_ == 2);
        const size_t region = call.blocks * kBlock - 3;  // the last block is not full
        count_ = whole ? call.blocks * kBlock * ranks_ - 3 : region * ranks_;
        in_.resize(count_);
        for (size_t at = 0; at < count_; ++at)
            in_[at] = given(number_, rank_, at);
        const auto sum = [&](size_t at) {
            uint8_t total = 0;
            for (int rank = 0; rank < ranks_; ++rank)
                total = static_cast<uint8_t>(total + given(number_, rank, at));
            return total;
        };
        expected_.assign(count_, 0);
        for (size_t at = 0; at < count_; ++at) {
            const auto owner = static_cast<int>(at / region);
            switch (call.collective) {
                case Collective::allgather:
                    expected_[at] = given(number_, owner, at % region);
                    break;
                case Collective::alltoall:
                    expected_[at] = given(number_, owner, rank_ * region + at % region);
                    break;
                case Collective::bcast:
                    expected_[at] = given(number_, call.root, at);
                    break;
                case Collective::reduce_scatter_block:
                    expected_[at] = sum(rank_ * region + at % region);
                    break;
                default:
                    expected_[at] = sum(at);
            }
        }
        if (call.collective == Collective::reduce_scatter_block)
            expected_.resize(region);
        if (call.collective == Collective::reduce && rank_ != call.root)
            expected_.clear();
        out_.assign(count_, 0xee);
        if (call.collective == Collective::bcast && rank_ == call.root)
            out_ = expected_;
    }

    const Case &of_;
    int rank_;
    int ranks_;
    Stream stream_;
    WaitPolicy policy_{.spins = 0};
    NoWatch watch_;
    size_t number_ = 0;
    size_t count_ = 0;
    std::vector<uint8_t> in_;
    std::vector<uint8_t> out_;
    std::vector<uint8_t> expected_;
};

std::string place_of(int ranks, size_t offset) {
    const shm::Area rings = Stream::area(ranks, kBudget);
    if (offset >= rings.offset)
        return fmt::format("rank {}'s ring + {}", (offset - rings.offset) / rings.stride,
                           (offset - rings.offset) % rings.stride);
    constexpr const char *kCounters[] = {"blocks staged", "blocks reduced", "blocks fetched", "tag"};
    const size_t each = rings.offset / ranks;
    return fmt::format("rank {}'s {} + {}", offset / each, kCounters[offset % each / 64], offset % 64);
}

Family sequences(std::string name, int ranks, size_t cache_share, size_t length, const Calls &of, bool full = false) {
    const auto calls = std::make_shared<const Calls>(of);
    size_t programs = 1;
    for (size_t i = 0; i < length; ++i)
        programs *= of.size();
    const auto calls_of = [calls, length](size_t number) {
        Calls chosen;
        for (size_t i = 0; i < length; ++i, number /= calls->size())
            chosen.push_back((*calls)[number % calls->size()]);
        return chosen;
    };
    return {std::move(name),
            ranks,
            programs,
            [=](size_t number) {
                return program_of<Rank>(Case{ranks, cache_share, calls_of(number)},
                                        [ranks](size_t offset) { return place_of(ranks, offset); });
            },
            [=](size_t number) {
                std::string text;
                for (const Call &call : calls_of(number))
                    text += (text.empty() ? "" : ", ") + call.text();
                return text;
            },
            full};
}

Calls all_calls(int ranks, std::initializer_list<size_t> blocks) {
    Calls calls;
    for (const size_t so_many : blocks)
        for (const auto &[collective, name] : kNames) {
            calls.push_back({collective, so_many, 0});
            if (collective == Collective::bcast || collective == Collective::reduce)
                calls.push_back({collective, so_many, ranks - 1});
        }
    return calls;
}

}  // namespace

std::vector<Family> stream_families() {
    // So short that each length of a block's parts has a way of its own round the ring.
    constexpr size_t kShare = 8 * kBlock;
    std::vector<Family> families;
    families.push_back(sequences("stream, 2 ranks: one call", 2, 0, 1, all_calls(2, {1, 2})));
    families.push_back(sequences("stream, 2 ranks: pairs", 2, 0, 2, all_calls(2, {1})));
    families.push_back(sequences("stream, 2 ranks: pairs, other rounds", 2, kShare, 2, all_calls(2, {1})));
    families.push_back(sequences("stream, 2 ranks: one way", 2, 0, 1,
                                 {{Collective::bcast, 5, 0},
                                  {Collective::bcast, 5, 1},
                                  {Collective::reduce, 5, 0},
                                  {Collective::reduce, 5, 1}}));
    families.push_back(sequences("stream, 2 ranks: three calls", 2, 0, 3, all_calls(2, {1}), true));
    families.push_back(sequences("stream, 2 ranks: three calls, other rounds", 2, kShare, 3, all_calls(2, {1}), true));
    families.push_back(sequences("stream, 3 ranks: one call", 3, 0, 1, all_calls(3, {1})));
    families.push_back(sequences("stream, 3 ranks: pairs", 3, 0, 2, all_calls(3, {1}), true));
    return families;
}

}  // namespace flx::interleave
