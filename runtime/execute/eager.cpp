#include "runtime/execute/eager.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace flx {

using algorithms::Step;
using algorithms::StepKind;

Eager::Eager(uint32_t comm, Link &link, int index, Inbox &inbox, int size)
    : comm_(comm), link_(link), index_(index), inbox_(inbox) {
    constexpr size_t kMessages = 16;
    open_.reserve(std::max(kMessages, 2 * static_cast<size_t>(size)));
}

bool Eager::begin(const Exchange &exchange) {
    const auto steps = static_cast<uint32_t>(exchange.steps().size());
    open_.clear();
    if (steps > open_.capacity() || !inbox_.keeps_nothing())
        return false;
    for (uint32_t step = 0; step < steps; ++step) {
        if (exchange.message(step).bytes > kMostBytes && exchange.steps()[step].kind != StepKind::copy)
            return false;
        open_.push_back(step);
    }
    return steps != 0;
}

bool Eager::step(Exchange &exchange) {
    bool others = false;
    size_t kept = 0;
    for (const uint32_t index : open_) {
        const Step &step = exchange.steps()[index];
        const Exchange::Message &message = exchange.message(index);
        bool done = message.done || message.bytes == 0;
        if (!done && step.kind == StepKind::copy) {
            std::memcpy(message.to, message.from, message.bytes);
            done = true;
        } else if (!done && step.kind == StepKind::send) {
            done = send(step.peer, message.sequence, message.signature, message.from, message.bytes);
        } else if (!done && !others) {
            done = receive(step.peer, exchange, others) && message.done;
        }
        if (done)
            exchange.mark_done(index);
        else
            open_[kept++] = index;
    }
    open_.resize(kept);
    return !others && !exchange.all_done();
}

/// As one chunk: no link cuts so little.
bool Eager::send(int peer, uint64_t sequence, uint32_t signature, const void *from, size_t bytes) {
    const size_t cell = cell_bytes_for(bytes);  // a power of two
    const auto cells = static_cast<uint32_t>((bytes + cell - 1) >> std::countr_zero(cell));
    const ChunkHeader header{sequence, comm_, signature, 0, 0, 0, cells, static_cast<uint32_t>(bytes), 0};
    return link_.send(peer, header, from) == SendResult::copied;
}

bool Eager::send(int peer, uint64_t sequence, const void *from, size_t bytes) {
    return send(peer, sequence, Exchange::signature_of(bytes), from, bytes);
}

Eager::Got Eager::receive(int peer, uint64_t sequence, void *to, size_t bytes) {
    Arrival arrival;
    if (!link_.receive(peer, arrival))
        return Got::nothing;
    const ChunkHeader &header = arrival.header;
    if (header.sequence != sequence || header.signature != Exchange::signature_of(bytes) || header.bytes != bytes ||
        arrival.data == nullptr) {
        inbox_.keep(arrival, index_);
        return Got::other;
    }
    std::memcpy(to, arrival.data, bytes);
    link_.release(arrival);
    return Got::message;
}

/// The next chunk from `peer`. True: it was a whole message of this exchange, though maybe another one.
bool Eager::receive(int peer, Exchange &exchange, bool &others) {
    Arrival arrival;
    if (!link_.receive(peer, arrival))
        return false;
    const ChunkHeader &header = arrival.header;
    const uint32_t step = exchange.receiving_step(peer, header.sequence);
    const bool whole = step != Exchange::kNone && arrival.data != nullptr && !exchange.message(step).done &&
                       header.signature == exchange.message(step).signature &&
                       header.bytes == exchange.message(step).bytes;
    if (!whole) {
        inbox_.keep(arrival, index_);
        others = true;
        return false;
    }
    std::memcpy(exchange.message(step).to, arrival.data, header.bytes);
    link_.release(arrival);
    exchange.mark_done(step);
    return true;
}

}  // namespace flx
