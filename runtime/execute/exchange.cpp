#include "runtime/execute/exchange.h"

#include <algorithm>

#include "runtime/base/counters.h"

namespace flx {

using algorithms::Step;
using algorithms::StepKind;

Exchange::Exchange(int rank, int size, MessageCounts &counts) : rank_(rank), counts_(counts), sides_(size) {
    peers_.reserve(size);
}

uint32_t Exchange::add(StepKind kind, int peer, const Message &message) {
    Step step;
    step.kind = kind;
    step.peer = peer;
    append_counted(steps_, step);
    append_counted(messages_, message);
    if (peer >= 0 && !sides_[peer].is_peer) {
        sides_[peer].is_peer = true;
        peers_.push_back(peer);
    }
    return static_cast<uint32_t>(steps_.size() - 1);
}

uint32_t Exchange::send(int peer, const void *from, size_t bytes, uint64_t sequence) {
    const Message message{static_cast<const std::byte *>(from), nullptr, bytes, sequence, signature_of(bytes), false};
    if (peer == rank_) {
        append_counted(to_self_, message);
        return kNone;
    }
    Side &side = sides_[peer];
    side.longest = std::max(side.longest, bytes);
    append_counted(side.sends, add(StepKind::send, peer, message));
    return side.sends.back();
}

uint32_t Exchange::receive(int peer, void *to, size_t bytes, uint64_t sequence, bool of_hosts) {
    const Message message{nullptr, static_cast<std::byte *>(to), bytes, sequence, signature_of(bytes), false, of_hosts};
    if (peer == rank_) {
        append_counted(from_self_, message);
        return kNone;
    }
    append_counted(sides_[peer].receives, add(StepKind::recv, peer, message));
    return sides_[peer].receives.back();
}

void Exchange::copy(const void *from, void *to, size_t bytes) {
    add(StepKind::copy, -1, {static_cast<const std::byte *>(from), static_cast<std::byte *>(to), bytes, 0, 0, false});
}

Status Exchange::start() {
    if (to_self_.size() != from_self_.size())
        return fail(Fault::message_to_itself,
                    "rank {} sends {} messages to itself and receives {}; both must be in the same group", rank_,
                    to_self_.size(), from_self_.size());
    for (size_t i = 0; i < to_self_.size(); ++i)
        if (to_self_[i].bytes != from_self_[i].bytes)
            return fail(Fault::message_to_itself,
                        "rank {} sends {} bytes to itself where it receives {}; both must be the same", rank_,
                        to_self_[i].bytes, from_self_[i].bytes);
    for (size_t i = 0; i < to_self_.size(); ++i)
        copy(to_self_[i].from, from_self_[i].to, to_self_[i].bytes);
    for (const int peer : peers_) {
        Side &side = sides_[peer];
        for (const uint32_t step : side.sends)
            if (messages_[step].sequence == 0)
                messages_[step].sequence = kPairwise | ++counts_.sent[peer];
        for (const uint32_t step : side.receives)
            if (messages_[step].sequence == 0)
                messages_[step].sequence = kPairwise | ++counts_.received[peer];
    }
    return {};
}

void Exchange::mark_done(uint32_t step) {
    done_ += messages_[step].done ? 0 : 1;
    messages_[step].done = true;
}

void Exchange::clear() {
    done_ = 0;
    for (const int peer : peers_) {
        Side &side = sides_[peer];
        side.sends.clear();
        side.receives.clear();
        side.longest = 0;
        side.is_peer = false;
    }
    peers_.clear();
    steps_.clear();
    messages_.clear();
    to_self_.clear();
    from_self_.clear();
}

size_t Exchange::bytes() const {
    size_t sum = 0;
    for (const Message &message : messages_)
        sum += message.bytes;
    return sum;
}

uint64_t Exchange::first_received(int peer) const {
    for (const uint32_t step : sides_[peer].receives)
        if ((messages_[step].sequence & kPairwise) != 0)
            return messages_[step].sequence & ~kPairwise;
    return UINT64_MAX;
}

/// Numbers of one kind ascend without gap among a peer's messages, so the first guess is right where there is but one
/// kind.
uint32_t Exchange::find(const std::vector<uint32_t> &steps, uint64_t sequence) const {
    if (steps.empty())
        return kNone;
    const uint64_t guess = sequence - messages_[steps.front()].sequence;
    if (guess < steps.size() && messages_[steps[guess]].sequence == sequence)
        return steps[guess];
    for (const uint32_t step : steps)
        if (messages_[step].sequence == sequence)
            return step;
    return kNone;
}

}  // namespace flx
