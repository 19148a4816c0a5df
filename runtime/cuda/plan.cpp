#include "plan.h"

#include <algorithm>

namespace flx::cuda {
namespace {

constexpr uint64_t kPacketPayload = 8;
constexpr uint32_t kThreadsPerBlock = 512;

constexpr uint64_t round_up(uint64_t number, uint64_t multiple) {
    return (number + multiple - 1) / multiple * multiple;
}

bool engines_serve(Kind kind, int ranks, bool direct) {
    switch (kind) {
        case Kind::reduce_scatter_block:
            return true;
        case Kind::allreduce:
        case Kind::allgather:
        case Kind::alltoall:
            return direct;
        case Kind::bcast:  // among more ranks, others pass on what the root sends
            return direct && ranks == 2;
        case Kind::reduce:
            return false;
    }
    return false;
}

}  // namespace

std::string_view name_of(Way way) {
    switch (way) {
        case Way::small:
            return "packets";
        case Way::tiles:
            return "tiles";
        case Way::engines:
            return "engines";
    }
    return "";
}

std::string_view name_of(Kind kind) {
    switch (kind) {
        case Kind::allreduce:
            return "allreduce";
        case Kind::reduce_scatter_block:
            return "reduce_scatter_block";
        case Kind::allgather:
            return "allgather";
        case Kind::bcast:
            return "bcast";
        case Kind::reduce:
            return "reduce";
        case Kind::alltoall:
            return "alltoall";
    }
    return "";
}

WindowLayout window_for(uint64_t budget, int ranks) {
    constexpr uint64_t kSmall = 16384;
    constexpr uint64_t kPage = 4096;
    WindowLayout layout;
    layout.ranks = static_cast<uint32_t>(ranks);
    layout.small_bytes = kSmall;
    const uint64_t rest = budget - std::min(budget, layout.slot(Stage::scattered, 0, 0, 0));
    layout.slot_bytes = rest / (uint64_t{kStages} * 2 * kMaxBlocks * layout.ranks) / kPage * kPage;
    return layout;
}

Plan plan_of(Kind kind, uint64_t bytes, int ranks, bool direct, const WindowLayout &layout, const Limits &limits) {
    constexpr uint64_t kLeastTile = 8192;
    constexpr uint64_t kLine = 128;
    constexpr uint64_t kMostFlat = 256 << 10;
    // One way, copy engines are ahead of kernels; both ways at once, kernels were on every H200 measured so far.
    constexpr uint64_t kOneWay = 64 << 20;
    Plan plan;
    plan.flat = kind == Kind::bcast && direct && (ranks == 2 || bytes <= kMostFlat);
    const int owners = plan.flat ? 1 : kind == Kind::bcast || kind == Kind::reduce ? ranks - 1 : ranks;
    plan.part_bytes = has_blocks(kind) ? bytes / ranks : round_up((bytes + owners - 1) / owners, kLine);
    const uint64_t message = has_blocks(kind) ? plan.part_bytes : bytes;
    if (message * (ranks - 1) <= limits.small_bytes && message <= kMaxBlocks * layout.small_bytes / 2) {
        plan.way = Way::small;
        plan.flat = false;
        plan.tile_bytes = kThreadsPerBlock * kPacketPayload;
        if (message > kMaxBlocks * plan.tile_bytes)
            plan.tile_bytes = layout.small_bytes / 2;
        plan.blocks = static_cast<uint32_t>((message + plan.tile_bytes - 1) / plan.tile_bytes);
        const uint64_t packets = (std::min(message, plan.tile_bytes) + kPacketPayload - 1) / kPacketPayload;
        plan.threads = static_cast<uint32_t>(std::min<uint64_t>(kThreadsPerBlock, round_up(packets, 32)));
        return plan;
    }
    plan.threads = kThreadsPerBlock;
    const uint64_t engine_bytes = kind == Kind::bcast ? std::min(limits.engine_bytes, kOneWay) : limits.engine_bytes;
    if (bytes >= engine_bytes && engines_serve(kind, ranks, direct)) {
        plan.way = Way::engines;
        plan.flat = false;
        plan.blocks = limits.blocks;
        return plan;
    }
    plan.way = Way::tiles;
    const uint64_t most_blocks = std::min<uint64_t>(limits.blocks, kMaxBlocks);
    const uint64_t blocks = std::clamp<uint64_t>(plan.part_bytes / kLeastTile, 1, most_blocks);
    const uint64_t share = round_up((plan.part_bytes + blocks - 1) / blocks, kLine);
    // What goes straight from input to output needs no slots, and so no more than one tile a team. Otherwise a second
    // tile is under way while the first is reduced, once tiles are so large that flags take little of the time.
    const bool straight = direct && (kind == Kind::allgather || kind == Kind::alltoall || plan.flat);
    constexpr uint64_t kWorthHalving = 128 * 1024;
    plan.tile_bytes =
        straight ? share
                 : std::min(share <= kWorthHalving ? share : std::max(kWorthHalving, round_up(share / 4, kLine)),
                            layout.slot_bytes);
    const uint64_t tiles = (plan.part_bytes + plan.tile_bytes - 1) / plan.tile_bytes;
    plan.blocks = static_cast<uint32_t>(std::min(blocks, tiles));
    return plan;
}

}  // namespace flx::cuda
