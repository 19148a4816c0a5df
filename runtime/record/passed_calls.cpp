#include "runtime/record/passed_calls.h"

namespace flx::record {

Status PassedCalls::begin(const Wanted &wanted) {
    exact_ = !wanted.trace.empty();
    tsc_ = exact_ && ticks_are_tsc();
    Status status = file_.make({wanted.record, exact_, wanted.hostname, wanted.job});
    handover_.file = file_.get();
    handover_.seen = file_.seen();
    handover_.trace_file = wanted.trace;
    handover_.hostname = wanted.hostname;
    handover_.threads = wanted.threads;
    if (void (*const when_made)() = handover_.when_made.load(std::memory_order_acquire); when_made != nullptr)
        when_made();
    return status;
}

uint32_t PassedCalls::open(const CommunicatorFacts &facts) {
    if (handover_.file == nullptr)
        return kNowhere;
    if (places_.fetch_add(1, std::memory_order_relaxed) >= kMost) {
        places_.fetch_sub(1, std::memory_order_relaxed);
        return kNowhere;
    }
    const uint32_t place = take_place(*handover_.file, facts);
    if (place == kNowhere) {
        places_.fetch_sub(1, std::memory_order_relaxed);
        return kNowhere;
    }
    handover_.file->communicators[place].state.store(static_cast<uint32_t>(State::open), std::memory_order_release);
    if (PassedTrace *trace = handover_.trace.load(std::memory_order_acquire); trace != nullptr)
        trace->communicator(place, facts);
    return place;
}

void PassedCalls::close(uint32_t place) {
    if (place == kNowhere || handover_.file == nullptr)
        return;
    handover_.file->communicators[place].state.store(static_cast<uint32_t>(State::freed), std::memory_order_release);
    places_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace flx::record
