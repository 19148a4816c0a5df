#include "runtime/cuda/far/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

using algorithms::Buffer;
using algorithms::Composition;
using algorithms::Layout;
using algorithms::Place;
using algorithms::Stage;

/// Parts begin on lines where the vector does.
constexpr uint64_t kPartGrain = 128;

/// A part of a call. Blocks of a whole vector lie side by side.
struct Part {
    char *in = nullptr;
    char *out = nullptr;
    uint64_t block = 0;  ///< elements
    uint64_t rest = 0;   ///< elements that are left over; whoever has the last block has them
    uint64_t apart = 0;  ///< elements from one host's block to the next one's in staging
};

/// The steps of one call.
class Steps {
  public:
    Steps(const Operation &call, const Composition &composition, const Tiers &tiers, char *staging,
          uint64_t staging_bytes, std::vector<TierStep> &steps)
        : call_(call),
          composition_(composition),
          tiers_(tiers),
          staging_(staging),
          element_(size_of(call.dtype)),
          grain_(kPartGrain / element_),
          blocks_(composition.blocks),
          room_(staging_bytes / kPartGrain * grain_),
          steps_(steps) {}

    /// Those of all stages, for one piece after the other that staging has room for.
    void make() {
        const uint64_t block = call_.count / blocks_;
        switch (call_.collective) {
            case Collective::allreduce:
                return in_pieces((room_ - blocks_ * grain_) / grain_ * grain_, grain_);
            case Collective::bcast:
                return in_pieces(call_.count, grain_);
            case Collective::reduce:
                return in_pieces(room_, 1);
            case Collective::allgather:
                return carry({in(0), out(0), block});
            case Collective::reduce_scatter_block:
                return in_blocks(block);
            default:  // goes without tiers
                break;
        }
    }

  private:
    [[nodiscard]] char *in(uint64_t element) const {  // only read
        return static_cast<char *>(const_cast<void *>(call_.in)) + element * element_;
    }
    [[nodiscard]] char *out(uint64_t element) const { return static_cast<char *>(call_.out) + element * element_; }

    /// Blocks of up to `most` elements and of whole grains; what is left over is less than a grain for each of them.
    void in_pieces(uint64_t most, uint64_t grain) {
        for (uint64_t begin = 0; begin < call_.count;) {
            const uint64_t left = call_.count - begin;
            const uint64_t length = left < blocks_ * (most + grain) ? left : blocks_ * most;
            const uint64_t block = length / (blocks_ * grain) * grain;
            carry({in(begin), out(begin), block, length - blocks_ * block});
            begin += length;
        }
    }
    /// As much of each block as a host's sums have room, which is packed where that is not all.
    void in_blocks(uint64_t block) {
        const auto hosts = static_cast<uint64_t>(tiers_.hosts);
        const uint64_t apart = (block + grain_ - 1) / grain_ * grain_;
        if (hosts * apart <= room_)
            return carry({in(0), out(0), block, 0, apart});
        const uint64_t step = room_ / (hosts + blocks_) / grain_ * grain_;
        char *packed = staging_ + hosts * step * element_;
        for (uint64_t begin = 0; begin < block; begin += step) {
            const uint64_t length = std::min(step, block - begin);
            steps_.push_back({.where = TierStep::Where::pack,
                              .from = in(begin),
                              .to = packed,
                              .bytes = length * element_,
                              .pitch = block * element_,
                              .rows = blocks_});
            carry({packed, out(begin), length, 0, step});
        }
    }

    void carry(const Part &part) {
        for (const Stage &stage : composition_.stages) {
            const bool gives_one = algorithms::input_layout(stage.collective) == Layout::single;
            const bool gets_one = algorithms::output_layout(stage.collective) == Layout::single;
            if (gives_one || gets_one)
                carry_one_each(stage, gives_one, part);
            else
                carry_all(stage, part);
        }
    }
    /// The blocks of the stage lie side by side.
    void carry_all(const Stage &stage, const Part &part) {
        const std::vector<uint32_t> &blocks = stage.blocks[0];
        add(stage, stage.collective, at(stage.input, blocks[0], part), at(stage.output, blocks[0], part),
            blocks.size() * part.block + (blocks.back() == last() ? part.rest : 0), stage.root);
    }
    /// Each rank gives one block or gets one. The nth ones of a host's ranks lie side by side, so they are one call.
    /// What is left over is one more, to or from the last place.
    void carry_one_each(const Stage &stage, bool gives, const Part &part) {
        const auto index = static_cast<size_t>(stage.tier == Stage::Tier::far ? tiers_.host : tiers_.place);
        for (size_t nth = 0; nth < stage.blocks[0].size(); ++nth) {
            const uint32_t first = stage.blocks[0][nth];
            const uint32_t own = stage.blocks[index][nth];
            add(stage, stage.collective, at(stage.input, gives ? own : first, part),
                at(stage.output, gives ? first : own, part), stage.group.size() * part.block, stage.root,
                gives ? near() * part.block : part.apart);
        }
        const int owner = tiers_.near - 1;
        char *from = at(stage.input, last(), part) + part.block * element_;
        char *to = at(stage.output, last(), part) + part.block * element_;
        add(stage, gives ? Collective::bcast : Collective::reduce, gives && tiers_.place != owner ? to : from, to,
            part.rest, owner);
    }

    [[nodiscard]] uint64_t near() const { return static_cast<uint64_t>(tiers_.near); }
    [[nodiscard]] uint32_t last() const { return composition_.blocks - 1; }
    /// Where a block is of which `places` say in which memory.
    [[nodiscard]] char *at(const std::vector<Place> &places, uint32_t block, const Part &part) const {
        const Place &place = places[block];
        if (place.buffer == Buffer::scratch)
            return staging_ + place.slot / near() * part.apart * element_;  // a rank has one of its host's slots
        const bool given = place.buffer == Buffer::input;
        const bool single = (given ? composition_.input : composition_.output) == Layout::single;
        return (given ? part.in : part.out) + (single ? 0 : block * part.block * element_);
    }

    void add(const Stage &stage, Collective collective, const void *from, void *to, uint64_t count, int root,
             uint64_t apart = 0) {
        if (count == 0)
            return;
        TierStep &step = steps_.emplace_back();
        step.call = {collective, from, to, count, call_.dtype, call_.op, root};
        if (stage.tier == Stage::Tier::far) {
            step.where = TierStep::Where::across;
            step.apart = apart;
        }
        if (stage.finishes)
            step.call.divisor = tiers_.ranks();
        else if (call_.op == FLX_AVG)
            step.call.op = FLX_SUM;
    }

    const Operation &call_;
    const Composition &composition_;
    const Tiers &tiers_;
    char *staging_;
    const uint64_t element_;
    const uint64_t grain_;  ///< elements of a line
    const uint64_t blocks_;
    const uint64_t room_;  ///< elements
    std::vector<TierStep> &steps_;
};

}  // namespace

std::string find_tiers(std::span<const int> host_of, int rank, Tiers &tiers) {
    const auto placement = algorithms::Placement::of({host_of.begin(), host_of.end()});
    const int near = static_cast<int>(placement.ranks[0].size());
    for (int host = 0; host < placement.hosts(); ++host)
        if (const auto here = placement.ranks[static_cast<size_t>(host)].size(); here != placement.ranks[0].size())
            return fmt::format("host 0 has {} ranks, host {} has {}", near, host, here);
    if (near <= 1)
        return "each host has one rank";
    if (near > kMaxRanks)
        return fmt::format("hosts have {} ranks, and up to {} use NVLink", near, kMaxRanks);
    for (int one = 0; one < placement.size(); ++one)
        if (const int host = placement.host[static_cast<size_t>(one)]; host != one / near)
            return fmt::format("ranks do not lie host by host: rank {} is on host {}", one, host);
    tiers = {placement.hosts(), near, rank / near, rank % near};
    return {};
}

uint64_t least_tier_staging(const Tiers &tiers) {
    return 2 * kPartGrain * static_cast<uint64_t>(tiers.ranks() + tiers.hosts);
}

Composition tier_stages(Collective collective, int root, const Tiers &tiers) {
    std::vector<int> host_of(static_cast<size_t>(tiers.ranks()));
    for (size_t rank = 0; rank < host_of.size(); ++rank)
        host_of[rank] = static_cast<int>(rank) / tiers.near;
    const auto placement = algorithms::Placement::of(host_of);
    const bool by_host = collective == Collective::allgather || collective == Collective::reduce_scatter_block;
    std::vector<uint32_t> between(by_host ? static_cast<size_t>(tiers.hosts) : 1);
    std::iota(between.begin(), between.end(), 0);
    return algorithms::compose(
        collective == Collective::reduce ? algorithms::Family::leaders : algorithms::Family::lanes,
        {collective, tiers.host * tiers.near + tiers.place, tiers.ranks(), root, &placement}, between,
        algorithms::Carried::in_calls);
}

void tier_steps(const Operation &call, const Composition &stages, const Tiers &tiers, char *staging,
                uint64_t staging_bytes, std::vector<TierStep> &steps) {
    steps.clear();
    Steps(call, stages, tiers, staging, staging_bytes, steps).make();
}

uint64_t least_for_tiers(bool shared) {
    // Measured (H200, 2 GPUs of 2 ranks each, rails of 2 GB/s): at 4 MiB turns take as long as is gained. Else the near
    // steps take some ten µs, and comparing calls as long as a small operation, of the 400 µs that are gained at 1 MiB.
    return uint64_t{shared ? 16U : 1U} << 20;
}

uint64_t signature_of(const Operation &call) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint64_t part :
         {static_cast<uint64_t>(call.collective), static_cast<uint64_t>(call.count), static_cast<uint64_t>(call.dtype),
          static_cast<uint64_t>(call.op), static_cast<uint64_t>(call.root)}) {
        hash = (hash ^ part) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
    }
    return hash;
}

}  // namespace flx::cuda
