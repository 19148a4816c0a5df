/// \file engine_use.h
/// Whether a copy engine is to take part in a collective's copies (copies.h): by the time that calls took with it and
/// without it. One GPU that copies for two ranks makes them twice as quick and more; where eight share it, or what else
/// it does comes between, calls may take many times as long. Plain logic, equal on all ranks, as what they feed it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "algorithms/collective.h"
#include "runtime/base/log.h"

namespace flx::shm {

class EngineUse {
  public:
    /// Smaller vectors are the cores'.
    static constexpr size_t kLeast = size_t{4} << 20;
    /// A call must take at most this part of its time with an engine, or it goes without.
    static constexpr double kClearly = 0.95;

    /// Whether an engine is to take part in the call that comes now.
    bool next(algorithms::Collective collective, size_t bytes);
    /// Notes what the slowest rank took for the last call, and whether an engine took part in it on any rank.
    void took(int64_t ns, bool took_part);

    /// Which collectives and sizes an engine takes part in, and what calls took.
    [[nodiscard]] std::vector<Decision> explain() const;

  private:
    static constexpr int kCalls = 3;  ///< of a look; the first finds caches as another way left them
    static constexpr double kHopeless = 2;
    static constexpr uint8_t kInVain = 16;  ///< calls that no engine took part in though it was to
    static constexpr uint32_t kFirst = 64;  ///< calls to the next look
    static constexpr uint32_t kSoon = 8;    ///< where calls with it have come to take longer than those without
    static constexpr uint32_t kMost = 8192;
    static constexpr int kClasses = 16;  ///< of sizes, powers of two from kLeast on
    static constexpr double kUnknown = std::numeric_limits<double>::infinity();

    struct Cell {
        bool uses = false;
        bool looks = true;  ///< at the other one
        bool with = false;  ///< which that is
        uint8_t calls = 0;  ///< of the look
        uint8_t in_vain = 0;
        uint32_t left = 0;  ///< calls to the next look
        uint32_t pause = kFirst;
        std::array<double, 2> times{kUnknown, kUnknown};  ///< ns/byte, without and with
    };
    void end_look(Cell &cell);

    std::array<std::array<Cell, kClasses>, algorithms::kCollectives> cells_{};
    Cell *last_ = nullptr;
    double bytes_ = 0;
    bool with_ = false;
};

}  // namespace flx::shm
