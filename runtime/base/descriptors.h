/// \file descriptors.h
/// How many files and connections this process may still open. Rails over TCP take two descriptors for each peer.
#pragma once

#include <cstddef>

namespace flx {

struct Descriptors {
    size_t open = 0;
    size_t allowed = 0;  ///< at a time

    /// Left to the program, and to connections of which both ends make one at once.
    static constexpr size_t kReserve = 32;
    [[nodiscard]] size_t spare() const { return allowed > open + kReserve ? allowed - open - kReserve : 0; }
};

/// The descriptors of this process. Where fewer than `wanted` are to spare, its soft limit (`ulimit -Sn`) is raised to
/// the hard one first. The soft limit protects programs that call select() from large descriptors; those that never
/// open so many do not notice.
Descriptors descriptors(size_t wanted);

}  // namespace flx
