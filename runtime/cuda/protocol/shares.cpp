#include "runtime/cuda/protocol/shares.h"

#include <algorithm>

namespace flx::cuda {

uint32_t ShareBoard::share_of(int rank, uint64_t number, uint32_t first) {
    begun_[rank].store(number + 1);
    uint64_t state = state_.load();
    while (!state_.compare_exchange_weak(state, std::max(state >> kShift, number + 1) << kShift | (state & kMask))) {
    }
    // The oldest entry that propose() does not overwrite now is the last one that is looked at.
    const uint64_t newest = state & kMask;
    for (uint64_t epoch = newest; epoch > 0 && epoch + kEpochs > newest; --epoch) {
        const uint64_t entry = epoch_[epoch % kEpochs].load();
        if (entry >> kShift <= number)
            return static_cast<uint32_t>(entry & kMask);
    }
    return first;
}

bool ShareBoard::propose(int ranks, uint32_t share) {
    uint64_t state = state_.load();
    const uint64_t next = (state & kMask) + 1;
    if (next > kMask)
        return false;
    if (next >= kEpochs) {
        // Ranks at or past the entry after the one that goes do not look so far.
        const uint64_t oldest = epoch_[(next + 1) % kEpochs].load() >> kShift;
        for (int rank = 0; rank < ranks; ++rank)
            if (begun_[rank].load() <= oldest)
                return false;
    }
    do {
        epoch_[next % kEpochs].store((state >> kShift) << kShift | share);
    } while (!state_.compare_exchange_weak(state, (state >> kShift) << kShift | next));
    return true;
}

void ShareBoard::publish(int rank, uint64_t number, Times times) {
    Told &told = told_[rank][number / kEvery % kTold];
    told.number.store(0);
    told.nvlink_ns.store(times.nvlink_ns);
    told.pcie_ns.store(times.pcie_ns);
    told.number.store(number + 1);
}

bool ShareBoard::collect(int ranks, uint64_t number, Times &times) const {
    times = {};
    for (int rank = 0; rank < ranks; ++rank) {
        const Told &told = told_[rank][number / kEvery % kTold];
        if (told.number.load() != number + 1)
            return false;
        times.nvlink_ns = std::max(times.nvlink_ns, told.nvlink_ns.load());
        times.pcie_ns = std::max(times.pcie_ns, told.pcie_ns.load());
        if (told.number.load() != number + 1)
            return false;
    }
    return true;
}

}  // namespace flx::cuda
