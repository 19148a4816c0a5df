/// \file staged.h
/// Carries out one operation between hosts stage by stage (runtime/plan/staged.h). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "algorithms/placement.h"
#include "runtime/base/status.h"
#include "runtime/base/wait.h"
#include "runtime/communicator/between.h"
#include "runtime/plan/decisions.h"
#include "runtime/plan/operation.h"
#include "runtime/shm/ways/nearby.h"

namespace flx {

class Staged {
  public:
    /// `near`: null where this rank is alone on its host. Both outlive it.
    Staged(int rank, const algorithms::Placement &placement, shm::Nearby *near);

    /// The call's operation has its signature and number. `waiter`: for waits within the host.
    Status run(const Call &call, const Choice &choice, Between &between, Waiter &waiter);

    /// How many operations' numbers it takes at once, whatever a rank has to do with them.
    static int numbers(const algorithms::Algorithm *algorithm, const algorithms::Placement &placement);

    /// Bytes that this rank showed others of its host in the last operation.
    [[nodiscard]] uint64_t shown() const { return shown_; }

  private:
    Status by_leaders(const algorithms::Algorithm &between);
    Status reduced(const algorithms::Algorithm &between);
    Status broadcast(const algorithms::Algorithm &between);
    Status gathered(const algorithms::Algorithm &between);
    Status scattered(const algorithms::Algorithm &between);
    Status exchanged_all(const algorithms::Algorithm &between);
    Status summed_parts(const algorithms::Algorithm &between);
    Status scanned();
    Status allreduce_by_lanes(const algorithms::Algorithm &between);
    [[nodiscard]] uint32_t blocks_of(const algorithms::Algorithm &between);
    Status alltoall_by_lanes();
    Status alltoall_by_lanes_in_rounds();
    Status alltoall_by_leaders(const algorithms::Algorithm &between);

    Status reduce_here(const std::byte *in, std::byte *out, size_t count);
    Status gather_here(const void *in, std::byte *out);
    Status scatter_here(const std::byte *in, void *out);
    Status pass_on(std::byte *buffer, size_t bytes);
    Status give_blocks(algorithms::Collective collective, const void *in, void *out,
                       const algorithms::Algorithm &between);
    template <typename Place>
    Status collect(size_t block, const Place &place);
    Status collect_at_head(size_t block);
    Status deal(size_t block);
    Status exchange_in_rounds(std::byte *parts, size_t part, const std::vector<int> &carriers);
    [[nodiscard]] Operation part(algorithms::Collective collective, const void *in, void *out, size_t count) const;
    void find_heads();
    [[nodiscard]] bool alone() const { return near_ == nullptr; }
    [[nodiscard]] size_t here() const { return placement_.on_host_of(rank_).size(); }
    [[nodiscard]] int head() const { return heads_[host_]; }
    [[nodiscard]] bool leads() const { return head() == rank_; }
    [[nodiscard]] int local_of(int rank) const { return placement_.local[static_cast<size_t>(rank)]; }
    Status hand_on(int from, std::byte *memory);
    void set_host_blocks();
    [[nodiscard]] size_t length_of(int rank) const;
    [[nodiscard]] size_t place_of(int rank) const;
    [[nodiscard]] bool lie_in_order() const;
    void to_host_order(const std::byte *from, std::byte *to) const;
    void to_rank_order(const std::byte *from, std::byte *to) const;
    [[nodiscard]] size_t distance_to(size_t host) const { return (host + heads_.size() - host_) % heads_.size(); }

    const int rank_;
    const algorithms::Placement &placement_;
    shm::Nearby *const near_;
    const size_t host_;
    const bool in_order_;  ///< ranks of a host follow each other, and hosts do: blocks in the order of ranks are in
                           ///< that of hosts
    // By rank of this host: the ranks whose messages of an alltoall it collects; the most that one has.
    std::vector<std::vector<int>> collected_;
    size_t most_collected_ = 0;

    // Of the current operation, and memory that the next one uses again.
    const Operation *operation_ = nullptr;
    Blocks blocks_;
    Between *between_ = nullptr;
    Waiter *waiter_ = nullptr;
    size_t element_ = 1;
    uint64_t shown_ = 0;
    std::vector<int> heads_;             ///< who stands for each host: the root for its own
    std::vector<int> drivers_;           ///< of a lane
    std::vector<size_t> counts_;         ///< by host: elements of its ranks' blocks; by rank of this host: of its lane
    std::vector<size_t> displacements_;  ///< likewise, in the order of hosts
    std::vector<size_t> lengths_;        ///< by rank of this host: bytes of its block
    std::vector<size_t> places_;         ///< by rank: where its block lies, where the call did not say
    std::vector<std::byte *> sent_;      ///< by host: where what is for it lies
    std::vector<std::byte *> came_;      ///< by host: where what came from it lies
    std::vector<std::pair<const algorithms::Algorithm *, uint32_t>> blocks_of_;  ///< of an allreduce between hosts
};

}  // namespace flx
