#include "runtime/cuda/memory/farewell.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"

namespace flx::cuda {
namespace {

/// Zero at first, as the segment is.
constexpr uint32_t kNoMore = 1;
using Said = std::atomic<uint32_t>;

Said &said_by(const shm::Segment &segment, int rank) {
    return reinterpret_cast<Said *>(segment.base())[rank];
}

}  // namespace

Status Farewell::open(Bootstrap &bootstrap) {
    rank_ = bootstrap.rank();
    ranks_ = bootstrap.size();
    seen_gone_ns_.assign(static_cast<size_t>(ranks_), 0);
    return shm::Segment::make(bootstrap, static_cast<size_t>(ranks_) * sizeof(Said), segment_);
}

void Farewell::say() {
    if (segment_ != nullptr)
        said_by(*segment_, rank_).store(kNoMore, std::memory_order_release);
}

/// Looks at all, so that the time of all that are gone begins.
bool Farewell::all_said() const {
    bool all = true;
    for (int rank = 0; segment_ != nullptr && rank < ranks_; ++rank)
        if (rank != rank_ && said_by(*segment_, rank).load(std::memory_order_acquire) == 0 && !gone(rank))
            all = false;
    return all;
}

/// The system ends what a process had on GPUs some time before or after it gives up the lock that says that it lives.
bool Farewell::gone(int rank) const {
    constexpr int64_t kGraceNs = 500'000'000;
    if (segment_->alive(rank))
        return false;
    if (said_by(*segment_, rank).load(std::memory_order_acquire) == kNoMore)  // just before it went
        return true;
    int64_t &seen = seen_gone_ns_[static_cast<size_t>(rank)];
    if (seen == 0)
        seen = now_ns();
    return now_ns() - seen > kGraceNs;
}

}  // namespace flx::cuda
