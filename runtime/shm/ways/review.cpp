#include "runtime/shm/ways/review.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace flx::shm {

using algorithms::Collective;

namespace {

/// The part of a program's time in calls of a collective and size that looks at its ways may take.
constexpr double kShare = 0.01;
constexpr double kLeastCalls = 64;
constexpr double kMostCalls = 1U << 20;
/// The part of a timed call's own time that two barriers cost.
constexpr double kBarriers = 0.25;
/// After a round, ways that took more than this times the best are no longer looked at.
constexpr double kFar = 1.5;
/// A way that took more than this times the best is left out of the next looks, but for one in kAllEvery.
constexpr double kHopeless = 3;
constexpr uint8_t kAllEvery = 8;
/// What takes more than this times what it took when it was chosen is looked at again at once.
constexpr double kMuchWorse = 1.6;
/// The smallest size that is checked: for smaller ones, a check would be a large part.
constexpr size_t kLeastChecked = size_t{64} << 10;

constexpr uint8_t bit(Way way) {
    return static_cast<uint8_t>(1U << static_cast<unsigned>(way));
}

/// The way of a call of a round: those of the mask, each for so many calls.
Way way_of(uint8_t mask, int turn) {
    for (; turn > 0; --turn)
        mask &= static_cast<uint8_t>(mask - 1);
    return static_cast<Way>(std::countr_zero(mask));
}

}  // namespace

Review::Review(int ranks, bool fetches, size_t fused_bytes)
    : ranks_(ranks), fetches_(fetches), fused_bytes_(fused_bytes), all_(static_cast<size_t>(ranks)) {}

uint8_t Review::existing(Collective collective, size_t bytes) const {
    const bool fits = input_bytes(collective, bytes, ranks_) <= fused_bytes_;
    return static_cast<uint8_t>((fits ? bit(Way::fused) : 0U) | bit(Way::streamed) |
                                (fetches_ ? bit(Way::fetched) : 0U));
}

uint8_t Review::worth_a_look(const Cell &cell, const Times &known, Way now, uint8_t existing) {
    if (cell.looks % kAllEvery == kAllEvery - 1)
        return existing;
    const double best = *std::ranges::min_element(known);
    uint8_t ways = bit(now);
    for (const Way way : Ways::kAll) {
        const double time = known[static_cast<size_t>(way)];
        if (!std::isfinite(time) || time <= kHopeless * best)
            ways |= bit(way);
    }
    return ways & existing;
}

std::optional<Review::Look> Review::next(Collective collective, size_t bytes, const Ways &ways) {
    const std::optional<size_t> index = Ways::size_index(bytes);
    if (!index)
        return {};
    Cell &cell = cells_[algorithms::index_of(collective)][*index];
    if (!std::exchange(cell.called, true)) {
        const Times &known = ways.times(collective, *index);
        if (std::ranges::none_of(known, [](double time) { return std::isfinite(time); }))
            cell.calls_left = kFirstUntried;
    }
    const uint8_t existing = this->existing(collective, bytes);
    const Way now = ways.at(collective, bytes);
    if (cell.calls_left > 0 && !cell.checks) {
        --cell.calls_left;
        if ((existing & bit(now)) == 0 || !check_due(cell, *index, ways.times(collective, *index), now))
            return {};
        cell.checks = true;
        cell.ways = bit(now);
        cell.times.fill(Ways::kUnknown);
    }
    if (cell.ways == 0) {
        cell.ways = worth_a_look(cell, ways.times(collective, *index), ways.at(collective, bytes), existing);
        cell.times.fill(Ways::kUnknown);
    }
    // Some calls of a cell may be too large to be fused.
    if ((cell.ways & ~existing) != 0) {
        cell.ways &= existing;
        cell.call = 0;
        cell.run_ns = cell.run_bytes = 0;
    }
    if (std::popcount(cell.ways) < (cell.checks ? 1 : 2)) {  // nothing to compare
        cell.checks = false;
        end_look(cell, 0);
        return {};
    }
    cell_ = &cell;
    collective_ = collective;
    size_index_ = *index;
    bytes_ = bytes;
    const int calls = calls_of(collective, *index);
    way_ = way_of(cell.ways, cell.call / calls);
    ends_ = !overlap(collective, *index) || (cell.call + 1) % calls == 0;
    return Look{way_, !overlap(collective, *index) || cell.call % calls == 0, ends_};
}

bool Review::check_due(Cell &cell, size_t size_index, const Times &known, Way now) {
    if (Ways::kSizes[size_index] < kLeastChecked || !std::isfinite(known[static_cast<size_t>(now)]) ||
        --cell.check_in > 0)
        return false;
    const size_t shorter = std::bit_width(Ways::kSizes[size_index] >> 20);  // from 1 MiB on
    cell.check_in = std::max<uint32_t>(2, cell.check_after >> shorter);
    return true;
}

bool Review::took(int64_t ns) {
    Cell &cell = *cell_;
    cell.run_ns += static_cast<double>(ns);
    cell.run_bytes += static_cast<double>(bytes_);
    ++cell.call;
    if (!ends_)
        return false;
    double &time = cell.times[static_cast<size_t>(way_)];
    time = std::min(time, cell.run_ns / cell.run_bytes);
    cell.run_ns = cell.run_bytes = 0;
    return cell.call == calls_of(collective_, size_index_) * std::popcount(cell.ways);
}

bool Review::judge(Ways &ways) {
    Cell &cell = *cell_;
    Times slowest{};
    for (const Times &one : all_)
        for (size_t way = 0; way < slowest.size(); ++way)
            slowest[way] = std::max(slowest[way], one[way]);
    const auto best = static_cast<Way>(std::ranges::min_element(slowest) - slowest.begin());
    const double least = slowest[static_cast<size_t>(best)];
    const Way now = ways.at(collective_, Ways::kSizes[size_index_]);
    if (std::exchange(cell.checks, false)) {
        const double before = ways.times(collective_, size_index_)[static_cast<size_t>(now)];
        const bool worse = slowest[static_cast<size_t>(now)] > kMuchWorse * before;
        cell.ways = cell.call = 0;
        if (worse) {
            cell.calls_left = 0;
            cell.looks = kAllEvery - 1;  // what was hopeless may be the best now
        }
        cell.check_after = worse ? std::min(2 * cell.check_after, kMostCheckAfter)  // if in vain, seldom
                                 : std::max(cell.check_after / 2, kCheckAfter);
        return false;
    }
    uint8_t near = bit(now);
    for (const Way way : Ways::kAll) {
        const double time = slowest[static_cast<size_t>(way)];
        if ((cell.ways & bit(way)) == 0)
            continue;
        cell.calls += calls_of(collective_, size_index_);
        cell.taken += calls_of(collective_, size_index_) * time;
        ways.set_time(collective_, size_index_, way, time);
        if (time <= kFar * least)
            near |= bit(way);
    }
    near &= cell.ways;
    cell.call = 0;
    ++cell.round;
    // What the table says was not among them where these calls are too large for it.
    const double taken = slowest[static_cast<size_t>(now)];
    const bool changes = std::isfinite(taken) && least < Ways::kClearly * taken;
    const bool clear = least * kHopeless < taken;
    if (cell.round < (changes && !clear ? kRoundsToChange : kRounds) && !std::has_single_bit(near)) {
        cell.ways = near;
        return false;
    }
    // What a better way was found with is not lost.
    end_look(cell, cell.taken / (changes ? taken : least) - (1 - kBarriers) * cell.calls);
    ++looks_;
    if (changes) {
        cell.check_after = cell.check_in = kCheckAfter;
        ++changes_;
        ways.set(collective_, size_index_, best);
    }
    return changes;
}

void Review::end_look(Cell &cell, double cost) {
    cell.calls_left = static_cast<uint32_t>(std::clamp(cost / kShare, kLeastCalls, kMostCalls));
    ++cell.looks;
    cell.ways = cell.round = cell.call = 0;
    cell.calls = cell.taken = 0;
}

std::vector<Decision> Review::explain(const Ways &ways) const {
    std::vector<Decision> decisions;
    for (const algorithms::Traits &traits : algorithms::kTraits) {
        for (size_t size = 0; size < Ways::kSizes.size(); ++size) {
            const Cell &cell = cells_[algorithms::index_of(traits.collective)][size];
            if (!cell.called)
                continue;
            const size_t bytes = Ways::kSizes[size];
            Decision decision{std::string(traits.name), bytes, name_of(ways.at(traits.collective, bytes)), {}};
            for (const Way way : Ways::kAll) {
                const double time = ways.times(traits.collective, size)[static_cast<size_t>(way)];
                if (std::isfinite(time))
                    decision.from +=
                        fmt::format("{} {:.1f} us, ", name_of(way), time * static_cast<double>(bytes) / 1e3);
            }
            decision.from += fmt::format("looks since the trial: {}", cell.looks);
            decisions.push_back(std::move(decision));
        }
    }
    return decisions;
}

}  // namespace flx::shm
