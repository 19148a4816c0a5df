/// \file random.h
/// Random numbers that are the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flx::test {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15U); }
    /// 0 to limit - 1.
    size_t below(size_t limit) { return next() % limit; }
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    static uint64_t mix(uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

  private:
    uint64_t state_;
};

}  // namespace flx::test
