#include "runtime/cuda/protocol/plan.h"

#include <algorithm>

#include "runtime/cuda/protocol/bulk.h"

namespace flx::cuda {
namespace {

constexpr uint32_t kMostThreads = 512;
constexpr uint64_t kMiB = uint64_t{1} << 20;
/// The largest tile that is worth a slot.
constexpr uint64_t kMostTile = 64 << 10;

constexpr uint64_t round_up(uint64_t number, uint64_t multiple) {
    return (number + multiple - 1) / multiple * multiple;
}
constexpr uint64_t divide_up(uint64_t number, uint64_t by) {
    return (number + by - 1) / by;
}

/// The largest slots that fit into `budget` bytes with the rest of the window.
uint64_t slot_for(uint64_t budget, const WindowLayout &layout) {
    constexpr uint64_t kLine = 128;
    const uint64_t room = budget - std::min(budget, layout.slots());
    return room / (uint64_t{kStages} * 2 * layout.teams * layout.ranks) / kLine * kLine;
}

/// The least vector for which copy engines were ahead of kernels of up to `blocks` multiprocessors, on H200s: kernels
/// that add as they go need many. Among more than two ranks each copy to a peer waits for the one before, so vectors
/// must be larger. `bulk`: bulk copies serve it, which are one kernel. Beside a program's long kernels each of an
/// engine pipeline's kernels waits for a place of its own, so where multiprocessors are few all goes by bulk copies
/// (docs/decisions/bulk-copies.md).
uint64_t least_for_engines(Collective collective, uint64_t bytes, int ranks, Outputs outputs, uint32_t blocks,
                           bool bulk) {
    constexpr uint64_t kNever = UINT64_MAX;
    constexpr uint64_t kEven = 128;
    constexpr uint32_t kFew = 32;
    constexpr uint32_t kSome = 64;
    const bool two = ranks == 2;
    switch (collective) {
        case Collective::allgather:
        case Collective::alltoall:
            return (two ? 128 : 256) * kMiB;
        case Collective::allreduce:
            if (bulk)
                return blocks <= kFew ? kNever : 128 * kMiB;
            if (two && blocks <= kSome)
                return (blocks <= kFew ? 32 : 64) * kMiB;
            if (two)
                return (outputs.in_place ? 256 : 128) * kMiB;
            if (bytes % (kEven * ranks) != 0 || (outputs.in_place && ranks > 4))
                return kNever;
            return (ranks <= 4 ? 128 : 1024) * kMiB;
        case Collective::bcast:  // among more ranks, others pass on what the root sends
            return two ? 64 * kMiB : kNever;
        case Collective::reduce_scatter_block:
            if (bulk)
                return kNever;
            if (two)
                return (blocks <= kSome ? 16 : 32) * kMiB;
            return outputs.direct && ranks <= 4 ? 128 * kMiB : kNever;
        default:  // reduce
            return kNever;
    }
}

/// `bulk`: bulk copies serve it.
bool engines_serve(Collective collective, uint64_t bytes, int ranks, Outputs outputs, const Limits &limits, bool bulk) {
    const bool able = collective == Collective::reduce_scatter_block ||
                      (collective == Collective::bcast && outputs.direct && ranks == 2) ||
                      ((collective == Collective::allreduce || collective == Collective::allgather ||
                        collective == Collective::alltoall) &&
                       outputs.direct);
    constexpr uint64_t kSpareLeast = 16 * kMiB;
    if (limits.spare)
        return !reduces(collective) || (able && bytes >= kSpareLeast);
    if (limits.engine_bytes != 0)
        return able && bytes >= limits.engine_bytes;
    const bool one_way = collective == Collective::bcast;
    const bool in_window = collective == Collective::reduce_scatter_block && !outputs.direct;
    return able && bytes >= least_for_engines(collective, bytes, ranks, outputs, limits.blocks, bulk) &&
           (outputs.paged || one_way || in_window);
}

/// Packets or lines, if they are for this: whether they are.
bool plan_messages(Collective collective, uint64_t bytes, int ranks, bool direct, const WindowLayout &layout,
                   const Limits &limits, Plan &plan) {
    constexpr uint64_t kLine = 128;
    constexpr uint64_t kLineData = 120;
    constexpr uint64_t kLanes = 8;
    constexpr uint64_t kPacketData = 8;
    constexpr uint64_t kFewThreads = 256;
    // More than half of a packet is on the way for nothing, but a line takes longer to put together.
    const uint64_t most_in_packets = (ranks == 2 && limits.lines        ? 64
                                      : collective == Collective::bcast ? 512
                                                                        : 256)
                                     << 10;
    // Tiles keep reductions waiting longer than copies, which go straight into outputs.
    const uint64_t halves = collective == Collective::reduce_scatter_block ? 4
                            : collective == Collective::allreduce          ? 3
                                                                           : 2;
    // Between two nothing is sent twice: what fits into lines is there in less time than through slots, and up to half
    // of that in no more than straight into outputs (H200).
    const bool straight = direct && !reduces(collective);
    const bool otherwise = limits.engine_bytes != 0 && limits.engine_bytes <= bytes;
    const uint64_t times = ranks == 2 && !otherwise ? kLinesOfTwo / (straight ? 2 : 1) : 1;
    const uint64_t most = limits.line_bytes / 2 * halves * times;
    const uint64_t message = has_blocks(collective) ? plan.part_bytes : bytes;
    const uint64_t sent = message * (ranks - 1);
    if (sent > most)
        return false;
    const auto least_threads = static_cast<uint64_t>(kMaxRanks) * kLanes;
    const uint64_t packet_run = std::min<uint64_t>(kMostThreads * kPacketData, layout.packet_bytes / 2);
    if (sent <= most_in_packets && message <= kMaxBlocks * packet_run) {
        plan.way = Way::packets;
        plan.tile_bytes = packet_run;
        plan.threads = static_cast<uint32_t>(std::clamp<uint64_t>(
            round_up(divide_up(std::min(message, packet_run), kPacketData), 32), 32, kMostThreads));
    } else {
        const uint64_t room = layout.line_bytes / kLine * kLineData;
        if (!limits.lines || message > kMaxBlocks * room)
            return false;
        plan.way = Way::lines;
        const bool few = message <= kMaxBlocks * kFewThreads / kLanes * kLineData;
        plan.threads = few ? kFewThreads : kMostThreads;
        plan.tile_bytes = std::min(
            room, std::max(plan.threads / kLanes * kLineData, round_up(divide_up(message, kMaxBlocks), kLineData)));
        const uint64_t lines = divide_up(std::min(message, plan.tile_bytes), kLineData);
        plan.threads =
            static_cast<uint32_t>(std::clamp<uint64_t>(round_up(lines * kLanes, 32), least_threads, plan.threads));
    }
    plan.blocks = static_cast<uint32_t>(divide_up(message, plan.tile_bytes));
    return true;
}

/// Lines that others pass on. No more a round than is worth having under way.
void plan_relay(uint64_t bytes, int ranks, const WindowLayout &layout, Plan &plan) {
    constexpr uint64_t kLine = 128;
    constexpr uint64_t kLineData = 120;
    constexpr uint64_t kLanes = 8;
    constexpr uint64_t kLeastLines = 16;
    constexpr uint64_t kMostLines = 768;
    const uint64_t room = layout.line_bytes / kLine * (ranks - 1);
    const uint64_t lines = std::clamp(divide_up(divide_up(bytes, kLineData), kMaxBlocks), kLeastLines,
                                      std::max(std::min(room, kMostLines), kLeastLines));
    plan.way = Way::relay;
    plan.tile_bytes = lines * kLineData;
    plan.part_bytes = bytes;
    plan.flat = true;
    plan.blocks = static_cast<uint32_t>(std::min<uint64_t>(divide_up(bytes, plan.tile_bytes), kMaxBlocks));
    plan.threads =
        static_cast<uint32_t>(std::clamp<uint64_t>(round_up(lines * kLanes, 32), kMaxRanks * kLanes, kMostThreads));
}

/// Plans a chain, from rank to rank. Every further rank gets its first tile so much later; small tiles are spent
/// waiting for flags.
void plan_chain(uint64_t bytes, const Limits &limits, Plan &plan) {
    constexpr uint64_t kLeast = 16 << 10;
    constexpr uint64_t kMost = 32 << 10;
    constexpr uint64_t kLine = 128;
    constexpr uint64_t kTilesOfATeam = 64;
    plan.way = Way::chain;
    plan.part_bytes = round_up(bytes, kLine);
    plan.flat = true;
    const uint64_t teams = std::min<uint64_t>(2 * limits.blocks, kMaxTeams);
    plan.tile_bytes = round_up(std::clamp(bytes / teams / kTilesOfATeam, kLeast, kMost), kLine);
    plan.blocks = static_cast<uint32_t>(std::min(teams, divide_up(plan.part_bytes, plan.tile_bytes)));
}

void plan_bulk(Collective collective, uint64_t bytes, const Limits &limits, Plan &plan) {
    plan.way = Way::bulk;
    plan.flat = collective == Collective::reduce;
    plan.part_bytes = collective == Collective::reduce_scatter_block ? bytes / 2 : bytes;
    plan.tile_bytes = kBulkTile;
    plan.blocks = static_cast<uint32_t>(
        std::min<uint64_t>({limits.blocks, kMostBulkBlocks, divide_up(plan.part_bytes, plan.tile_bytes)}));
}

}  // namespace

std::string_view name_of(Way way) {
    switch (way) {
        case Way::packets:
            return "packets";
        case Way::lines:
            return "lines";
        case Way::relay:
            return "relay";
        case Way::tiles:
            return "tiles";
        case Way::bulk:
            return "bulk";
        case Way::chain:
            return "chain";
        case Way::engines:
            return "engines";
    }
    return "";
}

bool bulk_serves(Collective collective, int ranks, const WindowLayout &layout, const Limits &limits) {
    return limits.bulk && limits.lines && !limits.spare && reduces(collective) && ranks == 2 &&
           layout.teams >= kMostBulkBlocks && bulk_slots(layout) != 0;
}

WindowLayout window_for(uint64_t budget, int ranks, bool spare) {
    constexpr uint64_t kMostPackets = 8 << 10;
    const uint64_t most_lines = (ranks == 2 ? 72 : 32) << 10;  // of two: 8 MiB in all
    constexpr uint64_t kLine = 128;
    WindowLayout layout;
    layout.ranks = static_cast<uint32_t>(ranks);
    const uint64_t rest = (budget - std::min(budget, WindowLayout::kHead)) / layout.places();
    layout.packet_bytes = std::min(kMostPackets, rest / 16 / kLine * kLine);
    layout.line_bytes = std::min(most_lines, rest / 4 * layout.ranks / (layout.ranks - 1) / kLine * kLine);
    const uint64_t slot = slot_for(budget, layout);
    layout.slot_bytes = spare ? slot : std::min(kMostTile, slot);
    return layout;
}

/// Lines have most of it: they carry what is longer.
WindowLayout small_window(uint64_t budget, int ranks) {
    constexpr uint64_t kLine = 128;
    constexpr uint64_t kParts = 8;
    constexpr uint64_t kPartsOfLines = 5;
    WindowLayout layout;
    layout.ranks = static_cast<uint32_t>(ranks);
    layout.teams = 16;
    const uint64_t rest = (budget - std::min(budget, WindowLayout::kHead)) / layout.places();
    layout.packet_bytes = rest / kParts / kLine * kLine;
    layout.line_bytes = rest * kPartsOfLines / kParts * layout.ranks / (layout.ranks - 1) / kLine * kLine;
    layout.slot_bytes = slot_for(budget, layout);
    return layout;
}

Room room_for(uint64_t budget, uint32_t blocks, int ranks, bool spare) {
    constexpr uint64_t kPartOfMailbox = 6;
    const bool small = budget < kLeastRoom;
    Room room;
    room.mailbox = small ? small_mailbox(budget / kPartOfMailbox, blocks, ranks) : mailbox_for(budget, blocks, ranks);
    const uint64_t rest = budget - std::min(budget, room.mailbox.bytes() + (small ? Room::kLine : 0));
    room.window = small ? small_window(rest, ranks) : window_for(rest, ranks, spare);
    return room;
}

bool alike(Collective collective, const Plan &full, const Plan &small) {
    const auto at_once = [](Way way) { return way == Way::packets || way == Way::lines; };
    if (at_once(full.way) || at_once(small.way))
        return at_once(full.way) && at_once(small.way);
    if (full.way == Way::engines || small.way == Way::engines)  // sums go through the window in rounds
        return full.way == small.way && !reduces(collective);
    if (full.way == Way::bulk)  // fewer slots keep less under way
        return false;
    return full.way == small.way && full.blocks == small.blocks && full.tile_bytes == small.tile_bytes;
}

Plan plan_of(Collective collective, uint64_t bytes, int ranks, Outputs outputs, const WindowLayout &layout,
             const Limits &limits) {
    constexpr uint64_t kLeastTile = 8192;
    constexpr uint64_t kLine = 128;
    constexpr uint64_t kMostFlat = 256 << 10;
    constexpr uint64_t kLeastRelay = 96 << 10;
    constexpr uint64_t kFewBytes = 32 << 10;
    Plan plan;
    const int owners = collective == Collective::bcast || collective == Collective::reduce ? ranks - 1 : ranks;
    plan.part_bytes = has_blocks(collective) ? bytes / ranks : round_up(divide_up(bytes, owners), kLine);
    plan.threads = kMostThreads;
    plan.in_place = outputs.in_place;
    const bool copies_alone = limits.spare && !reduces(collective);
    if (collective == Collective::bcast && ranks > 2 && outputs.direct && bytes >= limits.chain_bytes &&
        !copies_alone) {
        plan_chain(bytes, limits, plan);
        return plan;
    }
    Plan messages = plan;
    const bool at_once =
        !copies_alone && plan_messages(collective, bytes, ranks, outputs.direct, layout, limits, messages);
    const bool between_two = !outputs.direct && !at_once && bytes <= 32 * kMiB;
    const bool relayed = ranks > 2 ? bytes >= kLeastRelay : between_two;
    if (collective == Collective::bcast && limits.line_bytes > 0 && limits.lines && relayed && !copies_alone) {
        plan_relay(bytes, ranks, layout, plan);
        return plan;
    }
    if (at_once && (!limits.spare || messages.blocks <= limits.blocks))
        return messages;
    const bool bulk = bulk_serves(collective, ranks, layout, limits);
    if (engines_serve(collective, bytes, ranks, outputs, limits, bulk)) {
        plan.way = Way::engines;
        plan.blocks = limits.blocks;
        return plan;
    }
    if (bulk) {
        plan_bulk(collective, bytes, limits, plan);
        return plan;
    }
    plan.way = Way::tiles;
    // Between two, no link carries more where the root adds, and nothing is sent back.
    const bool added_by_root = collective == Collective::reduce && ranks == 2;
    plan.flat =
        added_by_root || (collective == Collective::bcast && outputs.direct && (ranks == 2 || bytes <= kMostFlat));
    if (plan.flat)
        plan.part_bytes = round_up(bytes, kLine);
    // What goes straight from input to output needs no slots, and so no more than one tile a team. Otherwise tiles are
    // under way while others are reduced, and all teams have equally many.
    const bool copies = collective == Collective::allgather || collective == Collective::alltoall ||
                        (collective == Collective::bcast && plan.flat);
    const bool straight = outputs.direct && copies;
    const uint64_t most_blocks = std::min(limits.blocks, straight ? kMaxBlocks : layout.teams);
    const uint64_t blocks = std::clamp<uint64_t>(plan.part_bytes / kLeastTile, 1, most_blocks);
    const uint64_t share = round_up(divide_up(plan.part_bytes, blocks), kLine);
    // Two tiles were a quarter slower than one or three (H200, 4 GPUs).
    const bool whole = reduces(collective) && ranks > 2 && share <= kMostTile;
    const uint64_t target = std::min(whole ? share : std::clamp(share / 4, kFewBytes, kMostTile), layout.slot_bytes);
    plan.tile_bytes =
        straight ? share : std::min(round_up(divide_up(share, divide_up(share, target)), kLine), layout.slot_bytes);
    plan.blocks = static_cast<uint32_t>(std::min(blocks, divide_up(plan.part_bytes, plan.tile_bytes)));
    return plan;
}

bool writes_outputs(Collective collective, uint64_t bytes, int ranks, const WindowLayout &layout,
                    const Limits &limits) {
    for (const bool in_place : {false, true}) {
        for (const bool paged : {false, true}) {
            const Way way = plan_of(collective, bytes, ranks, {true, in_place, paged}, layout, limits).way;
            if (way == Way::tiles || way == Way::chain || way == Way::engines)
                return true;
        }
    }
    return false;
}

bool may_stage(const Job &job, Way way) {
    // What is staged lands in the output, where a reduce-scatter has room for one peer's.
    return job.direct && way == Way::engines && (job.collective != Collective::reduce_scatter_block || job.ranks == 2);
}

Stageable stageable(const Job &job) {
    const uint64_t part = job.collective == Collective::bcast ? job.bytes : job.part_bytes;
    if (job.collective != Collective::allreduce)
        return {part, part, part};
    // Half of what the first phase sends to the last peer is left when the first chunk is reduced
    // (runtime/cuda/near/engines.cpp).
    return {part, 2 * part, part + part / 2 / std::max(job.ranks - 1, 1)};
}

Piece staged_piece(const Job &job, uint64_t bytes) {
    constexpr uint64_t kPage = 4096;
    const uint64_t part = stageable(job).part;
    const uint64_t grain = part >= kMiB ? kPage : kGrain;
    bytes = std::min(bytes, part);
    if (job.collective == Collective::allreduce)
        return {0, bytes / grain * grain};
    if (bytes == 0)
        return {part, 0};
    const uint64_t direct = (part - bytes) / grain * grain;
    return {direct, part - direct};
}

}  // namespace flx::cuda
