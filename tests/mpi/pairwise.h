/// \file pairwise.h
/// A selection of a product of parameters in which every pair of values of two parameters occurs (all-pairs testing:
/// Cohen, Dalal, Fredman, Patton: The AETG system, 1997; the greedy way).
#pragma once

#include <cstdint>
#include <vector>

namespace flx::test {

/// Rows of indices; parameter p has `levels[p]` values. The same for the same seed.
std::vector<std::vector<int>> pairwise(const std::vector<int> &levels, uint64_t seed);
/// All rows.
std::vector<std::vector<int>> product(const std::vector<int> &levels);

}  // namespace flx::test
