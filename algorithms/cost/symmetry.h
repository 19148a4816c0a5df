/// \file symmetry.h
/// Which ranks do the same as others, so that the ranks of one host can stand for those of all.
///
/// Rings and exchanges by distance look the same from every host: moved by any number of hosts, the set of schedules is
/// itself. Exchanges with partners whose numbers differ in a bit look the same when all numbers have bits flipped.
/// Trees, chains, and what has a root do not.
#pragma once

#include <optional>
#include <vector>

#include "algorithms/registry.h"

namespace flx::algorithms {

/// Moves ranks to others that do the same. There is one move for each host: it takes the ranks of host 0 there.
class Symmetry {
  public:
    /// That of the schedules of an algorithm. Requires a placement of two hosts or more. Nothing where hosts have
    /// different numbers of ranks, or none is found. It is looked for, as an algorithm does not say it: schedules of
    /// some ranks that are far apart are compared with those of host 0.
    static std::optional<Symmetry> find(const Algorithm &algorithm, Collective collective, const Placement &placement);

    /// Whether hosts go around a circle: each moves on by as many as host 0 does.
    [[nodiscard]] bool turns() const { return kind_ != Kind::bits_of_hosts; }
    /// The rank that `rank` becomes when host 0 moves to `host`.
    [[nodiscard]] int moved(int rank, int host) const;
    /// The other way round: when `host` moves to host 0.
    [[nodiscard]] int moved_back(int rank, int host) const;

  private:
    enum class Kind : uint8_t {
        hosts_turn,     ///< hosts by their numbers, around a circle; what a rank is on its host stays
        bits_of_hosts,  ///< likewise, by exclusive or
        ranks_turn      ///< ranks by their numbers, around a circle; consecutive ranks are on consecutive hosts
    };
    Symmetry(Kind kind, const Placement &placement) : kind_(kind), placement_(&placement) {}
    [[nodiscard]] bool holds(const Algorithm &algorithm, Collective collective) const;
    [[nodiscard]] bool like(const Schedule &one, const Schedule &other, int host) const;

    Kind kind_;
    const Placement *placement_;
};

}  // namespace flx::algorithms
