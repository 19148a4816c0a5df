#include "runtime/cuda/far/tiers.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

using Where = TierStep::Where;

/// Parts begin on lines where the vector does.
constexpr uint64_t kPartGrain = 128;

const char *at(const void *base, uint64_t bytes) {
    return static_cast<const char *>(base) + bytes;
}
char *at(void *base, uint64_t bytes) {
    return static_cast<char *>(base) + bytes;
}

/// The steps of one call.
class Steps {
  public:
    Steps(const Operation &call, const Tiers &tiers, char *staging, uint64_t staging_bytes,
          std::vector<TierStep> &steps)
        : call_(call),
          tiers_(tiers),
          staging_(staging),
          element_(size_of(call.dtype)),
          grain_(kPartGrain / element_),
          near_(static_cast<uint64_t>(tiers.near)),
          hosts_(static_cast<uint64_t>(tiers.hosts)),
          room_(staging_bytes / kPartGrain * grain_),
          steps_(steps) {}

    void allreduce() {
        const uint64_t most = (room_ - near_ * grain_) / grain_ * grain_;  // of a part, and what is left over
        for (uint64_t begin = 0; begin < call_.count;) {
            const uint64_t left = call_.count - begin;
            const uint64_t length = left < near_ * (most + grain_) ? left : near_ * most;
            const Parts parts = cut(length);
            const char *in = at(call_.in, begin * element_);
            char *out = at(call_.out, begin * element_);
            char *rest = staging_ + parts.part * element_;
            near(Collective::reduce_scatter_block, in, staging_, near_ * parts.part);
            near(Collective::reduce, in + parts.rest_at * element_, rest, parts.rest, tiers_.near - 1);
            across(Collective::allreduce, staging_, staging_, own(parts));
            near(Collective::allgather, staging_, out, near_ * parts.part);
            near(Collective::bcast, is_last() ? rest : out + parts.rest_at * element_, out + parts.rest_at * element_,
                 parts.rest, tiers_.near - 1);
            begin += length;
        }
    }

    void reduce_scatter_block() {
        const uint64_t block = call_.count / (near_ * hosts_);
        const uint64_t apart = lines(block);
        if (hosts_ * apart <= room_) {
            for (uint64_t host = 0; host < hosts_; ++host)
                near(Collective::reduce_scatter_block, at(call_.in, host * near_ * block * element_),
                     staging_ + host * apart * element_, near_ * block);
            across(Collective::reduce_scatter_block, staging_, call_.out, hosts_ * block, 0, apart);
            return;
        }
        const uint64_t step = room_ / (hosts_ + near_ * hosts_) / grain_ * grain_;
        char *packed = staging_ + hosts_ * step * element_;
        for (uint64_t begin = 0; begin < block; begin += step) {
            const uint64_t length = std::min(step, block - begin);
            pack(at(call_.in, begin * element_), packed, length, block, near_ * hosts_);
            for (uint64_t host = 0; host < hosts_; ++host)
                near(Collective::reduce_scatter_block, packed + host * near_ * length * element_,
                     staging_ + host * step * element_, near_ * length);
            across(Collective::reduce_scatter_block, staging_, at(call_.out, begin * element_), hosts_ * length, 0,
                   step);
        }
    }

    void allgather() {
        const uint64_t block = call_.count / (near_ * hosts_);
        across(Collective::allgather, call_.in, at(call_.out, place() * block * element_), hosts_ * block, 0,
               near_ * block);
        for (uint64_t host = 0; host < hosts_; ++host) {
            char *out = at(call_.out, host * near_ * block * element_);
            near(Collective::allgather, out + place() * block * element_, out, near_ * block);
        }
    }

    void bcast() {
        const int host = call_.root / tiers_.near;
        const Parts parts = cut(call_.count);
        if (tiers_.host == host)
            near(Collective::bcast, call_.in, call_.out, call_.count, call_.root % tiers_.near);
        char *part = at(call_.out, place() * parts.part * element_);
        across(Collective::bcast, part, part, own(parts), host);
        if (tiers_.host == host)
            return;
        near(Collective::allgather, part, call_.out, near_ * parts.part);
        char *rest = at(call_.out, parts.rest_at * element_);
        near(Collective::bcast, rest, rest, parts.rest, tiers_.near - 1);
    }

    void reduce() {
        const int host = call_.root / tiers_.near;
        const int to = call_.root % tiers_.near;
        const bool receives = tiers_.host == host && tiers_.place == to;
        for (uint64_t begin = 0; begin < call_.count; begin += room_) {
            const uint64_t length = std::min(room_, call_.count - begin);
            near(Collective::reduce, at(call_.in, begin * element_), staging_, length, to);
            if (tiers_.place == to)
                across(Collective::reduce, staging_, receives ? at(call_.out, begin * element_) : staging_, length,
                       host);
        }
    }

  private:
    struct Parts {
        uint64_t part = 0;
        uint64_t rest_at = 0;
        uint64_t rest = 0;
    };
    [[nodiscard]] Parts cut(uint64_t length) const {
        const uint64_t part = length / (near_ * grain_) * grain_;
        return {part, near_ * part, length - near_ * part};
    }
    [[nodiscard]] uint64_t place() const { return static_cast<uint64_t>(tiers_.place); }
    [[nodiscard]] bool is_last() const { return tiers_.place == tiers_.near - 1; }
    [[nodiscard]] uint64_t own(const Parts &parts) const { return parts.part + (is_last() ? parts.rest : 0); }
    [[nodiscard]] uint64_t lines(uint64_t elements) const { return (elements + grain_ - 1) / grain_ * grain_; }

    TierStep &add(Where where, Collective collective, const void *in, void *out, uint64_t count, int root) {
        TierStep &step = steps_.emplace_back();
        step.where = where;
        step.call = {collective, in, out, count, call_.dtype, call_.op, root};
        return step;
    }
    void near(Collective collective, const void *in, void *out, uint64_t count, int root = 0) {
        if (count == 0)
            return;
        TierStep &step = add(Where::near, collective, in, out, count, root);
        if (step.call.op == FLX_AVG)
            step.call.op = FLX_SUM;
    }
    void across(Collective collective, const void *in, void *out, uint64_t count, int root = 0, uint64_t apart = 0) {
        if (count == 0)
            return;
        TierStep &step = add(Where::across, collective, in, out, count, root);
        step.call.divisor = tiers_.ranks();
        step.apart = apart;
    }
    void pack(const char *from, char *to, uint64_t length, uint64_t pitch, uint64_t rows) {
        TierStep &step = steps_.emplace_back();
        step.where = Where::pack;
        step.from = from;
        step.to = to;
        step.bytes = length * element_;
        step.pitch = pitch * element_;
        step.rows = rows;
    }

    const Operation &call_;
    const Tiers &tiers_;
    char *staging_;
    const uint64_t element_;
    const uint64_t grain_;  ///< elements of a line
    const uint64_t near_;
    const uint64_t hosts_;
    const uint64_t room_;  ///< elements
    std::vector<TierStep> &steps_;
};

}  // namespace

std::string find_tiers(std::span<const int> host_of, int rank, Tiers &tiers) {
    const auto ranks = static_cast<int>(host_of.size());
    const int hosts = *std::max_element(host_of.begin(), host_of.end()) + 1;
    const int near = ranks / hosts;
    std::vector<int> here(static_cast<size_t>(hosts));
    for (const int host : host_of)
        ++here[static_cast<size_t>(host)];
    for (int host = 0; host < hosts; ++host)
        if (here[static_cast<size_t>(host)] != here[0])
            return fmt::format("host 0 has {} ranks, host {} has {}", here[0], host, here[static_cast<size_t>(host)]);
    if (near <= 1)
        return "each host has one rank";
    if (near > kMaxRanks)
        return fmt::format("hosts have {} ranks, and up to {} use NVLink", near, kMaxRanks);
    for (int one = 0; one < ranks; ++one)
        if (host_of[static_cast<size_t>(one)] != one / near)
            return fmt::format("ranks do not lie host by host: rank {} is on host {}", one,
                               host_of[static_cast<size_t>(one)]);
    tiers = {hosts, near, rank / near, rank % near};
    return {};
}

uint64_t least_tier_staging(const Tiers &tiers) {
    return 2 * kPartGrain * static_cast<uint64_t>(tiers.ranks() + tiers.hosts);
}

void tier_steps(const Operation &call, const Tiers &tiers, char *staging, uint64_t staging_bytes,
                std::vector<TierStep> &steps) {
    steps.clear();
    Steps of_call(call, tiers, staging, staging_bytes, steps);
    switch (call.collective) {
        case Collective::allreduce:
            return of_call.allreduce();
        case Collective::reduce_scatter_block:
            return of_call.reduce_scatter_block();
        case Collective::allgather:
            return of_call.allgather();
        case Collective::bcast:
            return of_call.bcast();
        case Collective::reduce:
            return of_call.reduce();
        default:  // goes without tiers
            break;
    }
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
