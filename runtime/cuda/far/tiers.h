/// \file tiers.h
/// Collectives on GPU memory of ranks on several hosts, in two tiers: *near*, among the ranks of a host, by NVLink, and
/// *across*, among the ranks that have the same place on every host, through host memory and rails. What goes between
/// hosts is then cut among the ranks of a host instead of being every rank's. Plain functions of what is equal on all
/// ranks: who is near whom, and the steps that a call is made of: those of its stages (algorithms/tiers.h), for pieces
/// of a vector that staging has room for.
///
/// Blocks are equal; the few elements that are left over belong to the last place. Averages add, and divide once, when
/// all has been added. Between the tiers an 8- or 16-bit float is rounded, so there are as many roundings as in a ring
/// of as many hosts and one more. Bits depend on sizes, ranks, hosts and staging alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithms/tiers.h"
#include "runtime/cuda/near/group.h"

namespace flx::cuda {

/// The tiers as one rank sees them. Ranks lie host by host: rank = host * near + place.
struct Tiers {
    int hosts = 1;
    int near = 1;  ///< ranks of each host
    int host = 0;  ///< this rank's
    int place = 0;

    [[nodiscard]] int ranks() const { return hosts * near; }
};

/// `host_of`: by rank, numbered in order of their lowest ranks. Why they make no tiers; empty: they do.
std::string find_tiers(std::span<const int> host_of, int rank, Tiers &tiers);

/// What a call does in one tier, or moves on this GPU before.
struct TierStep {
    enum class Where : uint8_t {
        near,    ///< `call` among the ranks of this host, by place
        across,  ///< `call` among the ranks of this place, by host
        pack     ///< `rows` of `bytes` each, `pitch` bytes apart, are put side by side
    };
    Where where = Where::near;
    Operation call{};
    uint64_t apart = 0;  ///< across: elements from block to block in this GPU's memory; 0: they lie side by side
    const char *from = nullptr;
    char *to = nullptr;
    uint64_t bytes = 0;
    uint64_t pitch = 0;
    uint64_t rows = 0;
};

/// Bytes of staging from which on every call can be made.
uint64_t least_tier_staging(const Tiers &tiers);
/// This rank's stages of the collective, for tier_steps(): of an allreduce, reduce_scatter_block, allgather, bcast or
/// reduce.
algorithms::Composition tier_stages(algorithms::Collective collective, int root, const Tiers &tiers);
/// `staging`: `staging_bytes` of this GPU's memory, aligned to 128 bytes, used by one call after the other. Not for a
/// count of 0. Ranks of a host have the same near steps in the same order, those of a place the same across.
void tier_steps(const Operation &call, const algorithms::Composition &stages, const Tiers &tiers, char *staging,
                uint64_t staging_bytes, std::vector<TierStep> &steps);

/// Bytes of the least vector that two tiers carry, unless all are to go so. `shared`: several ranks have one GPU, where
/// their kernels take turns of some ms.
uint64_t least_for_tiers(bool shared);
/// Differs, as good as always, for calls that do not belong together.
uint64_t signature_of(const Operation &call);

}  // namespace flx::cuda
