#include "runtime/cuda/memory/shared_memory.h"

#include <utility>
#include <vector>

namespace flx::cuda {
SharedMemory &SharedMemory::operator=(SharedMemory &&other) noexcept {
    if (this != &other) {
        close();
        base_ = std::exchange(other.base_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
        allocation_ = other.allocation_;
        alike_ = other.alike_;
        paged_ = other.paged_;
        bases_ = std::exchange(other.bases_, {});
        seen_ = std::exchange(other.seen_, {});
        opened_ = std::move(other.opened_);
    }
    return *this;
}

Status SharedMemory::open(Bootstrap &bootstrap, char *base, uint64_t bytes, int device, uint64_t process, bool kept,
                          SharedMemory &result) {
    constexpr uintptr_t kWidest = 16;
    SharedMemory made;
    made.base_ = base;
    made.bytes_ = bytes;
    made.allocation_ = allocation_of(base);
    made.alike_ = true;
    made.paged_ = true;
    MemoryOffer mine;
    FLX_TRY(agree(bootstrap, offer_memory(process, base, bytes, device, mine)));
    mine.kept = kept ? made.allocation_ : 0;
    std::vector<MemoryOffer> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    Status status;
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
        made.alike_ =
            made.alike_ && all[rank].bytes == bytes &&
            reinterpret_cast<uintptr_t>(all[rank].base) % kWidest == reinterpret_cast<uintptr_t>(base) % kWidest;
        made.paged_ = made.paged_ && all[rank].allocation_bytes % kPage == 0;
        if (rank != bootstrap.rank() && status.ok())
            status = made.opened_[rank].open(all[rank], process, device);
        made.bases_[rank] = rank == bootstrap.rank() ? base : made.opened_[rank].base();
    }
    status = agree(bootstrap, std::move(status));
    withdraw(mine);
    FLX_TRY(std::move(status));
    if (!kept) {
        std::vector<std::array<char *, kMaxRanks>> theirs(bootstrap.size());
        FLX_TRY(bootstrap.allgather(made.bases_.data(), sizeof made.bases_, theirs.data()));
        for (int rank = 0; rank < bootstrap.size(); ++rank)
            made.seen_[rank] = theirs[rank][bootstrap.rank()];
    }
    result = std::move(made);
    return {};
}

void SharedMemory::close() {
    for (OpenedMemory &memory : opened_)
        memory.close();
    bases_ = {};
    seen_ = {};
}

}  // namespace flx::cuda
