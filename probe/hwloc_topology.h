/// \file hwloc_topology.h
/// hwloc's topology of this machine, as all of FLX loads it. Only for sources of this folder: hwloc.h stays within.
#pragma once

#include <hwloc.h>

#include <memory>

#include "runtime/base/status.h"

namespace flx::probe {

struct DestroyTopology {
    void operator()(hwloc_topology *topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, DestroyTopology>;

/// `devices`: which of them to look for. Takes some ms without any. Honours HWLOC_SYNTHETIC and HWLOC_XMLFILE.
Status load_topology(hwloc_type_filter_e devices, TopologyHandle &topology);

}  // namespace flx::probe
