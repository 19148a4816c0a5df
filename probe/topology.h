/// \file topology.h
/// This host as hwloc sees it: cores, caches, NUMA nodes, NICs and GPUs and what they are near to.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace flx::probe {

struct Device {
    std::string name;
    std::string kind;    ///< `nic`, `rdma`, `gpu`
    int numa_node = -1;  ///< -1: unknown
    std::string cpus;    ///< cpuset near it, as a list
};

struct Topology {
    int packages = 0;
    int cores = 0;
    int processing_units = 0;
    int allowed_units = 0;  ///< that this process may run on (affinity)
    double cpu_quota = 0;   ///< cgroup limit in CPUs; 0: none
    int numa_nodes = 0;
    size_t memory_bytes = 0;
    size_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  ///< one instance of each; 0: none
    int l3_sharers = 0;                               ///< units that share one L3
    std::string cpu_model;
    std::vector<Device> devices;
};

/// Reads it once (tens of milliseconds at most). Honours hwloc's own environment, such as HWLOC_SYNTHETIC.
Status read_topology(Topology &result);

/// Describes the topology for reports: one aligned line per fact, without newlines; unknown facts have no line.
std::vector<std::string> describe(const Topology &topology);

}  // namespace flx::probe
