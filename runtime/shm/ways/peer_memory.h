/// \file peer_memory.h
/// Ranks of one host read and write each other's buffers: one copy where shared memory takes two. Those of flx_malloc
/// are mapped (runtime/shm/memory/windows.h, runtime/shm/copies/mapped.h), those of any other origin are reached
/// through the kernel (process_vm_readv, process_vm_writev), where it allows one or the other.
///
/// Through the kernel, a reduction's vector is cut into one region per rank. Its owner reads a block of the region from
/// every rank into memory that stays in its cache, adds in rank order, and writes the result where it belongs: of a
/// scan, to each rank the sum as far as it goes. Other collectives read what they need; a bcast's root writes as much
/// to each rank as the others read, so that it does not stand by.
///
/// Ranks first show each other where their buffers are. What all ranks know from that decides: where everything that is
/// to be touched by others is memory of flx_malloc, it is mapped; else the kernel is asked, unless one of the buffers
/// cannot be reached so (mappings of devices, some pinned memory), which its owner notices.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/schedule.h"
#include "runtime/base/wait.h"
#include "runtime/link/board.h"
#include "runtime/link/bootstrap.h"
#include "runtime/plan/operation.h"
#include "runtime/shm/copies/engine_reach.h"
#include "runtime/shm/copies/engine_use.h"
#include "runtime/shm/copies/mapped.h"
#include "runtime/shm/memory/huge_pages.h"
#include "runtime/shm/memory/windows.h"
#include "runtime/shm/ways/fused.h"

namespace flx::shm {

class PeerMemory {
  public:
    /// Why something is not done; empty where it is.
    struct Why {
        std::string not_by_kernel;
        std::string not_mapped;
    };

    /// Collective over `bootstrap`, whose ranks have the processes `pids` on this host. Tries it: `why` says, the same
    /// on all ranks, what does not work between some of them; where nothing does, `result` stays null.
    static Status make(Bootstrap &bootstrap, std::vector<int> pids, std::unique_ptr<PeerMemory> &result, Why &why);

    /// Whether buffers of any origin can be reached, and those of flx_malloc. Equal on all ranks.
    [[nodiscard]] bool by_kernel() const { return by_kernel_; }
    [[nodiscard]] bool maps() const { return windows_ != nullptr; }
    /// Whether the next call, which is not for the kernel, is worth a run(). Not for some time after one in which no
    /// rank had memory of flx_malloc at all. Equal on all ranks that ask for the same calls.
    [[nodiscard]] bool may_map() {
        if (windows_ == nullptr || skips_ == 0)
            return windows_ != nullptr;
        --skips_;
        return false;
    }
    /// Why nothing is mapped; empty while it is.
    [[nodiscard]] const std::string &why_not_mapped() const { return why_not_mapped_; }

    /// Carries `call` out as Stream::run does; also gather, scatter, scans, allgatherv and reduce_scatter. `served` is
    /// false, on all ranks, where nothing was done: a rank's buffer cannot be reached, or a reduce_scatter(_block) or
    /// an alltoall is in place. Returns when all ranks have what they need. `by_kernel`: also buffers that are not
    /// mapped.
    Status run(const Call &call, Fused &fused, Waiter &waiter, bool &served, bool by_kernel = true);
    [[nodiscard]] std::vector<Decision> explain() const { return engine_use_.explain(); }
    /// Operations that were carried out on mapped memory.
    [[nodiscard]] uint64_t mapped_calls() const { return mapped_calls_; }

    /// From now on at most Board::kUnasked is written to another rank once something stands on `board`.
    void obey(const Board *board) {
        board_ = board;
        mapped_.obey(board);
    }

    /// From now on a copy engine takes a part of large copies between mapped buffers, if there is one
    /// (runtime/shm/copies/copies.h). Each rank decides that for itself: others need not have one.
    void use_engine(EngineReach::Source source) { reach_.emplace(rank_, ranks_, std::move(source)); }
    /// Null: none is used. Bytes of calls that one was there for.
    [[nodiscard]] const EngineReach *engine_reach() const { return reach_ ? &*reach_ : nullptr; }
    [[nodiscard]] const Copies &copies() const { return mapped_.copies(); }

    /// Sets the part of the last cache that a rank can count on (runtime/shm/memory/cache_share.h).
    void share_cache(size_t share) { mapped_.share_cache(share); }

    /// From now on what calls let peers reach moves to huge pages of so many bytes. 0: does not.
    void use_huge_pages(size_t page_bytes) { huge_pages_ = HugePages(page_bytes); }

    /// Copies from the memory of a rank; FLX_ERR_LINK if it is gone.
    Status read(int rank, void *to, uint64_t address, size_t bytes) const;
    /// Whether others can reach it through the kernel, by trying its ends; what was found so before is not tried again.
    [[nodiscard]] bool reachable(const void *memory, size_t bytes);

  private:
    /// What a rank shows of its call: one cache line, with what fused.h adds.
    struct Card {
        uint64_t in;
        uint64_t out;
        uint64_t in_offset;   ///< in its heap, SharedHeap::kNowhere if not there
        uint64_t out_offset;  ///< likewise
        uint64_t heap_end;
        uint32_t freed;            ///< SharedHeap::freed()
        uint32_t copied_us : 24;   ///< what its last copies of EngineUse took; at most kLongest
        uint32_t with_engine : 1;  ///< in which an engine took part
        uint32_t reachable : 1;
        uint32_t mapped : 1;    ///< all that others touch of it is in its heap
        uint32_t has_heap : 1;  ///< something is, or was
        static constexpr int64_t kLongest = (1 << 24) - 1;
    };
    static_assert(sizeof(Card) <= 48);
    struct Range {
        uintptr_t begin = 0, end = 0;
    };

    PeerMemory(int rank, std::vector<int> pids);
    Status try_kernel(Bootstrap &bootstrap, std::string &why) const;
    /// What others touch of this rank's buffers.
    struct Touched {
        size_t in = 0;        ///< bytes from its beginning on
        size_t out = 0;       ///< likewise
        bool unsafe = false;  ///< what this rank writes, others still read
    };
    [[nodiscard]] Touched touched(const Call &call) const;
    [[nodiscard]] Card show(const Call &call, bool by_kernel);
    [[nodiscard]] uint64_t heap_offset(const void *memory, size_t bytes);
    Status map_all(const Call &call, Fused &fused, Waiter &waiter, bool &mapped);
    Status run_mapped(const Call &call);
    Status carry_out(const Call &call);
    [[nodiscard]] std::byte *blocks();
    Status reduce_region(const Call &call);
    Status scan(const Call &call);
    [[nodiscard]] bool reachable(const Call &call, const Touched &touched);
    Status allgather(const Call &call);
    Status gather(const Call &call);
    Status scatter(const Call &call);
    Status alltoall(const Call &call);
    Status bcast(const Call &call);
    Status write(int rank, uint64_t address, const void *from, size_t bytes) const;

    int rank_;
    int ranks_;
    std::vector<int> pids_;
    const Board *board_ = nullptr;  ///< null: nobody gives up
    bool by_kernel_ = false;
    std::unique_ptr<Windows> windows_;  ///< null: nothing is mapped; so on all ranks
    std::string why_not_mapped_;
    Mapped mapped_;
    std::vector<Card> cards_;
    std::vector<Mapped::Buffers> buffers_;
    std::optional<EngineReach> reach_;
    std::vector<uint32_t> freed_;  ///< by rank, of the call
    EngineUse engine_use_;
    uint32_t copied_us_ = 0;    ///< Card::copied_us
    bool with_engine_ = false;  ///< Card::with_engine
    // The following are equal on all ranks, as they change by what all know; the first is by rank.
    std::vector<uint64_t> window_end_;  ///< how much of its heap is mapped
    uint32_t skips_ = 0;
    uint64_t mapped_calls_ = 0;
    KnownPlaces places_;                               ///< where calls' buffers were, in and out of the heap
    std::array<Range, KnownPlaces::kMost> touched_{};  ///< of each, by this rank
    size_t block_bytes_;
    std::unique_ptr<std::byte[]> blocks_;  ///< one block per rank; null before the first use
    std::vector<const void *> sources_;
    std::array<Range, 8> known_{};  ///< memory of this rank that was found reachable
    size_t next_known_ = 0;
    HugePages huge_pages_;
};

}  // namespace flx::shm
