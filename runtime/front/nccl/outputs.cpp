#include "runtime/front/nccl/outputs.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"

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
    if (failed_ == kTries)
        pause();
}

void Outputs::pause() {
    failed_ = 0;
    lost_ns_ = 0;
    waited_ns_ = 0;
    pause_ = std::clamp(2 * pause_, kLeastPause, kMostPause);
    skip_ = pause_;
}

/// The same on all ranks, as it goes by what all have told.
void Outputs::weigh(const Offers &all, size_t bytes, int64_t patience_ns) {
    constexpr int64_t kAlways = 5000;
    constexpr int64_t kBytesPerNs = 3200;  // an eighth of the time that GPUs need for it
    int64_t waited = 0;
    for (int rank = 0; rank < ranks_; ++rank)
        waited = std::max(waited, all[rank].waited_ns);
    lost_ns_ = std::max<int64_t>(0, lost_ns_ + waited - kAlways - static_cast<int64_t>(bytes) / kBytesPerNs);
    if (lost_ns_ > patience_ns / 4)
        pause();
    else if (lost_ns_ == 0)
        pause_ = 0;
}

void Outputs::begin(Lane &lane, const Operation &operation, size_t bytes, bool frozen) {
    state_ = State::apart;
    if (skip_ > 0) {
        --skip_;
        return;
    }
    Offer offer;
    offer.bytes = bytes_ = bytes;
    offer.waited_ns = waited_ns_;
    lane.show(operation, frozen, offer.output);
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
    const int64_t began = now_ns();
    const bool together = agreement_.decide(patience_ns, &all);
    waited_ns_ = now_ns() - began;
    note(together);
    if (!together)
        return;
    weigh(all, bytes_, patience_ns);
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
