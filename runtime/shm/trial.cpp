#include "trial.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "telemetry.h"

namespace flx::shm {

using algorithms::Collective;

namespace {

constexpr int kWays = 3;
constexpr std::array kTried = {Collective::allreduce, Collective::reduce_scatter_block,
                               Collective::allgather, Collective::bcast,
                               Collective::reduce,    Collective::alltoall};
/// Whatever disturbs a measurement makes it longer, so the shortest of some counts.
constexpr int kRounds = 6;
/// Calls back to back, where one is too short to be timed alone.
constexpr size_t kShortBytes = size_t{64} << 10;
constexpr int kShortCalls = 4;
/// Another way is taken where it needs at most this part of the time of the rule's.
constexpr double kClearly = 0.88;

/// Of one operation: seconds by collective, size and way.
using Times = std::array<std::array<std::array<double, kWays>, Ways::kSizes.size()>, Ways::kCollectives>;

class Trial {
  public:
    Trial(int rank, int ranks, Fused &fused, Stream &stream, PeerMemory *peers, Waiter &waiter)
        : rank_(rank), ranks_(ranks), fused_(fused), stream_(stream), peers_(peers), waiter_(waiter) {}

    Status run(int64_t budget_ns, Times &times) {
        const int64_t end = now_ns() + budget_ns;
        for (size_t size = 0; size < Ways::kSizes.size(); ++size) {
            count_ = Ways::kSizes[size] / sizeof(float) / ranks_ * ranks_;
            in_.resize(count_);
            out_.resize(count_);
            for (const Collective collective : kTried) {
                // Rank 0's clock decides for all.
                uint8_t goes_on = now_ns() < end ? 1 : 0;
                FLX_TRY(fused_.bcast(&goes_on, 1, 0, kSignature, waiter_));
                if (goes_on == 0)
                    return {};
                for (int round = 0; round < kRounds; ++round)
                    FLX_TRY(time_all(collective, times[static_cast<size_t>(collective)][size]));
            }
        }
        return {};
    }

  private:
    static constexpr uint32_t kSignature = 0x77617973;

    [[nodiscard]] bool exists(Way way, Collective collective) const {
        const size_t bytes = count_ * sizeof(float);
        if (way == Way::fused)
            return (collective == Collective::allgather ? bytes / ranks_ : bytes) <= fused_.payload_bytes();
        return way == Way::streamed || peers_ != nullptr;
    }

    Status time_all(Collective collective, std::array<double, kWays> &best) {
        const int calls = count_ * sizeof(float) <= kShortBytes ? kShortCalls : 1;
        for (const Way way : {Way::fused, Way::streamed, Way::fetched}) {
            if (!exists(way, collective))
                continue;
            FLX_TRY(fused_.barrier(kSignature, waiter_));
            const int64_t began = now_ns();
            for (int call = 0; call < calls; ++call)
                FLX_TRY(carry(way, collective));
            // A root that was first to finish may have made the others wait.
            FLX_TRY(fused_.barrier(kSignature, waiter_));
            double &time = best[static_cast<size_t>(way)];
            time = std::min(time, static_cast<double>(now_ns() - began));
        }
        return {};
    }

    Status carry(Way way, Collective collective) {
        const float *in = in_.data();
        float *out = out_.data();
        const size_t block = count_ / ranks_;
        constexpr auto kType = FLX_F32;
        bool served = true;
        if (way == Way::streamed)
            return stream_.run(collective, in, out, count_, kType, FLX_SUM, 0, kSignature, waiter_);
        if (way == Way::fetched)
            return peers_->run(collective, collective == Collective::bcast ? out : in,
                               collective == Collective::reduce && rank_ != 0 ? nullptr : out, count_, kType, FLX_SUM,
                               0, kSignature, fused_, waiter_, served);
        switch (collective) {
            case Collective::allreduce:
                return fused_.allreduce(in, out, count_, kType, FLX_SUM, kSignature, waiter_);
            case Collective::reduce_scatter_block:
                return fused_.reduce_scatter_block(in, out, block, kType, FLX_SUM, kSignature, waiter_);
            case Collective::allgather:
                return fused_.allgather(in, out, block * sizeof(float), kSignature, waiter_);
            case Collective::bcast:
                return fused_.bcast(out, count_ * sizeof(float), 0, kSignature, waiter_);
            case Collective::reduce:
                return fused_.reduce(in, out, count_, kType, FLX_SUM, 0, kSignature, waiter_);
            default:
                return fused_.alltoall(in, out, block * sizeof(float), kSignature, waiter_);
        }
    }

    int rank_;
    int ranks_;
    Fused &fused_;
    Stream &stream_;
    PeerMemory *peers_;
    Waiter &waiter_;
    size_t count_ = 0;
    std::vector<float> in_, out_;
};

}  // namespace

Status try_ways(Bootstrap &bootstrap, Fused &fused, Stream &stream, PeerMemory *peers, Waiter &waiter,
                int64_t budget_ns, Ways &ways) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    Times mine;
    for (auto &of_collective : mine)
        for (auto &of_size : of_collective)
            of_size.fill(kNever);
    const Status status = Trial(bootstrap.rank(), bootstrap.size(), fused, stream, peers, waiter).run(budget_ns, mine);
    FLX_TRY(agree(bootstrap, status));
    std::vector<Times> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    for (const Collective collective : kTried) {
        for (size_t size = 0; size < Ways::kSizes.size(); ++size) {
            std::array<double, kWays> slowest{};
            for (const Times &times : all)
                for (int way = 0; way < kWays; ++way)
                    slowest[way] = std::max(slowest[way], times[static_cast<size_t>(collective)][size][way]);
            const auto best = std::ranges::min_element(slowest) - slowest.begin();
            const double of_rule = slowest[static_cast<size_t>(ways.at(collective, Ways::kSizes[size]))];
            if (slowest[best] < kClearly * of_rule)
                ways.set(collective, size, static_cast<Way>(best));
        }
    }
    return {};
}

}  // namespace flx::shm
