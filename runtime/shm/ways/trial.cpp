#include "runtime/shm/ways/trial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <limits>
#include <vector>

#include "runtime/base/clock.h"

namespace flx::shm {

using algorithms::Collective;

namespace {

constexpr int kWays = Ways::kAll.size();
constexpr std::array kTried = {Collective::allreduce, Collective::reduce_scatter_block,
                               Collective::allgather, Collective::bcast,
                               Collective::reduce,    Collective::alltoall};
/// Whatever disturbs a measurement makes it longer, so the shortest of some counts.
constexpr int kRounds = 6;
/// Calls back to back, where one is too short to be timed alone.
constexpr size_t kShortBytes = size_t{64} << 10;
constexpr int kShortCalls = 4;

/// Inputs of one rank with which two steps are tried.
constexpr std::array<size_t, 3> kSmall = {8, 512, 4096};
constexpr std::array kInTwo = {Collective::allreduce, Collective::allgather, Collective::barrier, Collective::bcast};

/// ns by collective of kInTwo, size, and whether in two steps.
using StepTimes = std::array<std::array<std::array<double, 2>, kSmall.size()>, kInTwo.size()>;

/// Nanoseconds of one operation, by collective, size and way.
using Times = std::array<std::array<std::array<double, kWays>, Ways::kSizes.size()>, algorithms::kCollectives>;

class Trial {
  public:
    Trial(int rank, int ranks, Fused &fused, Stream &stream, PeerMemory *peers, Waiter &waiter)
        : rank_(rank), ranks_(ranks), fused_(fused), stream_(stream), peers_(peers), waiter_(waiter) {}

    Status run_small(int64_t end_ns, StepTimes &times) {
        constexpr int kCalls = 8;
        for (size_t size = 0; size < kSmall.size() && kSmall[size] <= fused_.payload_bytes(); ++size) {
            for (size_t which = 0; which < kInTwo.size(); ++which) {
                if (kInTwo[which] == Collective::bcast && !fused_.tree().shaped())
                    continue;
                bool on = false;
                FLX_TRY(goes_on(end_ns, on));
                if (!on)
                    return {};
                for (int round = 0; round < kRounds; ++round) {
                    for (const bool two : {false, true}) {
                        fused_.set_two_steps(two ? TwoSteps{0, 0, true, 0} : TwoSteps{});
                        FLX_TRY(carry_small(kInTwo[which], kSmall[size]));
                        const int64_t began = now_ns();
                        for (int call = 0; call < kCalls; ++call)
                            FLX_TRY(carry_small(kInTwo[which], kSmall[size]));
                        double &time = times[which][size][two ? 1 : 0];
                        time = std::min(time, static_cast<double>(now_ns() - began));
                    }
                }
                fused_.set_two_steps({});
            }
        }
        return {};
    }

    Status run(int64_t end_ns, Times &times) {
        for (const Turn turn : turns()) {
            count_ = Ways::kSizes[turn.size] / sizeof(float) / ranks_ * ranks_;
            for (const Collective collective : kTried) {
                auto &of_sizes = times[algorithms::index_of(collective)];
                bool on = false;
                unsigned ways = worth_trying(collective, of_sizes[turn.size], turn.round);
                const bool choice = (ways & (ways - 1)) != 0;
                if (turn.size == kLargest && (!choice || now_ns() + expected_ns(ways, of_sizes) > end_ns))
                    ways = 0;
                FLX_TRY(goes_on(end_ns, on, ways, &ways));
                if (!on)
                    return {};
                if (ways == 0)
                    continue;
                in_.resize(std::max(in_.size(), count_));
                out_.resize(std::max(out_.size(), count_));
                FLX_TRY(time_all(collective, ways, of_sizes[turn.size]));
            }
        }
        return {};
    }

  private:
    static constexpr uint32_t kSignature = 0x77617973;
    static constexpr size_t kLargest = Ways::kTried - 1;

    struct Turn {
        int round;
        size_t size;
    };

    /// A few ranks try a size several times and then the next, as small ones take no time and large ones much. Many
    /// ranks try every size once, before the time is over, and then again, where more than one way is good; and the
    /// largest as well, once the others were tried twice.
    [[nodiscard]] std::vector<Turn> turns() const {
        std::vector<Turn> all;
        if (ranks_ >= TwoSteps::kLeastRanks) {
            for (int round = 0; round < kRounds; ++round) {
                for (size_t size = 0; size < kLargest; ++size)
                    all.push_back({round, size});
                if (round > 0)
                    all.push_back({round - 1, kLargest});
            }
            return all;
        }
        for (size_t size = 0; size < kLargest; ++size)
            for (int round = 0; round < kRounds; ++round)
                all.push_back({round, size});
        return all;
    }

    /// What the largest size will take in those ways, by what the one before took. Where that is not known: for ever.
    [[nodiscard]] static int64_t expected_ns(
        unsigned ways, const std::array<std::array<double, kWays>, Ways::kSizes.size()> &of_sizes) {
        constexpr double kTimes = 1.0 * Ways::kSizes[kLargest] / Ways::kSizes[kLargest - 1];
        constexpr double kForEver = 1e18;
        double sum = 0;
        for (unsigned way = 0; way < kWays; ++way)
            if ((ways >> way & 1) != 0)
                sum += kTimes * of_sizes[kLargest - 1][way];
        return static_cast<int64_t>(std::min(sum, kForEver));
    }

    /// Rank 0's clock, and its `ways`, decide for all.
    Status goes_on(int64_t end_ns, bool &on, unsigned ways = 0, unsigned *of_rank_0 = nullptr) {
        constexpr unsigned kOn = 0x80;
        auto word = static_cast<uint8_t>(now_ns() < end_ns ? kOn | ways : 0);
        FLX_TRY(fused_.bcast(&word, 1, 0, kSignature, waiter_));
        on = (word & kOn) != 0;
        if (of_rank_0 != nullptr)
            *of_rank_0 = word & (kOn - 1);
        return {};
    }

    /// A mask: those that are not known to be much slower than another. None, where only one is left. After one time a
    /// way may have been unlucky.
    [[nodiscard]] unsigned worth_trying(Collective collective, const std::array<double, kWays> &cell, int round) const {
        constexpr double kMuchAtOnce = 4;
        constexpr double kMuchLater = 2;
        const double much = round <= 1 ? kMuchAtOnce : kMuchLater;
        const double best = *std::ranges::min_element(cell);
        unsigned mask = 0;
        bool known = true;
        for (const Way way : Ways::kAll) {
            const double time = cell[static_cast<size_t>(way)];
            if (!exists(way, collective))
                continue;
            known = known && std::isfinite(time);
            if (!std::isfinite(time) || time <= much * best)
                mask |= 1U << static_cast<unsigned>(way);
        }
        return known && std::has_single_bit(mask) ? 0 : mask;
    }

    Status carry_small(Collective collective, size_t bytes) {
        in_.resize(bytes / sizeof(float));
        out_.resize(bytes / sizeof(float) * ranks_);
        if (collective == Collective::allreduce)
            return fused_.allreduce(in_.data(), out_.data(), in_.size(), FLX_F32, FLX_SUM, kSignature, waiter_);
        if (collective == Collective::allgather)
            return fused_.allgather(in_.data(), out_.data(), bytes, kSignature, waiter_);
        if (collective == Collective::bcast)
            return fused_.bcast(out_.data(), bytes, 0, kSignature, waiter_);
        return fused_.barrier(kSignature, waiter_);
    }

    [[nodiscard]] bool exists(Way way, Collective collective) const {
        const size_t bytes = count_ * sizeof(float);
        if (way == Way::fused)
            return input_bytes(collective, bytes, ranks_) <= fused_.payload_bytes();
        return way == Way::streamed || peers_ != nullptr;
    }

    Status time_all(Collective collective, unsigned ways, std::array<double, kWays> &best) {
        const int calls = count_ * sizeof(float) <= kShortBytes ? kShortCalls : 1;
        for (const Way way : Ways::kAll) {
            if ((ways >> static_cast<unsigned>(way) & 1) == 0)
                continue;
            FLX_TRY(fused_.barrier(kSignature, waiter_));
            const int64_t began = now_ns();
            for (int call = 0; call < calls; ++call)
                FLX_TRY(carry(way, collective));
            // A root that was first to finish may have made the others wait.
            FLX_TRY(fused_.barrier(kSignature, waiter_));
            double &time = best[static_cast<size_t>(way)];
            time = std::min(time, static_cast<double>(now_ns() - began) / calls);
        }
        return {};
    }

    Status carry(Way way, Collective collective) {
        Call call;
        call.operation = {.collective = collective,
                          .in = collective == Collective::bcast ? out_.data() : in_.data(),
                          .out = collective == Collective::reduce && rank_ != 0 ? nullptr : out_.data(),
                          .count = count_,
                          .dtype = FLX_F32,
                          .op = FLX_SUM,
                          .signature = kSignature};
        bool served = true;
        switch (way) {
            case Way::streamed:
                return stream_.run(call, waiter_);
            case Way::fetched:
                return peers_->run(call, fused_, waiter_, served);
            default:
                return fused_.run(call, waiter_);
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

/// Two steps from the least size on at which, and beyond which, they were clearly faster.
TwoSteps best_steps(const std::vector<StepTimes> &all) {
    const auto pays = [&](size_t which, size_t size) {
        double in_one = 0;
        double in_two = 0;
        for (const StepTimes &times : all) {
            in_one = std::max(in_one, times[which][size][0]);
            in_two = std::max(in_two, times[which][size][1]);
        }
        return in_two < Ways::kClearly * in_one;
    };
    const auto least = [&](size_t which) {
        size_t bytes = TwoSteps::kNever;
        for (size_t size = kSmall.size(); size-- > 0 && pays(which, size);)
            bytes = size == 0 ? 0 : (kSmall[size - 1] + kSmall[size]) / 2;
        return bytes;
    };
    return {least(0), least(1), pays(2, 0), least(3)};
}

Status try_steps(Bootstrap &bootstrap, Board &board, Fused &fused, Trial &trial, int64_t end_ns, Ways &ways) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    StepTimes mine;
    for (auto &of_collective : mine)
        for (auto &of_size : of_collective)
            of_size.fill(kNever);
    FLX_TRY(agree(bootstrap, told(board, [&] { return trial.run_small(end_ns, mine); })));
    std::vector<StepTimes> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    ways.two_steps = best_steps(all);
    fused.set_two_steps(ways.two_steps);
    return {};
}

}  // namespace

Status try_ways(Bootstrap &bootstrap, Board &board, Fused &fused, Stream &stream, PeerMemory *peers, Waiter &waiter,
                int64_t budget_ns, Ways &ways, size_t &tried) {
    tried = 0;
    constexpr double kNever = std::numeric_limits<double>::infinity();
    Times mine;
    for (auto &of_collective : mine)
        for (auto &of_size : of_collective)
            of_size.fill(kNever);
    const int64_t end_ns = now_ns() + budget_ns;
    Trial trial(bootstrap.rank(), bootstrap.size(), fused, stream, peers, waiter);
    // Steps of microseconds take milliseconds where ranks share cores.
    if (bootstrap.size() >= TwoSteps::kLeastRanks)
        FLX_TRY(try_steps(bootstrap, board, fused, trial, end_ns - budget_ns / 2, ways));
    FLX_TRY(agree(bootstrap, told(board, [&] { return trial.run(end_ns, mine); })));
    std::vector<Times> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    for (const Collective collective : kTried) {
        Way before = Way::fused;
        bool changed = false;  // there, by what was measured
        for (size_t size = 0; size < Ways::kTried; ++size) {
            std::array<double, kWays> slowest{};
            for (const Times &times : all)
                for (int way = 0; way < kWays; ++way)
                    slowest[way] = std::max(slowest[way], times[algorithms::index_of(collective)][size][way]);
            for (const Way way : Ways::kAll)
                ways.set_time(collective, size, way,
                              slowest[static_cast<size_t>(way)] / static_cast<double>(Ways::kSizes[size]));
            const auto best = std::ranges::min_element(slowest) - slowest.begin();
            const Way rule = ways.at(collective, Ways::kSizes[size]);
            if (std::isfinite(slowest[best]))
                tried = std::max(tried, Ways::kSizes[size]);
            // What there was no time for is like the size before.
            if (!std::isfinite(slowest[best])) {
                if (changed && before != Way::fused)
                    ways.set(collective, size, before);
            } else {
                changed = slowest[best] < Ways::kClearly * slowest[static_cast<size_t>(rule)];
                if (changed)
                    ways.set(collective, size, static_cast<Way>(best));
            }
            before = ways.at(collective, Ways::kSizes[size]);
        }
    }
    return {};
}

}  // namespace flx::shm
