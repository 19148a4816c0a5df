/// \file random.h
/// A small generator whose numbers are the same on every rank and machine: integer arithmetic only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace flx::trainer {

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    /// Uniform in [0, bound), for bounds far below 2^32 (the bias is bound / 2^32).
    std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32); }

    /// Uniform in [-1, 1), a multiple of 2^-23: exact in f32.
    float symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

  private:
    std::uint64_t state_;
};

/// A permutation of 0 … count-1 that depends on the seed alone.
inline std::vector<std::uint32_t> shuffled(std::uint32_t count, std::uint64_t seed) {
    std::vector<std::uint32_t> order(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        order[i] = i;
    }
    Random random(seed);
    for (std::uint32_t i = count; i > 1; --i) {
        std::swap(order[i - 1], order[random.below(i)]);
    }
    return order;
}

}  // namespace flx::trainer
