/// \file nearby.h
/// What the ranks of one of several hosts do together, among themselves: fused collectives (fused.h), as stages of an
/// operation between hosts.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/shm/memory/bells.h"
#include "runtime/shm/ways/fused.h"

namespace flx::shm {

class Nearby {
  public:
    /// Bytes of the segment that are needed. `payload`: the most that one rank shows.
    static size_t bytes(int ranks, size_t payload) { return Bells::bytes(ranks) + Fused::bytes(ranks, payload); }
    /// What each rank writes, from the beginning of that memory; `late`: as of Fused.
    static std::vector<Area> areas(int ranks, size_t payload, bool late) {
        std::vector<Area> areas = Fused::areas(ranks, payload, 0, late);
        for (Area &area : areas)
            area.offset += Bells::bytes(ranks);
        return areas;
    }

    /// `memory`: that of the segment, zeroed; longer-lived. `ranks`: the communicator's ranks of this host, ascending,
    /// of which this is the `local`-th.
    Nearby(std::byte *memory, std::vector<int> ranks, int local, size_t payload)
        : ranks_(std::move(ranks)),
          bells_(memory, local, static_cast<int>(ranks_.size())),
          fused_(memory + Bells::bytes(static_cast<int>(ranks_.size())), local, static_cast<int>(ranks_.size()),
                 payload, &bells_) {}

    /// Its ranks are those of the host, from 0.
    [[nodiscard]] Fused &fused() { return fused_; }
    [[nodiscard]] Bells &bells() { return bells_; }
    /// The communicator's rank that the current or last wait is for.
    [[nodiscard]] int waiting_for() const { return ranks_[static_cast<size_t>(fused_.waiting_for())]; }

  private:
    std::vector<int> ranks_;
    Bells bells_;
    Fused fused_;
};

}  // namespace flx::shm
