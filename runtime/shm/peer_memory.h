/// \file peer_memory.h
/// Ranks of one host read and write each other's buffers through the kernel (process_vm_readv, process_vm_writev): one
/// copy where shared memory takes two, for buffers of any origin.
///
/// A reduction's vector is cut into one region per rank. Its owner reads a block of the region from every rank into
/// memory that stays in its cache, adds in rank order, and writes the result where it belongs: of a scan, to each rank
/// the sum as far as it goes. Other collectives read
/// what they need; a bcast's root writes as much to each rank as the others read, so that it does not stand by.
///
/// Ranks first show each other their addresses. Memory that the kernel does not let others reach (mappings of devices,
/// some pinned memory) is noticed by its owner, and then no rank takes this way.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bootstrap.h"
#include "fused.h"
#include "huge_pages.h"
#include "operation.h"
#include "schedule.h"
#include "wait.h"

namespace flx::shm {

class PeerMemory {
  public:
    /// Collective over `bootstrap`, whose ranks have the processes `pids` on this host. Tries it: `result` stays null,
    /// on all ranks, where the kernel does not let one of them read and write another's memory, and `why` says so.
    static Status make(Bootstrap &bootstrap, std::vector<int> pids, std::unique_ptr<PeerMemory> &result,
                       std::string &why);

    /// One operation, as Stream::run; `served` is false, on all ranks, where nothing was done: a rank's buffer cannot
    /// be reached, or a reduce_scatter(_block) or an alltoall is in place. Returns when all ranks have what they need.
    /// gather, scatter, scans, allgatherv and reduce_scatter are served as well; `blocks`: of the last two.
    Status run(algorithms::Collective collective, const void *in, void *out, size_t count, flx_dtype_t dtype,
               flx_op_t op, int root, uint32_t signature, Fused &fused, Waiter &waiter, bool &served,
               const Blocks &blocks = {});

    /// From now on what calls let peers reach moves to huge pages of so many bytes. 0: does not.
    void use_huge_pages(size_t page_bytes) { huge_pages_ = HugePages(page_bytes); }

    /// Copies from the memory of a rank; FLX_ERR_LINK if it is gone.
    Status read(int rank, void *to, uint64_t address, size_t bytes) const;
    /// Whether others can reach it through the kernel, by trying its ends; what was found so before is not tried again.
    [[nodiscard]] bool reachable(const void *memory, size_t bytes);

  private:
    /// What a rank shows of its call.
    struct Card {
        uint64_t in;
        uint64_t out;
        uint64_t reachable;
    };
    struct Call;
    struct Range {
        uintptr_t begin = 0, end = 0;
    };

    PeerMemory(int rank, std::vector<int> pids);
    Status carry_out(const Call &call);
    Status reduce_region(const Call &call);
    Status scan(const Call &call);
    [[nodiscard]] bool reachable(const Call &call);
    /// Of memory of a collective's call.
    bool lets_reach(const void *memory, size_t bytes);
    Status allgather(const Call &call);
    Status gather(const Call &call);
    Status scatter(const Call &call);
    Status alltoall(const Call &call);
    Status bcast(const Call &call);
    Status write(int rank, uint64_t address, const void *from, size_t bytes) const;

    int rank_;
    int ranks_;
    std::vector<int> pids_;
    std::vector<Card> cards_;
    size_t block_bytes_;
    std::vector<std::byte> blocks_;  ///< one block per rank
    std::vector<const void *> sources_;
    std::array<Range, 8> known_{};  ///< memory of this rank that was found reachable
    size_t next_known_ = 0;
    HugePages huge_pages_;
};

}  // namespace flx::shm
