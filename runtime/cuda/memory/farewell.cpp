#include "runtime/cuda/memory/farewell.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "runtime/base/clock.h"

namespace flx::cuda {
namespace {

/// Zero at first, as the segment is.
constexpr uint32_t kNoMore = 1;
constexpr uint32_t kAgain = 2;
using Said = std::atomic<uint32_t>;

Said &said_by(const shm::Segment &segment, int rank) {
    return reinterpret_cast<Said *>(segment.base())[rank];
}

}  // namespace

/// Who may write again says so as long as its process lives.
Farewell::~Farewell() {
    if (segment_ == nullptr || said_by(*segment_, rank_).load(std::memory_order_relaxed) != kAgain)
        return;
    static std::mutex mutex;
    static auto *const all = new std::vector<std::unique_ptr<shm::Segment>>;
    const std::lock_guard lock(mutex);
    all->push_back(std::move(segment_));
}

Status Farewell::open(Bootstrap &bootstrap) {
    rank_ = bootstrap.rank();
    ranks_ = bootstrap.size();
    seen_gone_ns_.assign(static_cast<size_t>(ranks_), 0);
    return shm::Segment::make(bootstrap, static_cast<size_t>(ranks_) * sizeof(Said), segment_);
}

void Farewell::say(bool again) {
    if (segment_ == nullptr)
        return;
    Said &mine = said_by(*segment_, rank_);
    mine.store(again || mine.load(std::memory_order_relaxed) == kAgain ? kAgain : kNoMore, std::memory_order_release);
}

/// Looks at all, so that the time of all that are gone begins.
bool Farewell::all_said() const {
    bool all = true;
    for (int rank = 0; segment_ != nullptr && rank < ranks_; ++rank)
        if (rank != rank_ && said_by(*segment_, rank).load(std::memory_order_acquire) == 0 && !gone(rank))
            all = false;
    return all;
}

/// Graphs end with their process.
bool Farewell::some_again() const {
    for (int rank = 0; segment_ != nullptr && rank < ranks_; ++rank)
        if (said_by(*segment_, rank).load(std::memory_order_acquire) == kAgain && (rank == rank_ || !gone(rank)))
            return true;
    return false;
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
