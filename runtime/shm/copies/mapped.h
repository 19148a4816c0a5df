/// \file mapped.h
/// Collectives whose ranks have each other's buffers mapped (runtime/shm/memory/windows.h): everything is read where it
/// lies and written where it belongs, once, with loads and stores.
///
/// A reduction's vector is cut into one region per rank; its owner adds all inputs, in rank order, and writes the sum
/// to every output. Where that exceeds the caches it goes past them. Other collectives read what they need; a bcast's
/// root writes as much to each rank as the others read, so that it does not stand by.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/board.h"
#include "runtime/plan/operation.h"
#include "runtime/shm/copies/copies.h"
#include "runtime/shm/memory/cache_share.h"

namespace flx::shm {

class Mapped {
  public:
    /// Where a rank's buffers are in this process. Only those that the collective lets others touch are looked at, and
    /// this rank's own.
    struct Buffers {
        const std::byte *in = nullptr;
        std::byte *out = nullptr;
    };

    Mapped(int rank, int ranks);
    /// Does what PeerMemory::obey says.
    void obey(const Board *board) { board_ = board; }
    /// Sets the rank's share of the last cache (runtime/shm/memory/cache_share.h), between two operations.
    void share_cache(size_t share) { past_bytes_ = past_cache_from(share); }

    static bool serves(algorithms::Collective collective) {
        return collective != algorithms::Collective::scan && collective != algorithms::Collective::exscan;
    }
    /// Whether a collective that is served adds nothing.
    static bool only_copies(algorithms::Collective collective) {
        using enum algorithms::Collective;
        return collective == allgather || collective == allgatherv || collective == alltoall || collective == bcast ||
               collective == gather || collective == scatter;
    }
    /// This rank's part. All ranks have come, with inputs ready; nothing may be touched until all have returned from
    /// this. Not for a reduce_scatter(_block) or an alltoall in place. Fails only with what stands on the board.
    /// `reach`: to a copy engine, which takes a part of what is only copied; null: the cores do it all.
    Status run(const Call &call, const std::vector<Buffers> &buffers, Reach *reach = nullptr);
    [[nodiscard]] const Copies &copies() const { return copies_; }

  private:
    void plan_copies(const Call &call, const std::vector<Buffers> &buffers);
    Status reduce_to_all(const Call &call, const std::vector<Buffers> &buffers);
    Status reduce_to_root(const Call &call, const std::vector<Buffers> &buffers, bool stream);
    void reduce_to_one(const Call &call, const std::vector<Buffers> &buffers, size_t first, size_t count,
                       std::byte *result, bool stream);

    int rank_;
    int ranks_;
    const Board *board_ = nullptr;  ///< null: nobody gives up
    size_t past_bytes_ = past_cache_from(0);
    std::vector<std::byte> sum_;  ///< stays in the cache
    std::vector<const void *> sources_;
    Copies copies_;
};

}  // namespace flx::shm
