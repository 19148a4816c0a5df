/// \file places.h
/// Which processes of a host are near each other: what hwloc says of the units that each is bound to, and of the caches
/// that they share.
#pragma once

#include <sched.h>

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace flx::probe {

/// hwloc's logical numbers. -1: the process may run on several of them, or there is none.
struct Place {
    int package = -1;
    int cache = -1;  ///< the largest that its units share with others, within the package
};

/// Reads the places of processes that are bound to `units`, from a topology without devices (some ms). Honours
/// HWLOC_SYNTHETIC.
Status read_places(std::span<const cpu_set_t> units, std::vector<Place> &places);

/// The outermost caches for data.
struct LastCaches {
    size_t bytes = 0;  ///< of one of them; 0: not known
    int count = 0;
};

/// Reads the outermost caches for data from the same topology as read_places.
Status read_last_caches(LastCaches &caches);

/// Whether a process on those units is bound at all: to fewer than the host has.
bool is_bound(const cpu_set_t &units);

}  // namespace flx::probe
