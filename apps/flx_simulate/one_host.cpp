#include "apps/flx_simulate/one_host.h"

#include <algorithm>

#include "algorithms/collective.h"

namespace flx::simulate {

using algorithms::Collective;

namespace {

/// What the rank that does most takes in, gives out and adds, in bytes.
struct Part {
    double in = 0;     ///< of its own vector that others read
    double out = 0;    ///< that it gets from others or makes
    double added = 0;  ///< operands
};

/// `whole`: each rank reads all that it needs itself; else each reduces a region, and the others take that.
Part part_of(Collective collective, double bytes, double ranks, bool whole) {
    const double block = bytes / ranks;
    switch (collective) {
        case Collective::allreduce:
            return {bytes, bytes, whole ? ranks * bytes : bytes};
        case Collective::reduce:
        case Collective::scan:
        case Collective::exscan:
            return {bytes, bytes, ranks * bytes};
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter:
            return {bytes, block, bytes};
        case Collective::allgather:
        case Collective::allgatherv:
        case Collective::gather:
            return {block, bytes, 0};
        case Collective::scatter:
            return {bytes, block, 0};
        case Collective::barrier:
            return {};
        default:
            break;
    }
    return {bytes, bytes, 0};
}

}  // namespace

double one_host_ns(Collective collective, Way way, size_t bytes, int ranks, const algorithms::CostModel &costs,
                   double together) {
    const Part part = part_of(collective, static_cast<double>(bytes), ranks, way == Way::fused);
    // All see what all have shown; longer ones see once more that all are ready, or have what they need.
    const double waits = way == Way::fused ? 1 : 2;
    const double sums = part.added / costs.add_bytes_per_ns;
    // What is fetched goes from buffer to buffer, but for what is a rank's own.
    const double others = 1 - 1.0 / ranks;
    const double operands = part.added > 0 ? part.in * others : 0;
    const double result = collective == Collective::reduce_scatter_block ? 0 : part.out * others;
    const double copied = way == Way::fetched ? operands + result : part.in + part.out;
    const double rate = together > 0 ? std::min(costs.near.bytes_per_ns, together / ranks) : costs.near.bytes_per_ns;
    return waits * (costs.wait_ns + ranks * costs.wait_rank_ns) + copied / rate + sums;
}

}  // namespace flx::simulate
