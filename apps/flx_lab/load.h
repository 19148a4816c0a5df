/// \file load.h
/// A collective on GPUs while something else begins and ceases to use PCIe: what the shares that follow it are worth,
/// beside the best of those that stay. Pure: figures from times, texts from figures.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/bench/machine.h"
#include "apps/flx_lab/options.h"

namespace flx::bench::lab {

/// One call.
struct LoadCall {
    double seconds = 0;  ///< of the rank that took longest
    double share = 0;    ///< of all bytes, over PCIe
};

/// A share that stays.
struct StaticShare {
    double forced = 0;  ///< of FLX_PARTITION
    double idle = 0;    ///< seconds of a call: median
    double loaded = 0;
};

/// Of one size.
struct UnderLoad {
    uint64_t bytes = 0;
    double bus_bytes = 0;                         ///< bytes of bus bandwidth that a call is worth
    std::array<std::vector<LoadCall>, 3> phases;  ///< idle, loaded, idle again
    std::vector<StaticShare> statics;
    double copies = 0;  ///< bytes a second each way of what else used PCIe, on one GPU
    uint64_t wrong = 0;
};

struct UnderLoadResults {
    Machine machine;
    std::vector<UnderLoad> sizes;
};

inline constexpr int kLoadCalls = 40;   ///< of each phase
inline constexpr int kStaticCalls = 7;  ///< of each static share, idle and loaded
inline constexpr double kCloseEnough = 0.97;

/// Of the shares that stay, the best one while it is loaded, or idle.
[[nodiscard]] StaticShare best_static(const UnderLoad &size, bool loaded);

/// How far the calls of a phase got: the speed of its last half over that of the best static share; and the number of
/// the first call from which on the median of five calls is close enough (-1: never).
struct Following {
    double ratio = 0;
    int after = -1;
};
[[nodiscard]] Following following(const UnderLoad &size, int phase);

[[nodiscard]] std::string load_header(const Options &options, const Machine &machine);
[[nodiscard]] std::string load_text(const UnderLoad &size);
[[nodiscard]] nlohmann::ordered_json load_json(const Options &options, const UnderLoadResults &results);

}  // namespace flx::bench::lab
