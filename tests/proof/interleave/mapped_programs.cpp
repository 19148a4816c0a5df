#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>

#include "runtime/shm/copies/mapped.h"
#include "runtime/shm/ways/fused.h"
#include "tests/proof/interleave/programs.h"

namespace flx::interleave {
namespace {

using algorithms::Collective;

/// Ranks' buffers lie in the arena, behind what they show each other.
constexpr size_t kBuffersAt = size_t{64} << 10;
constexpr size_t kBufferBytes = 1024;

constexpr std::pair<Collective, const char *> kNames[] = {{Collective::allreduce, "allreduce"},
                                                          {Collective::reduce, "reduce"},
                                                          {Collective::reduce_scatter_block, "rs_block"},
                                                          {Collective::allgather, "allgather"},
                                                          {Collective::alltoall, "alltoall"},
                                                          {Collective::bcast, "bcast"},
                                                          {Collective::gather, "gather"},
                                                          {Collective::scatter, "scatter"}};

struct Call {
    Collective collective;
    int root = 0;
};
using Calls = std::vector<Call>;

std::string text_of(const Calls &calls) {
    std::string text;
    for (const Call &call : calls)
        for (const auto &[is, name] : kNames)
            if (is == call.collective)
                text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name,
                                    call.root != 0 ? fmt::format(" @{}", call.root) : "");
    return text;
}

struct Case {
    int ranks;
    Calls calls;
};

/// As PeerMemory::run does where all is mapped: ranks show each other where their buffers are, each does its part, and
/// none returns before all have.
class Rank {
  public:
    Rank(const Case &of, int rank)
        : of_(of), rank_(rank), ranks_(of.ranks), fused_(arena(), rank, of.ranks, 64), mapped_(rank, of.ranks) {}

    void run() {
        for (number_ = 0; number_ < of_.calls.size(); ++number_) {
            const Call &call = of_.calls[number_];
            begin_operation(fmt::format("{}: {}", number_ + 1, text_of({call})));
            const size_t block = 67;
            const size_t count = block * ranks_;
            std::vector<uint8_t> given_bytes(count);
            for (size_t at = 0; at < count; ++at)
                given_bytes[at] = given(number_, rank_, at);
            const bool is_bcast = call.collective == Collective::bcast;
            std::memcpy(is_bcast ? out(rank_) : in(rank_), given_bytes.data(), count);
            Waiter waiter(policy_, watch_);
            Status status = carry_out(call, count, waiter);
            if (!status.ok())
                wrong("error", status.sentence());
            check(call, block);
        }
    }

  private:
    [[nodiscard]] static std::byte *in(int rank) { return arena() + kBuffersAt + 2 * rank * kBufferBytes; }
    [[nodiscard]] static std::byte *out(int rank) { return in(rank) + kBufferBytes; }

    Status carry_out(const Call &call, size_t count, Waiter &waiter) {
        const auto signature = static_cast<uint32_t>(number_ + 1);
        const uint64_t card = rank_;
        std::array<uint64_t, kMostRanks> cards{};
        FLX_TRY(fused_.allgather(&card, cards.data(), sizeof card, signature, waiter));
        std::vector<shm::Mapped::Buffers> buffers;
        for (int rank = 0; rank < ranks_; ++rank)
            buffers.push_back({in(static_cast<int>(cards[rank])), out(static_cast<int>(cards[rank]))});
        flx::Call mapped;
        mapped.operation = {.collective = call.collective,
                            .in = in(rank_),
                            .out = out(rank_),
                            .count = count,
                            .dtype = FLX_UINT8,
                            .op = FLX_SUM,
                            .root = call.root};
        FLX_TRY(mapped_.run(mapped, buffers));
        return fused_.barrier(signature, waiter);
    }

    void check(const Call &call, size_t block) {
        const bool at_root = call.collective == Collective::reduce || call.collective == Collective::gather;
        if (at_root && rank_ != call.root)
            return;
        const auto sum = [&](size_t at) {
            uint8_t total = 0;
            for (int rank = 0; rank < ranks_; ++rank)
                total = static_cast<uint8_t>(total + given(number_, rank, at));
            return total;
        };
        const bool one_block =
            call.collective == Collective::scatter || call.collective == Collective::reduce_scatter_block;
        std::vector<uint8_t> got(one_block ? block : block * ranks_);
        std::memcpy(got.data(), out(rank_), got.size());
        for (size_t at = 0; at < got.size(); ++at) {
            const auto from = static_cast<int>(at / block);
            uint8_t expected = 0;
            switch (call.collective) {
                case Collective::allgather:
                case Collective::gather:
                    expected = given(number_, from, at % block);
                    break;
                case Collective::alltoall:
                    expected = given(number_, from, rank_ * block + at % block);
                    break;
                case Collective::bcast:
                    expected = given(number_, call.root, at);
                    break;
                case Collective::scatter:
                    expected = given(number_, call.root, rank_ * block + at);
                    break;
                case Collective::reduce_scatter_block:
                    expected = sum(rank_ * block + at);
                    break;
                default:
                    expected = sum(at);
            }
            if (got[at] != expected)
                wrong("wrong bytes", fmt::format("rank {}, operation {}: byte {} is {} instead of {}", rank_,
                                                 number_ + 1, at, got[at], expected));
        }
    }

    const Case &of_;
    int rank_;
    int ranks_;
    shm::Fused fused_;
    shm::Mapped mapped_;
    WaitPolicy policy_{.spins = 0};
    NoWatch watch_;
    size_t number_ = 0;
};

std::string place_of(size_t offset) {
    if (offset < kBuffersAt)
        return fmt::format("what ranks show each other, byte {}", offset);
    const size_t buffer = (offset - kBuffersAt) / kBufferBytes;
    return fmt::format("rank {}'s {} buffer + {}", buffer / 2, buffer % 2 == 0 ? "input" : "output",
                       offset % kBufferBytes);
}

Family pairs(std::string name, int ranks) {
    Calls all;
    for (const auto &[collective, of] : kNames)
        for (const int root : {0, ranks - 1})
            all.push_back({collective, root});
    const auto calls_of = [all](size_t number) { return Calls{all[number % all.size()], all[number / all.size()]}; };
    return {std::move(name),
            ranks,
            all.size() * all.size(),
            [=](size_t number) {
                return program_of<Rank>(Case{ranks, calls_of(number)}, place_of);
            },
            [=](size_t number) { return text_of(calls_of(number)); },
            false};
}

}  // namespace

std::vector<Family> mapped_families() {
    return {pairs("mapped, 2 ranks: pairs", 2), pairs("mapped, 3 ranks: pairs", 3)};
}

}  // namespace flx::interleave
