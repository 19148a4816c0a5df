#include "registry.h"

#include <array>

#include "builder.h"

namespace flx::algorithms {
namespace {

constexpr std::array<std::string_view, 9> kNames = {
    "allreduce", "reduce_scatter_block", "allgather", "bcast", "reduce", "barrier", "alltoall", "alltoallv",
    "send_recv"};

}  // namespace

std::span<const Algorithm> all() {
    // Tables and messages hold the index: append only.
    static const std::array<Algorithm, 4> algorithms = {kDirect, kRing, kDoubleBinaryTree, kRecursiveDoubling};
    return algorithms;
}

const Algorithm *find(std::string_view name) {
    for (const Algorithm &algorithm : all()) {
        if (algorithm.name == name)
            return &algorithm;
    }
    return nullptr;
}

std::string_view name_of(Collective collective) {
    return kNames[static_cast<size_t>(collective)];
}

std::optional<Collective> parse_collective(std::string_view name) {
    for (size_t i = 0; i < kCollectives; ++i) {
        if (kNames[i] == name)
            return static_cast<Collective>(i);
    }
    return std::nullopt;
}

Schedule alone(Collective collective) {
    Builder builder(1, 1);
    if (collective == Collective::allgather)
        builder.input(Layout::single);
    if (collective == Collective::reduce_scatter_block)
        builder.output(Layout::single);
    builder.copy(0, kInput, kOutput);
    return builder.take();
}

}  // namespace flx::algorithms
