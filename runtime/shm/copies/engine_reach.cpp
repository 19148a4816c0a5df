#include "runtime/shm/copies/engine_reach.h"

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"

namespace flx::shm {

EngineReach::EngineReach(int rank, int ranks, Source source)
    : rank_(rank), source_(std::move(source)), ranges_(ranks), pins_(ranks) {}

void EngineReach::prepare(Windows &windows, const std::vector<uint32_t> &freed) {
    windows_ = &windows;
    freed_ = &freed;
}

std::byte *EngineReach::place(int rank, const std::byte *at) {
    return rank == rank_ ? windows_->at(rank) + own_offset(at, 1) : const_cast<std::byte *>(at);
}

/// The offset in this rank's heap.
uint64_t EngineReach::own_offset(const std::byte *at, size_t bytes) {
    bool looked_up = false;
    return own_[own_.find(at, looked_up)].offset_of(at, bytes);
}

/// Neighbours become one range: pages are whole.
bool EngineReach::add(int rank, const std::byte *at, size_t bytes) {
    const uint64_t begin = rank == rank_ ? own_offset(at, bytes) : static_cast<uint64_t>(at - windows_->at(rank));
    if (begin == SharedHeap::kNowhere)
        return false;
    for (Pins::Range &known : ranges_[rank]) {
        if (begin <= known.end && known.begin <= begin + bytes) {
            known = {std::min(known.begin, begin), std::max(known.end, begin + bytes)};
            return true;
        }
    }
    ranges_[rank].push_back({begin, begin + bytes});
    return true;
}

bool EngineReach::show_own() {
    const Status status = windows_->reach(rank_, SharedHeap::of_process().end());
    if (!status.ok())
        why_none_ = status.words();
    return status.ok();
}

CopyEngine *EngineReach::hold(const std::vector<Copy> &copies) {
    if (!why_none_.empty())
        return nullptr;
    if (engine_ == nullptr) {
        engine_ = source_(why_none_);
        if (!why_none_.empty())
            log().info("the cores alone copy memory of flx_malloc: {}", why_none_);
        if (engine_ == nullptr)
            return nullptr;
    }
    if (!show_own())
        return nullptr;
    for (auto &ranges : ranges_)
        ranges.clear();
    for (const Copy &copy : copies)
        if (!add(copy.to_rank, copy.to, copy.bytes) || !add(copy.from_rank, copy.from, copy.bytes))
            return nullptr;
    // All are asked before one is held, so that all are pinned after as many calls, however many ranks there are.
    bool pinned = true;
    for (size_t rank = 0; rank < ranges_.size(); ++rank) {
        pins_[rank] = ranges_[rank].empty() ? nullptr : &windows_->pins(static_cast<int>(rank), *engine_);
        pinned &= pins_[rank] == nullptr || pins_[rank]->ask(ranges_[rank], (*freed_)[rank]);
    }
    for (size_t rank = 0; rank < ranges_.size() && pinned; ++rank) {
        if (pins_[rank] == nullptr)
            continue;
        pinned = pins_[rank]->hold(ranges_[rank], (*freed_)[rank]);
        if (pinned)
            held_.push_back(pins_[rank]);
    }
    if (pinned)
        return engine_.get();
    release();
    return nullptr;
}

void EngineReach::release() {
    for (Pins *pins : held_)
        pins->release();
    held_.clear();
}

void EngineReach::lost() {
    why_none_ = engine_->name() + " failed to copy host memory";
    log().warn("{}; the cores do it from now on", why_none_);
}

}  // namespace flx::shm
