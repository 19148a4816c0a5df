/// \file cache_share.h
/// What follows from how much of the last cache each rank of a host can count on. Bytes, 0: not known. Thresholds that
/// decide where data goes are equal on all ranks, as the share is.
#pragma once

#include <algorithm>
#include <cstddef>

namespace flx::shm {

/// Vectors of so many bytes and more are written past the cache: where in- and outputs take three quarters of it, and
/// from 8 MiB on however large it is. Measured for allreduces: 2 ranks on an EPYC of 32 MiB gain from 6 MiB on and lose
/// a quarter at 4 MiB; on a Xeon of 300 MiB 2, 8 and 32 ranks take up to twice as long for 16 MiB without.
constexpr size_t past_cache_from(size_t share) {
    constexpr size_t kLeast = size_t{1} << 20;
    constexpr size_t kMost = size_t{8} << 20;
    return share == 0 ? kMost : std::clamp(share / 8 * 3, kLeast, kMost);
}

/// What all ranks write for each other again and again in turn stays within an eighth of the cache: on that Xeon a
/// streamed allreduce of 256 KiB took 32 ranks 137 us where each went round 1 MiB, 167 with 2 and 203 with 4.
constexpr size_t long_ring(size_t share, size_t room) {
    return share == 0 ? room : std::min(room, share / 8);
}

}  // namespace flx::shm
