#include "probe/places.h"

#include <hwloc/glibc-sched.h>
#include <unistd.h>

#include <memory>

#include "probe/hwloc_topology.h"

namespace flx::probe {
namespace {

/// The outermost cache, or the package, around an object: what two units have in common that share it.
int number_around(hwloc_obj_t object, bool (*wanted)(hwloc_obj_type_t)) {
    int number = -1;
    for (; object != nullptr; object = object->parent)
        if (wanted(object->type))
            number = static_cast<int>(object->logical_index);
    return number;
}

}  // namespace

Status read_places(std::span<const cpu_set_t> units, std::vector<Place> &places) {
    TopologyHandle topology;
    FLX_TRY(load_topology(HWLOC_TYPE_FILTER_KEEP_NONE, topology));
    struct Free {
        void operator()(hwloc_bitmap_s *bitmap) const { hwloc_bitmap_free(bitmap); }
    };
    const std::unique_ptr<hwloc_bitmap_s, Free> set(hwloc_bitmap_alloc());
    places.clear();
    for (const cpu_set_t &one : units) {
        Place place;
        hwloc_obj_t around = nullptr;
        if (hwloc_cpuset_from_glibc_sched_affinity(topology.get(), set.get(), &one, sizeof one) == 0)
            around = hwloc_get_obj_covering_cpuset(topology.get(), set.get());
        place.package = number_around(around, [](hwloc_obj_type_t type) { return type == HWLOC_OBJ_PACKAGE; });
        place.cache = number_around(around, [](hwloc_obj_type_t type) { return hwloc_obj_type_is_dcache(type) != 0; });
        places.push_back(place);
    }
    return {};
}

Status read_last_caches(LastCaches &caches) {
    TopologyHandle topology;
    FLX_TRY(load_topology(HWLOC_TYPE_FILTER_KEEP_NONE, topology));
    caches = {};
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
        const int count = hwloc_get_nbobjs_by_type(topology.get(), type);
        if (count > 0) {
            caches = {hwloc_get_obj_by_type(topology.get(), type, 0)->attr->cache.size, count};
            break;
        }
    }
    return {};
}

bool is_bound(const cpu_set_t &units) {
    return CPU_COUNT(&units) < sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace flx::probe
