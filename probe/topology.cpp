#include "probe/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "probe/cpus.h"
#include "probe/hwloc_topology.h"

namespace flx::probe {
namespace {

size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache == nullptr ? 0 : cache->attr->cache.size;
}

std::string find_cpu_model(hwloc_topology_t topology) {
    for (hwloc_obj_t object : {hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0), hwloc_get_root_obj(topology)}) {
        const char *model = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
        if (model != nullptr)
            return model;
    }
    if (hwloc_topology_is_thissystem(topology) == 0)
        return {};
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const auto colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return {};
}

/// Fills in the NUMA node and CPUs nearest to an I/O object.
void locate(hwloc_topology_t topology, hwloc_obj_t object, Device &device) {
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, object);
    if (near == nullptr || near->cpuset == nullptr)
        return;
    // A device below a package with several NUMA nodes is near to all of them: only a single one is named.
    if (near->nodeset != nullptr && hwloc_bitmap_weight(near->nodeset) == 1)
        device.numa_node = hwloc_bitmap_first(near->nodeset);
    char *list = nullptr;
    if (hwloc_bitmap_list_asprintf(&list, near->cpuset) >= 0 && list != nullptr)
        device.cpus = list;
    std::free(list);
}

/// A PCI display controller that computes: 3D controllers and accelerators always, VGA ones only from the makers of
/// compute GPUs (others are a server's management console).
bool computes(const hwloc_obj_attr_u::hwloc_pcidev_attr_s &pci) {
    constexpr unsigned kVga = 0x0300, k3d = 0x0302, kOtherDisplay = 0x0380, kAccelerator = 0x1200;
    constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002;
    const bool maker = pci.vendor_id == kNvidia || pci.vendor_id == kAmd;
    return pci.class_id == k3d || (maker && (pci.class_id == kVga || pci.class_id == kOtherDisplay)) ||
           (maker && pci.class_id == kAccelerator);
}

void find_devices(hwloc_topology_t topology, std::vector<Device> &devices) {
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_osdev(topology, object)) != nullptr;) {
        const auto type = object->attr->osdev.type;
        if ((type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) || object->name == nullptr)
            continue;
        Device device;
        device.name = object->name;
        device.kind = type == HWLOC_OBJ_OSDEV_NETWORK ? "nic" : "rdma";
        locate(topology, object, device);
        devices.push_back(device);
    }
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_pcidev(topology, object)) != nullptr;) {
        const auto &pci = object->attr->pcidev;
        if (!computes(pci))
            continue;
        Device device;
        device.name = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain), pci.bus, pci.dev,
                                  static_cast<unsigned>(pci.func));
        device.kind = "gpu";
        locate(topology, object, device);
        devices.push_back(device);
    }
    std::sort(devices.begin(), devices.end(),
              [](const Device &a, const Device &b) { return a.kind != b.kind ? a.kind < b.kind : a.name < b.name; });
}

std::string format_bytes(size_t bytes) {
    constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace

Status read_topology(Topology &result) {
    TopologyHandle topology;
    FLX_TRY(load_topology(HWLOC_TYPE_FILTER_KEEP_IMPORTANT, topology));
    hwloc_topology_t raw = topology.get();

    Topology read;
    const auto count = [raw](hwloc_obj_type_t type) { return std::max(0, hwloc_get_nbobjs_by_type(raw, type)); };
    read.packages = count(HWLOC_OBJ_PACKAGE);
    read.cores = count(HWLOC_OBJ_CORE);
    read.processing_units = count(HWLOC_OBJ_PU);
    read.numa_nodes = count(HWLOC_OBJ_NUMANODE);
    // The system says this, not hwloc: a synthetic or recorded topology does not know what this process may run on.
    read.allowed_units = affinity_cpus();
    read.cpu_quota = cgroup_cpu_quota();
    read.memory_bytes = hwloc_get_root_obj(raw)->total_memory;
    read.l1_bytes = cache_bytes(raw, HWLOC_OBJ_L1CACHE);
    read.l2_bytes = cache_bytes(raw, HWLOC_OBJ_L2CACHE);
    read.l3_bytes = cache_bytes(raw, HWLOC_OBJ_L3CACHE);
    if (hwloc_obj_t l3 = hwloc_get_obj_by_type(raw, HWLOC_OBJ_L3CACHE, 0); l3 != nullptr)
        read.l3_sharers = hwloc_bitmap_weight(l3->cpuset);
    read.cpu_model = find_cpu_model(raw);
    find_devices(raw, read.devices);
    result = std::move(read);
    return {};
}

std::vector<std::string> describe(const Topology &topology) {
    std::vector<std::string> lines;
    const auto add = [&lines](const char *what, const std::string &text) {
        lines.push_back(fmt::format("{:<9} {}", what, text));
    };
    const auto plural = [](int count, const char *noun) {
        return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
    };
    if (!topology.cpu_model.empty())
        add("cpu", topology.cpu_model);
    add("cores", fmt::format("{}, {}, {}", plural(topology.packages, "package"), plural(topology.cores, "core"),
                             plural(topology.processing_units, "processing unit")));
    add("allowed", topology.cpu_quota > 0
                       ? fmt::format("{} by affinity, cgroup quota {:.3g} CPUs", plural(topology.allowed_units, "unit"),
                                     topology.cpu_quota)
                       : fmt::format("{} by affinity, no cgroup quota", plural(topology.allowed_units, "unit")));
    std::vector<std::string> caches;
    if (topology.l1_bytes > 0)
        caches.push_back("L1 " + format_bytes(topology.l1_bytes));
    if (topology.l2_bytes > 0)
        caches.push_back("L2 " + format_bytes(topology.l2_bytes));
    if (topology.l3_bytes > 0)
        caches.push_back(
            fmt::format("L3 {} shared by {}", format_bytes(topology.l3_bytes), plural(topology.l3_sharers, "unit")));
    if (!caches.empty())
        add("caches", fmt::format("{}", fmt::join(caches, ", ")));
    add("memory",
        fmt::format("{} in {}", format_bytes(topology.memory_bytes), plural(topology.numa_nodes, "NUMA node")));
    for (const Device &device : topology.devices) {
        const std::string node = device.numa_node < 0 ? "" : fmt::format("NUMA node {}", device.numa_node);
        const std::string cpus = device.cpus.empty() ? "" : fmt::format("CPUs {}", device.cpus);
        add(device.kind.c_str(), fmt::format("{:<12} {}{}{}", device.name, node.empty() && cpus.empty() ? "" : "near ",
                                             node, node.empty() || cpus.empty() ? cpus : ", " + cpus));
    }
    return lines;
}

}  // namespace flx::probe
