/// \file plan.h
/// How a collective on GPUs is carried out: a pure function of arguments that are equal on all ranks and of values that
/// were agreed when the window was made. Every way adds in rank order, so the choice does not show in the bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "exchange.h"

namespace flx::cuda {

inline constexpr int kKinds = 6;

enum class Way : uint8_t {
    small,   ///< one kernel, packets that are their own flags: every rank sends its input to whoever needs it
    tiles,   ///< one kernel, teams of blocks and tiles (exchange.h)
    engines  ///< copy engines move the data, kernels of one warp set and await flags
};
std::string_view name_of(Way way);
std::string_view name_of(Kind kind);

/// Agreed by all ranks.
struct Limits {
    uint64_t small_bytes = 0;   ///< greatest sum of the messages of one rank that go in packets
    uint64_t engine_bytes = 0;  ///< least vector that copy engines move
    uint32_t blocks = 32;       ///< of the largest kernel
};

struct Plan {
    Way way = Way::small;
    uint32_t blocks = 1;
    uint32_t threads = 0;
    uint64_t part_bytes = 0;
    uint64_t tile_bytes = 0;
    bool flat = false;  ///< Job::flat
};

/// The greatest window that fits into `budget` bytes.
WindowLayout window_for(uint64_t budget, int ranks);

/// `bytes` of the whole vector, more than 0. `direct`: peers may write into the output, on all ranks.
Plan plan_of(Kind kind, uint64_t bytes, int ranks, bool direct, const WindowLayout &layout, const Limits &limits);

}  // namespace flx::cuda
