#include "runtime/plan/ways.h"

#include <cmath>

namespace flx::shm {

using algorithms::Collective;

namespace {

/// Beyond, copies in the cache and stores past it are expected to beat the kernel's copies.
constexpr size_t kMostFetched = size_t{24} << 20;
/// Up to here nothing beats one cache line or a few.
constexpr size_t kAlwaysFused = 4096;
/// Below, system calls are dearer than copying twice.
constexpr size_t kLeastCrowdedAlltoall = size_t{256} << 10;

}  // namespace

Ways::Ways(bool fetches, bool crowded) {
    for (auto &of_sizes : times_)
        for (Times &times : of_sizes)
            times.fill(kUnknown);
    for (const algorithms::Traits &traits : algorithms::kTraits) {
        const Collective collective = traits.collective;
        const size_t most_fused = fetches && !crowded && !one_way(collective) ? size_t{8} << 10 : size_t{16} << 10;
        const size_t least_fetched = !fetches                             ? SIZE_MAX
                                     : !crowded                           ? 0
                                     : collective == Collective::alltoall ? kLeastCrowdedAlltoall
                                                                          : SIZE_MAX;
        for (size_t size = 0; size < kSizes.size(); ++size)
            ways_[algorithms::index_of(collective)][size] =
                kSizes[size] <= most_fused                                      ? Way::fused
                : kSizes[size] >= least_fetched && kSizes[size] <= kMostFetched ? Way::fetched
                                                                                : Way::streamed;
    }
}

Way Ways::at(Collective collective, size_t bytes) const {
    if (bytes <= kAlwaysFused)
        return Way::fused;
    const std::optional<size_t> size = size_index(bytes);
    return size ? ways_[algorithms::index_of(collective)][*size] : Way::streamed;
}

std::optional<size_t> Ways::size_index(size_t bytes) {
    if (bytes <= kAlwaysFused)
        return {};
    size_t size = 0;
    while (bytes > limit(size))
        ++size;
    return size;
}

/// The nearest as factors go: up to the geometric mean with the next.
size_t Ways::limit(size_t size_index) {
    if (size_index + 1 == kSizes.size())
        return SIZE_MAX;
    if (size_index + 1 == kTried)
        return kMostFetched;
    return static_cast<size_t>(std::sqrt(static_cast<double>(kSizes[size_index]) * kSizes[size_index + 1]));
}

void Ways::set(Collective collective, size_t size_index, Way way) {
    ways_[algorithms::index_of(collective)][size_index] = way;
}

const Ways::Times &Ways::times(Collective collective, size_t size_index) const {
    return times_[algorithms::index_of(collective)][size_index];
}

void Ways::set_time(Collective collective, size_t size_index, Way way, double time) {
    times_[algorithms::index_of(collective)][size_index][static_cast<size_t>(way)] = time;
}

}  // namespace flx::shm
