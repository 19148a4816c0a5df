/// \file host_ways.h
/// The ways through shared memory, for ranks that all share one host: what lies in the segment, which way serves what,
/// and how a call is carried out by one of them. All add in rank order, so the bits do not depend on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/base/wait.h"
#include "runtime/link/board.h"
#include "runtime/link/bootstrap.h"
#include "runtime/link/layout.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/ways.h"
#include "runtime/shm/memory/bells.h"
#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/channel.h"
#include "runtime/shm/ways/fused.h"
#include "runtime/shm/ways/peer_memory.h"
#include "runtime/shm/ways/review.h"
#include "runtime/shm/ways/stream.h"

namespace flx::shm {

class HostWays {
  public:
    /// The least that a budget is made where there is little room.
    static constexpr size_t kLeastBudget = size_t{64} << 10;

    /// Bytes of the segment that are needed. `payload`: largest input of one rank that is fused; `budget`: as Fused and
    /// Stream.
    static size_t bytes(int ranks, size_t payload, size_t budget);
    /// What each rank writes, from the beginning of that memory. `late`: most of it is reserved when it is needed.
    static std::vector<Area> areas(int ranks, size_t payload, size_t budget, bool late);

    /// `memory`: that of the segment, zeroed. `board`: of its ranks; longer-lived, as are the layout, `memory` and
    /// `late`. `cache_share`: of this rank (runtime/shm/memory/cache_share.h). `late`: reserves what is late; null:
    /// nothing is.
    HostWays(const Layout &layout, Board *board, std::byte *memory, size_t payload, size_t budget, size_t cache_share,
             LateMemory *late);

    /// Collective: finds out how ranks lie to each other and reach each other's memory, and chooses ways by rule.
    /// `channel`: between all ranks; may be null. `crowded`: any rank shares its core with others.
    Status meet(Bootstrap &bootstrap, Channel *channel, bool crowded);
    /// What the best ways depend on, equal on all ranks.
    [[nodiscard]] std::string circumstances() const;
    /// Sets ways that are equal on all ranks: those of others in the same circumstances.
    void take(const Ways &ways);
    /// Collective: finds out which way is best for what, by trying. `tried`: there was time for it.
    Status choose(Bootstrap &bootstrap, const Config &config, Waiter &waiter, bool &tried);
    /// Called when ways were chosen: sets what is looked at again in the program's calls.
    void start_review(size_t fused_bytes);
    /// Memory of programs moves to huge pages; a GPU's copy engine takes a part of copies where it pays.
    void use_huge_pages();
    void use_engine(EngineReach::Source source);

    /// A way that is tried instead of the table's, for this call. Counts the call.
    [[nodiscard]] std::optional<Review::Look> look(const Operation &operation);
    /// Carries `call` out. `way`: fused, fetched or streamed. `served` is false, on all ranks, where nothing was done:
    /// a rank's buffer cannot be reached by others.
    Status run(const Call &call, flx::Way way, Waiter &waiter, bool &served);
    /// The same, timed: ranks come when they like, so between two barriers, before and after one call or several.
    /// `changed`: the table is another one now.
    Status run_timed(const Call &call, flx::Way way, const Review::Look &look, Waiter &waiter, bool &served,
                     bool &changed);
    /// The rank that the current call waits for.
    [[nodiscard]] int waiting_for() const { return streams_ ? stream_.waiting_for() : fused_.waiting_for(); }
    [[nodiscard]] Bells &bells() { return bells_; }

    /// The table of ways, equal on all ranks.
    [[nodiscard]] const Ways &ways() const { return ways_; }
    /// Whether ranks reach each other's buffers through the kernel. Equal on all ranks.
    [[nodiscard]] bool fetches() const { return peers_ != nullptr && peers_->by_kernel(); }
    /// Whether they map memory of flx_malloc.
    [[nodiscard]] bool maps() const { return peers_ != nullptr && peers_->maps(); }

    // For reports.
    /// What was decided from the program's own calls.
    [[nodiscard]] std::vector<Decision> explain() const;
    /// Null where ways stay as they were chosen.
    [[nodiscard]] const Review *review() const { return review_.get(); }
    /// Why not; empty where they do.
    [[nodiscard]] const std::string &why_not_by_kernel() const { return why_not_.not_by_kernel; }
    [[nodiscard]] const std::string &why_not_mapped() const {
        return peers_ != nullptr ? peers_->why_not_mapped() : why_not_.not_mapped;
    }
    /// Null where nothing is mapped, or only cores may copy it.
    [[nodiscard]] const PeerMemory *copies_by_engine() const {
        return peers_ != nullptr && peers_->engine_reach() != nullptr ? peers_.get() : nullptr;
    }

  private:
    Status find_tree(Bootstrap &bootstrap);
    Status reserve_stream(Waiter &waiter);
    Status reserve_all(Waiter &waiter, bool &all);
    [[nodiscard]] bool may_be_mapped(const Operation &operation);

    const Layout &layout_;
    Board *board_;
    const size_t cache_share_;
    Bells bells_;
    std::byte *const memory_;  ///< of fused_, then stream_
    const size_t budget_;
    LateMemory *const late_;
    Fused fused_;
    Stream stream_;
    bool stream_late_;                   ///< its memory is not reserved,
    Status why_no_stream_;               ///< and cannot be: equal on all ranks but for the words
    std::unique_ptr<PeerMemory> peers_;  ///< null where it does not work
    PeerMemory::Why why_not_;
    bool crowded_ = false;
    Ways ways_;
    std::unique_ptr<Review> review_;
    bool streams_ = false;  ///< the current call waits in stream_
};

}  // namespace flx::shm
