/// \file statistics.h
/// What became of each call, for FLX_STATS.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "runtime/front/nccl/routing.h"

namespace flx::nccl {

/// Calls so far of this process, `bytes` as nccl-tests count. Thread-safe.
class Statistics {
  public:
    void count(Kind kind, Reason why, size_t bytes) {
        Cell &cell = cells_[static_cast<size_t>(kind)][static_cast<size_t>(why)];
        cell.calls.fetch_add(1, std::memory_order_relaxed);
        cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
    /// One that FLX served, of which ranks had shown each other their outputs.
    void count_met() { met_.fetch_add(1, std::memory_order_relaxed); }
    /// A communicator was made, of which this process has such a rank; `why`: none, or why NCCL carries out all.
    void count_communicator(int rank, Reason why, const std::string &sentence);
    /// What was measured for a communicator of so many ranks decided. That of the last one is printed; nothing where
    /// nothing was measured.
    void keep(int ranks, std::vector<Decision> decisions);
    /// Prints at the end of the process, if FLX_STATS is 1 and it had rank 0 of some communicator.
    void print_at_exit();
    [[nodiscard]] std::string text() const;

  private:
    struct Cell {
        std::atomic<uint64_t> calls{0};
        std::atomic<uint64_t> bytes{0};
    };
    std::array<std::array<Cell, kReasons>, kKinds> cells_;
    std::array<std::atomic<uint64_t>, kReasons> communicators_{};
    std::atomic<uint64_t> met_{0};
    std::atomic<bool> first_{false};  ///< had a rank 0
    std::array<std::string, kReasons> sentences_;
    std::map<int, std::vector<Decision>> decisions_;  ///< by ranks
};

Statistics &statistics();

}  // namespace flx::nccl
