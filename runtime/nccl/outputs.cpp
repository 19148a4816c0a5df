#include "outputs.h"

#include <algorithm>

#include "log.h"

namespace flx::nccl {
namespace {

/// Opening takes milliseconds.
constexpr int64_t kOpenedNs = 5'000'000'000;
constexpr int kTries = 4;
constexpr unsigned kLeastPause = 16;
constexpr unsigned kMostPause = 4096;

}  // namespace

void Outputs::note(bool together) {
    failed_ = together ? 0 : failed_ + 1;
    if (together)
        pause_ = 0;
    if (failed_ < kTries)
        return;
    failed_ = 0;
    pause_ = std::clamp(2 * pause_, kLeastPause, kMostPause);
    skip_ = pause_;
}

void Outputs::begin(Lane &lane, const Work &work, size_t bytes, bool frozen) {
    state_ = State::apart;
    if (skip_ > 0) {
        --skip_;
        return;
    }
    Offer offer;
    offer.bytes = bytes;
    lane.show(work, frozen, offer.output);
    if (agreement_.offer(offer))
        state_ = State::begun;
    else
        note(false);
}

void Outputs::compare(Lane &lane, int64_t patience_ns) {
    if (state_ != State::begun)
        return;
    state_ = State::apart;
    Offers all;
    const bool together = agreement_.decide(patience_ns, &all);
    note(together);
    if (!together)
        return;
    for (int rank = 0; rank < ranks_; ++rank)
        shown_[rank] = all[rank].output;
    if (!cuda::ShownMemory::writable(shown()))
        return;
    state_ = State::writable;
    if (!cuda::ShownMemory::must_open(shown()))
        return;
    opened_ = lane.open_shown(shown());
    Offer offer;
    offer.output.number = opened_.ok() ? 0 : cuda::Showing::kNone;
    state_ = agreement_.offer(offer) ? State::opening : State::apart;
    if (state_ == State::apart)
        lane.settle_shown(shown(), false);
}

bool Outputs::end(Lane &lane) {
    if (state_ != State::opening)
        return state_ == State::writable;
    Offers all;
    bool opened = agreement_.decide(kOpenedNs, &all);
    for (int rank = 0; opened && rank < ranks_; ++rank)
        opened = all[rank].output.number == 0;
    lane.settle_shown(shown(), opened);
    if (!opened_.ok())
        log().info("outputs stay unopened: {}", opened_.sentence());
    return opened;
}

}  // namespace flx::nccl
