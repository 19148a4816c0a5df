/// \file plan.h
/// A schedule with the tables that an executor looks chunks up in. Immutable once made; does not depend on the count.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/schedule.h"

namespace flx {

class Plan {
  public:
    Plan(const algorithms::Algorithm &algorithm, const algorithms::Request &request);
    /// `schedule`: that `algorithm` made for `rank` of `size`.
    Plan(const algorithms::Algorithm &algorithm, algorithms::Schedule schedule, int rank, int size);

    [[nodiscard]] const algorithms::Algorithm &algorithm() const { return *algorithm_; }
    [[nodiscard]] const algorithms::Schedule &schedule() const { return schedule_; }
    /// Ranks that this rank sends to or receives from.
    [[nodiscard]] const std::vector<int> &peers() const { return peers_; }

    static constexpr uint32_t kNone = UINT32_MAX;
    /// The step that receives (phase, block) from `peer`, or kNone.
    [[nodiscard]] uint32_t receiving_step(int peer, uint32_t phase, uint32_t block) const;
    [[nodiscard]] uint32_t sending_step(int peer, uint32_t phase, uint32_t block) const;

  private:
    struct Entry {
        uint32_t phase;
        uint32_t block;
        uint32_t step;
    };
    using Table = std::vector<std::vector<Entry>>;  // by peer
    static uint32_t find(const Table &table, int peer, uint32_t phase, uint32_t block);

    const algorithms::Algorithm *algorithm_;
    algorithms::Schedule schedule_;
    std::vector<int> peers_;
    Table receives_;
    Table sends_;
};

}  // namespace flx
