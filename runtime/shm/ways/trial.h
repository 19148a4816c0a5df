/// \file trial.h
/// Tries the ways through shared memory when a communicator is made, at a few sizes, and chooses by what was measured:
/// which is best depends on caches, cores, ranks per core and kernel.
#pragma once

#include <cstdint>

#include "runtime/link/board.h"
#include "runtime/link/bootstrap.h"
#include "runtime/plan/ways.h"
#include "runtime/shm/ways/fused.h"
#include "runtime/shm/ways/peer_memory.h"
#include "runtime/shm/ways/stream.h"

namespace flx::shm {

/// Where `part` fails, others may wait for this rank in it: they look at the board, and come to agree, too.
template <typename Part>
Status told(Board &board, Part &&part) {
    Status status = caught("trying ways through shared memory", part);
    if (!status.ok())
        board.write(status);
    return status;
}

/// Changes `ways` where another way than the rule's is clearly faster on the slowest rank, and with many ranks sets in
/// how many steps fused collectives go, there and in `fused`. Collective over `bootstrap`, whose ranks share the memory
/// of `fused` and `stream`; `peers` may be null, on all ranks alike. Smallest sizes first; takes at most about
/// `budget_ns`. `tried`: the largest size that there was time for, 0: none. An error of one rank is on `board`, for
/// those that wait for it.
Status try_ways(Bootstrap &bootstrap, Board &board, Fused &fused, Stream &stream, PeerMemory *peers, Waiter &waiter,
                int64_t budget_ns, Ways &ways, size_t &tried);

}  // namespace flx::shm
