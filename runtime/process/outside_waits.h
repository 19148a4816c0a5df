/// \file outside_waits.h
/// Whether ranks of this host wait in MPI itself. A synchronous send to a rank, or a lock of its window, ends only when
/// that rank lets MPI move: where it waits in FLX, it must not sleep then. It cannot see what MPI does, nor does MPI
/// wake it. But an MPI can report at each turn of its waits that it waits (bootstrap_mpi.cpp): each rank notes that on
/// the boards of its communicators, where ranks that wait in FLX see it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/link/board.h"

namespace flx {

class OutsideWaits {
  public:
    OutsideWaits() = default;
    OutsideWaits(const OutsideWaits &) = delete;
    OutsideWaits &operator=(const OutsideWaits &) = delete;

    /// The process's one.
    static OutsideWaits &of_process();

    /// Boards stay until they are removed. Thread-safe, as all of it.
    void add(Board &board);
    void remove(const Board &board);

    /// This rank has taken some turns of a wait in MPI. Does nothing where another thread is at it.
    void note();
    /// Whether some rank did within the last kHoldNs, as of `now`.
    bool seen(int64_t now);

    static constexpr int64_t kHoldNs = 5'000'000;

  private:
    static constexpr size_t kAtOnce = 8;        ///< boards on which one call notes it
    static constexpr int64_t kAskNs = 100'000;  ///< between looks at all boards

    std::mutex mutex_;  ///< of the following; nobody waits for it in note() and seen()
    std::vector<Board *> boards_;
    size_t next_ = 0;
    uint64_t turns_ = 0;
    int64_t asked_ns_ = 0;
    int64_t changed_ns_ = -kHoldNs;
    std::atomic<bool> seen_{false};
};

}  // namespace flx
