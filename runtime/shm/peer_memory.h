/// \file peer_memory.h
/// Ranks of one host read each other's buffers through the kernel (process_vm_readv): one copy instead of the two that
/// shared memory takes, where data has one reader only. For middle and large alltoalls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bootstrap.h"
#include "fused.h"
#include "wait.h"

namespace flx::shm {

class PeerMemory {
  public:
    /// Collective over `bootstrap`, whose ranks have the processes `pids` on this host. Tries it: `result` stays null,
    /// on all ranks, where the kernel does not let one of them read another, and `why` says so.
    static Status make(Bootstrap &bootstrap, std::vector<int> pids, std::unique_ptr<PeerMemory> &result,
                       std::string &why);

    /// Block s of `out` = block `rank` of rank s's `in`. `in` and `out` do not overlap. Returns when all have read.
    Status alltoall(const void *in, void *out, size_t block_bytes, uint32_t signature, Fused &fused, Waiter &waiter);

  private:
    PeerMemory(int rank, std::vector<int> pids);
    [[nodiscard]] Status read(int rank, void *to, uint64_t address, size_t bytes) const;

    int rank_;
    std::vector<int> pids_;
    std::vector<uint64_t> addresses_;
};

}  // namespace flx::shm
