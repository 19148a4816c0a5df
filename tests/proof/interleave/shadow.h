/// \file shadow.h
/// Which accesses to payload are not ordered: of each byte, who wrote it last and who read it since, by vector clocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/proof/interleave/explorer.h"

namespace flx::interleave {

/// By rank: how many of its releases happened before, counted from 1.
using Clock = std::array<uint16_t, kMostRanks>;

class Shadow {
  public:
    Shadow() : bytes_(kArenaBytes) {}

    struct Race {
        int rank = -1;  ///< -1: none
        size_t offset = 0;
        bool wrote = false;  ///< that rank
    };
    /// An access of a rank whose clock this is. A race: with what another rank did.
    Race read(int rank, const Clock &clock, size_t offset, size_t bytes);
    Race write(int rank, const Clock &clock, size_t offset, size_t bytes);

    /// Forgets all, and makes what was written in `memory` zero.
    void clear(std::byte *memory);
    /// That clear() shall make it zero.
    void touched(size_t offset, size_t bytes) { touched_.emplace_back(offset, bytes); }

  private:
    struct Byte {
        uint16_t written = 0;
        uint16_t writer = 0;
        Clock read{};
    };
    std::vector<Byte> bytes_;
    std::vector<std::pair<size_t, size_t>> touched_;
};

inline Shadow::Race Shadow::read(int rank, const Clock &clock, size_t offset, size_t bytes) {
    touched(offset, bytes);
    for (size_t at = offset; at < offset + bytes; ++at) {
        Byte &byte = bytes_[at];
        if (byte.written > clock[byte.writer] && byte.writer != rank)
            return {byte.writer, at, true};
        byte.read[rank] = clock[rank];
    }
    return {};
}

inline Shadow::Race Shadow::write(int rank, const Clock &clock, size_t offset, size_t bytes) {
    touched(offset, bytes);
    for (size_t at = offset; at < offset + bytes; ++at) {
        Byte &byte = bytes_[at];
        if (byte.written > clock[byte.writer] && byte.writer != rank)
            return {byte.writer, at, true};
        for (int other = 0; other < kMostRanks; ++other)
            if (byte.read[other] > clock[other] && other != rank)
                return {other, at, false};
        byte.written = clock[rank];
        byte.writer = static_cast<uint16_t>(rank);
    }
    return {};
}

inline void Shadow::clear(std::byte *memory) {
    for (const auto &[offset, bytes] : touched_)
        for (size_t at = offset; at < offset + bytes; ++at) {
            bytes_[at] = {};
            memory[at] = std::byte{0};
        }
    touched_.clear();
}

}  // namespace flx::interleave
