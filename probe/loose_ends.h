/// \file loose_ends.h
/// Rails between networks that routers join. Names of networks do not say which those are: hosts try (routes.h), and
/// what they found is put into their plans here. Pure functions, as rail_plan.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "probe/rail_plan.h"

namespace flx::probe {

/// A host's end of a TCP rail, planned or left off, whose network is not that of all other hosts.
struct LooseEnd {
    RailCandidate rail;
    std::string address;
};

/// The loose ends of host `self`; arguments as for plan_rails. A network that all hosts are on has none, and a rail
/// that reaches only its own host is none.
std::vector<LooseEnd> loose_ends(std::span<const HostDevices> hosts, size_t self, const std::string &selection);

/// What is known of a loose end everywhere.
struct OfferedEnd {
    size_t host = 0;
    std::string name;
    std::string identity;  ///< as planned
    std::string address;
    uint16_t port = 0;  ///< where it can be tried
};

/// Which ends were reached from which: [from][to], by their indices.
using Reached = std::vector<std::vector<bool>>;

/// Gives ends that reach each other both ways one identity: rails of several networks. In each rail a host has one end;
/// of several that would do, that with the same name as the rail's first end. The result has an identity for each end,
/// and is the same wherever the ends are listed in the same order (by host).
std::vector<std::string> join_ends(std::span<const OfferedEnd> ends, const Reached &reached);

/// Puts into the plan of host `self` what its ends (`loose`) were joined to. `why`, by end, may be empty: what the plan
/// says of an end that was joined to nothing, besides that no other host is on its network.
void join_rails(size_t self, std::span<const LooseEnd> loose, std::span<const OfferedEnd> ends, const Reached &reached,
                std::span<const std::string> why, size_t max_rails, RailPlan &plan);

}  // namespace flx::probe
