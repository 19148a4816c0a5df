/// \file beside.h
/// Collectives on GPUs while a matrix product runs on another stream: what each costs the other. Pure: figures from
/// times, texts from figures.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/bench/machine.h"
#include "apps/flx_lab/options.h"

namespace flx::bench::lab {

/// Whose collectives.
enum class Side : uint8_t { flx, spare, peer };

/// Seconds, each of the rank that took longest; one entry a round.
struct BesideSide {
    Side side = Side::flx;
    std::string algorithm;
    std::vector<double> alone;    ///< a call
    std::vector<double> beside;   ///< a call while products run
    std::vector<double> product;  ///< a product while calls run
    uint64_t wrong = 0;           ///< elements; calls before and after
};

/// Of one size.
struct Beside {
    uint64_t bytes = 0;
    std::vector<double> product;  ///< alone
    std::vector<BesideSide> sides;
};

struct BesideResults {
    Machine machine;
    int product_side = 0;  ///< of the matrices
    double product_flops = 0;
    std::vector<Beside> sizes;
};

inline constexpr int kBesideRounds = 5;
inline constexpr int kProductSide = 8192;

/// How many of the pieces of work that follow each other between `marks` (one more than pieces, rising) were done from
/// `begin` to `end`, parts of them counted.
[[nodiscard]] double pieces_between(const std::vector<double> &marks, double begin, double end);

/// What of the time is left to both together, were they to follow one another: of their own speeds, the sum. 1: nothing
/// is gained; 2: neither costs the other anything.
[[nodiscard]] double both(const Beside &size, const BesideSide &side);

[[nodiscard]] std::string beside_header(const Options &options, const BesideResults &results);
[[nodiscard]] std::string beside_rows(const Beside &size);
[[nodiscard]] nlohmann::ordered_json beside_json(const Options &options, const BesideResults &results);

}  // namespace flx::bench::lab
