/// \file chain.h
/// A large bcast goes from rank to rank, straight into outputs that peers may write: every link carries the vector
/// once.
#pragma once

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

/// A team's part, tile by tile: each rank waits for the rank before it and writes to the one after it, which has
/// said that its output may be written. At the end both flags of all pairs are where other operations expect them.
template <class Machine>
FLX_HD void run_chain(Machine &machine, const Job &job, uint32_t block) {
    if (!machine.alive())
        return;
    const uint32_t before = machine.count(block);
    const uint32_t steps = job.steps(block);
    const int place = (job.rank - job.root + job.ranks) % job.ranks;
    const int last = (job.rank + job.ranks - 1) % job.ranks;
    const int next = place + 1 < job.ranks ? (job.rank + 1) % job.ranks : -1;
    if (place != 0)
        machine.signal_to(last, Stage::gathered, block, before + 1);
    if (next >= 0 && !machine.wait_for(next, Stage::gathered, block, before + 1))
        return;
    for (uint32_t step = 0; step < steps; ++step) {
        const uint32_t count = before + step + 1;
        if (place != 0 && !machine.wait_for(last, Stage::scattered, block, count))
            return;
        const Piece piece = job.piece(0, block, step);
        if (next < 0)
            continue;
        machine.copy((place == 0 ? job.in : job.out) + piece.offset,
                     Targets{nullptr, job.outputs, piece.offset, 1U << next}, piece.bytes);
        machine.signal_to(next, Stage::scattered, block, count);
    }
    machine.signal(Stage::scattered, block, before + steps);
    machine.signal(Stage::gathered, block, before + steps);
    machine.set_count(block, before + steps);
}

}  // namespace flx::cuda
