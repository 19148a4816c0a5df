#include "runtime/shm/copies/engine_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace flx::shm {

bool EngineUse::next(algorithms::Collective collective, size_t bytes) {
    last_ = nullptr;
    if (bytes < kLeast)
        return false;
    const int power = std::min<int>(std::bit_width(bytes / kLeast), kClasses) - 1;
    Cell &cell = cells_[algorithms::index_of(collective)][power];
    if (!cell.looks && --cell.left == 0) {
        cell.looks = true;
        cell.with = !cell.uses;
        cell.calls = 0;
        cell.times[cell.with ? 1 : 0] = kUnknown;
    }
    last_ = &cell;
    bytes_ = static_cast<double>(bytes);
    with_ = cell.looks ? cell.with : cell.uses;
    return with_;
}

void EngineUse::took(int64_t ns, bool took_part) {
    Cell *cell = std::exchange(last_, nullptr);
    if (cell == nullptr)
        return;
    const double time = static_cast<double>(ns) / bytes_;
    if (with_ && !took_part) {
        if (++cell->in_vain < kInVain)
            return;
        cell->uses = cell->looks = false;
        cell->in_vain = 0;
        cell->pause = cell->left = std::min(kMost, cell->pause * 8);
        return;
    }
    cell->in_vain = 0;
    double &known = cell->times[with_ ? 1 : 0];
    if (!cell->looks) {
        known += (time - known) / 4;
        if (cell->uses && known > cell->times[0])
            cell->left = std::min(cell->left, kSoon);
        return;
    }
    if (++cell->calls == 1)
        return;
    known = std::min(known, time);
    if (cell->calls == kCalls || time > kHopeless * cell->times[with_ ? 0 : 1])
        end_look(*cell);
}

void EngineUse::end_look(Cell &cell) {
    const auto [without, with] = cell.times;
    if (with == kUnknown) {  // of the first two
        cell.with = true;
        cell.calls = 0;
        return;
    }
    const bool better = with < kClearly * without;
    const double other = cell.uses ? without / with : with / without;
    if (better != cell.uses)
        cell.pause = kFirst;
    else
        cell.pause = std::min(kMost, cell.pause * (other > kHopeless ? 8 : 2));
    cell.uses = better;
    cell.looks = false;
    cell.left = cell.pause;
}

std::vector<Decision> EngineUse::explain() const {
    std::vector<Decision> decisions;
    for (const algorithms::Traits &traits : algorithms::kTraits) {
        for (size_t power = 0; power < kClasses; ++power) {
            const Cell &cell = cells_[algorithms::index_of(traits.collective)][power];
            const auto [without, with] = cell.times;
            if (without == kUnknown || with == kUnknown)
                continue;
            const size_t bytes = kLeast << power;
            const double us = static_cast<double>(bytes) / 1e3;
            decisions.push_back({std::string(traits.name), bytes, cell.uses ? "a copy engine helps" : "the cores alone",
                                 fmt::format("{:.0f} us with an engine, {:.0f} without", with * us, without * us)});
        }
    }
    return decisions;
}

}  // namespace flx::shm
