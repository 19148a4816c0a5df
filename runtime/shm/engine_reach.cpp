#include "engine_reach.h"

#include <algorithm>
#include <utility>

#include "log.h"

namespace flx::shm {

EngineReach::EngineReach(int rank, int ranks, Source source)
    : rank_(rank), source_(std::move(source)), ranges_(ranks) {}

void EngineReach::prepare(Windows &windows, std::vector<uint32_t> &freed) {
    windows_ = &windows;
    freed_ = &freed;
}

std::byte *EngineReach::place(int rank, const std::byte *at) const {
    if (rank != rank_)
        return const_cast<std::byte *>(at);
    const auto found = std::ranges::find_if(own_, [&](const SharedHeap::Place &place) { return place.has(at); });
    return windows_->at(rank_) + found->offset_of(at, 1);
}

/// In this rank's heap. What was looked up holds until pieces of it come or go.
uint64_t EngineReach::own_offset(const std::byte *at, size_t bytes) {
    const uint64_t version = SharedHeap::of_process().version();
    if (version != own_version_)
        own_.clear();
    own_version_ = version;
    auto found = std::ranges::find_if(own_, [&](const SharedHeap::Place &place) { return place.has(at); });
    if (found == own_.end())
        found = own_.insert(own_.end(), SharedHeap::of_process().place_of(at));
    return found->offset_of(at, bytes);
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
        why_none_ = status.sentence();
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
    // All are asked, so that all are pinned after as many calls, however many ranks there are.
    bool pinned = true;
    for (size_t rank = 0; rank < ranges_.size(); ++rank)
        pinned &= ranges_[rank].empty() ||
                  windows_->pins(static_cast<int>(rank), *engine_).ask(ranges_[rank], (*freed_)[rank]);
    for (size_t rank = 0; rank < ranges_.size() && pinned; ++rank) {
        if (ranges_[rank].empty())
            continue;
        Pins &pins = windows_->pins(static_cast<int>(rank), *engine_);
        pinned = pins.hold(ranges_[rank], (*freed_)[rank]);
        if (pinned)
            held_.push_back(&pins);
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
