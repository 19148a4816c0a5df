/// \file bruck.cpp
/// Allgather in the fewest rounds: in round k each rank passes on all that it has to the rank 2^k before it.
#include <algorithm>
#include <vector>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// After round k a rank has the blocks of itself and its next 2^(k+1) - 1 successors. Nothing is overwritten: received
/// blocks come once, and in place the own block is not received. What a round sends waits for the last block of the
/// round before, though it could go sooner: so it goes as one message.
Schedule build(const Request &request) {
    const int rank = request.rank;
    const int size = request.size;
    if (size == 1)
        return alone(request.collective);
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.input(Layout::single).reserve(2 * static_cast<size_t>(size));
    builder.copy(static_cast<uint32_t>(rank), kInput, kOutput);
    std::vector<uint32_t> came(static_cast<size_t>(size), kNoStep);  // by distance of the block's owner
    uint32_t last = kNoStep;
    for (int distance = 1; distance < size; distance *= 2) {
        const int blocks = std::min(distance, size - distance);
        for (int i = 0; i < blocks; ++i)
            builder.send(around(rank, -distance, size), 0, static_cast<uint32_t>(around(rank, i, size)),
                         i == 0 ? kInput : kOutput, {came[static_cast<size_t>(i)], last});
        for (int i = distance; i < distance + blocks; ++i)
            last = came[static_cast<size_t>(i)] =
                builder.recv(around(rank, distance, size), 0, static_cast<uint32_t>(around(rank, i, size)), kOutput);
    }
    return builder.take();
}

BitClass bits(Collective) {
    return BitClass::none;
}

bool serves(Collective collective, int size) {
    return size >= 1 && collective == Collective::allgather;
}

}  // namespace

const Algorithm kBruck = {"bruck",
                          "what a rank has goes to ranks at distance 1, 2, 4",
                          "Bruck and others: Efficient Algorithms for All-to-All Communications in Multiport "
                          "Message-Passing Systems (1997)",
                          bits,
                          serves,
                          build};

}  // namespace flx::algorithms
