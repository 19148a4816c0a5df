#include "probe/hwloc_topology.h"

#include <cerrno>
#include <cstring>

namespace flx::probe {
namespace {

/// Back ends that would start a GPU's driver in every rank, which takes seconds. GPUs are found as PCI devices.
constexpr const char *kSlowComponents[] = {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"};

}  // namespace

Status load_topology(hwloc_type_filter_e devices, TopologyHandle &topology) {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0)
        return fail(Fault::machine_not_read, "hwloc_topology_init: {}", std::strerror(errno));
    topology.reset(raw);
    for (const char *component : kSlowComponents)
        hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
    if (hwloc_topology_set_io_types_filter(raw, devices) != 0 || hwloc_topology_load(raw) != 0)
        return fail(Fault::machine_not_read, "hwloc cannot read this machine's topology: {}", std::strerror(errno));
    return {};
}

}  // namespace flx::probe
