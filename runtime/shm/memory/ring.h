/// \file ring.h
/// Rings of places that one rank writes and others read, a cache line or two each. A line that another core has takes
/// a tenth of a microsecond or two to come; these keep such trips off the way of a small operation.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace flx::shm {

inline constexpr size_t kLine = 64;

/// Places of a ring at most.
inline constexpr uint64_t kMostPlaces = 64;

/// Where the `number`-th place lies in a ring of `places` (a power of two): at the number's bits in reverse order. If
/// places followed each other, a reader's core would see a stream, and fetch the lines ahead from their writer just
/// before they are written.
inline uint64_t place_in(uint64_t places, uint64_t number) {
    static constexpr std::array<uint8_t, kMostPlaces> kReversed = [] {
        std::array<uint8_t, kMostPlaces> reversed{};
        for (uint64_t i = 0; i < kMostPlaces; ++i)
            for (uint64_t bit = 1; bit < kMostPlaces; bit *= 2)
                reversed[i] = static_cast<uint8_t>(2 * reversed[i] + ((i & bit) != 0 ? 1 : 0));
        return reversed;
    }();
    return kReversed[number % kMostPlaces] >> (std::countr_zero(kMostPlaces) - std::countr_zero(places));
}

/// Where data flows one way and one side is ahead, lines are taken so many places early, as many at once as a line's
/// trip takes operations.
inline constexpr uint64_t kAhead = 8;
/// A reader that found the writer not ahead looks again after so many.
inline constexpr uint64_t kNextLook = 32;

/// Takes a line from those who read it last.
inline void prefetch_to_write(std::byte *line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*line));  // the builtin is for reading where not every processor has this
#else
    __builtin_prefetch(line, 1);
#endif
}

}  // namespace flx::shm
