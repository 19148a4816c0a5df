/// \file id_ranges.h
/// A set of numbers that are given out in rising order and never again, such as those of communicators: as ranges, of
/// which there are few however many numbers there were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace flx {

class IdRanges {
  public:
    void insert(uint32_t id) {
        if (contains(id))
            return;
        const auto next = ranges_.upper_bound(id);
        const uint64_t end = next != ranges_.end() && next->first == uint64_t{id} + 1 ? next->second : uint64_t{id} + 1;
        if (next != ranges_.begin() && std::prev(next)->second == id)
            std::prev(next)->second = end;
        else
            ranges_[id] = end;
        if (end != uint64_t{id} + 1)
            ranges_.erase(next);
    }
    void erase(uint32_t id) {
        if (!contains(id))
            return;
        const auto range = std::prev(ranges_.upper_bound(id));
        const uint64_t end = range->second;
        if (range->first == id)
            ranges_.erase(range);
        else
            range->second = id;
        if (uint64_t{id} + 1 != end)
            ranges_[uint64_t{id} + 1] = end;
    }
    [[nodiscard]] bool contains(uint32_t id) const {
        const auto next = ranges_.upper_bound(id);
        return next != ranges_.begin() && id < std::prev(next)->second;
    }
    [[nodiscard]] size_t ranges() const { return ranges_.size(); }

  private:
    std::map<uint64_t, uint64_t> ranges_;  // from the first to before the second, neither empty nor side by side
};

}  // namespace flx
