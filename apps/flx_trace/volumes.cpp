#include "apps/flx_trace/volumes.h"

#include <algorithm>

namespace flx::trace {

using algorithms::Collective;
using algorithms::Layout;

namespace {

bool blocks_differ(Collective collective) {
    return collective == Collective::allgatherv || collective == Collective::reduce_scatter;
}

}  // namespace

Volumes volumes_of(Collective collective, uint64_t bytes, int64_t size, int64_t rank, int64_t root) {
    const uint64_t block = blocks_differ(collective) || size <= 0 ? 0 : bytes / static_cast<uint64_t>(size);
    const bool to_single = algorithms::output_layout(collective) == Layout::single;
    const bool from_single = algorithms::input_layout(collective) == Layout::single;
    Volumes volumes{from_single ? block : bytes, to_single ? block : bytes};
    const bool is_root = rank == root;
    switch (collective) {
        case Collective::allgatherv:
            volumes.given = 0;
            break;
        case Collective::reduce_scatter:
            volumes.taken = 0;
            break;
        case Collective::bcast:
            (is_root ? volumes.taken : volumes.given) = 0;
            break;
        case Collective::scatter:
            volumes.given = is_root ? volumes.given : 0;
            break;
        case Collective::reduce:
        case Collective::gather:
            volumes.taken = is_root ? volumes.taken : 0;
            break;
        case Collective::exscan:
            volumes.taken = rank == 0 ? 0 : volumes.taken;
            break;
        default:
            break;
    }
    return volumes;
}

std::optional<Collective> collective_named(std::string_view name) {
    const auto *const found = std::find_if(algorithms::kTraits.begin(), algorithms::kTraits.end(),
                                           [&](const algorithms::Traits &traits) { return traits.name == name; });
    return found == algorithms::kTraits.end() ? std::nullopt : std::optional(found->collective);
}

}  // namespace flx::trace
