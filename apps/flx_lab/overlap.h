/// \file overlap.h
/// A non-blocking collective beside a computation that takes as long: what the program pays for both.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/bench/machine.h"
#include "apps/bench/timing.h"
#include "apps/flx_lab/options.h"

namespace flx::bench::lab {

/// Of one size. All times are seconds, of the rank that took longest; a round has each of them once.
struct Overlap {
    uint64_t bytes = 0;
    std::vector<double> issue;          ///< until the call returned, with the computation still to come
    std::vector<double> communication;  ///< call and wait
    std::vector<double> computation;    ///< alone
    std::vector<double> together;       ///< call, computation, wait
    uint64_t wrong = 0;                 ///< elements, in the last round

    /// What both took over the longer one, by round: 1 where the shorter one costs nothing, 2 where nothing overlaps.
    [[nodiscard]] std::vector<double> ratios() const;
};

struct OverlapResults {
    Machine machine;
    std::vector<Overlap> sizes;
};

inline constexpr int64_t kOverlapRounds = 9;

[[nodiscard]] std::string overlap_header(const Options &options, const Machine &machine);
[[nodiscard]] std::string overlap_row(const Overlap &overlap);
[[nodiscard]] nlohmann::ordered_json overlap_json(const Options &options, const OverlapResults &results);

}  // namespace flx::bench::lab
