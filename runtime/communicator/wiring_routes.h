/// \file wiring_routes.h
/// Rails between networks that routers join. Names of networks do not say which those are, so hosts try: only those of
/// their devices that not all others are on a network with, and where there are none that takes no message.
#pragma once

#include <vector>

#include "probe/loose_ends.h"
#include "runtime/link/bootstrap.h"

namespace flx {

/// Collective. All agree whether all have `planned` well; then each plan gets what its host's `loose` ends reach by
/// routers. `host_of_rank`: as group_hosts says.
Status join_networks(Bootstrap &bootstrap, Status planned, const std::vector<int> &host_of_rank,
                     const std::vector<probe::LooseEnd> &loose, size_t max_rails, probe::RailPlan &plan);

}  // namespace flx
