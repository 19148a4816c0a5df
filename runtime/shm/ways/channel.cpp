#include "runtime/shm/ways/channel.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/shm/memory/ring.h"

namespace flx::shm {
namespace {
constexpr uint32_t kMostSlots = 8;
constexpr uint32_t kLargestSlot = 64 * 1024;
/// Chunks below this are not timed: reading the clock would cost more than copying them.
constexpr size_t kTimedBytes = 4096;
constexpr size_t kControlBytes = 128;
/// Short slots take a part of what the others do, where that is little.
constexpr uint32_t kLeastShorts = 8;
constexpr uint32_t kMostShorts = kMostPlaces;
constexpr size_t kShortsPart = 64;
/// They are given back a quarter of the ring at a time: the sender waits for the line that says so once for so many.
constexpr uint64_t kFreedPart = 4;
constexpr size_t kShortBytes = 80;
constexpr uint64_t kShortToken = uint64_t{1} << 63;
/// Messages that are exposed. Shorter ones are copied twice in less time than the kernel needs for one copy; from
/// 16 MiB on, too: block by block in the cache, with stores past it.
constexpr size_t kLeastExposed = size_t{16} << 10;
constexpr size_t kMostExposed = size_t{16} << 20;
constexpr size_t kExposedChunk = size_t{1} << 20;
// The rings of a pair.
constexpr uint8_t kShortRing = 1;
constexpr uint8_t kSlotRing = 2;
}  // namespace

/// A short message. The first bytes lie in the line that says that it is there.
struct Channel::Short {
    alignas(64) std::atomic<uint64_t> filled;  ///< as Slot::filled
    ChunkHeader header;
    std::byte data[kShortBytes];
};

/// Their slots lie behind it.
struct Channel::Shorts {
    alignas(64) std::atomic<uint64_t> freed;  ///< how many the receiver has given back
    std::byte rest[kPair - sizeof(std::atomic<uint64_t>)];

    [[nodiscard]] Short &slot(uint64_t number, uint32_t shorts) {
        return reinterpret_cast<Short *>(this + 1)[place_in(shorts, number)];
    }
};

ChannelShape ChannelShape::fit(uint32_t ranks, size_t bytes_per_rank) {
    ChannelShape shape{ranks, kMostSlots, kLargestSlot};
    const size_t peers = std::max(ranks, 2U) - 1;
    while (peers * shape.slots * shape.slot_bytes > bytes_per_rank &&
           (shape.slots > 2 || shape.slot_bytes > kMaxCellBytes)) {
        if (shape.slot_bytes > kMaxCellBytes && shape.slots <= 4)
            shape.slot_bytes /= 2;
        else if (shape.slots > 2)
            shape.slots /= 2;
        else
            shape.slot_bytes = kMaxCellBytes;
    }
    const size_t part = size_t{shape.slots} * shape.slot_bytes / kShortsPart / sizeof(Channel::Short);
    shape.shorts = std::clamp(static_cast<uint32_t>(std::bit_floor(part)), kLeastShorts, kMostShorts);
    return shape;
}

size_t ChannelShape::bytes() const {
    return kPair + flags_bytes() + ranks * area().stride;
}

size_t ChannelShape::flags_bytes() const {
    return (size_t{ranks} * ranks + kPair - 1) / kPair * kPair;
}

Area ChannelShape::area(bool late) const {
    return {kPair + flags_bytes(), (std::max(ranks, 2U) - 1) * ring_bytes(), late};
}

size_t ChannelShape::shorts_bytes() const {
    return sizeof(Channel::Shorts) + size_t{shorts} * sizeof(Channel::Short);
}

size_t ChannelShape::ring_bytes() const {
    return shorts_bytes() + size_t{slots} * (kControlBytes + slot_bytes);
}

Channel::Channel(std::byte *memory, const ChannelShape &shape, int local_rank, std::vector<int> local_of,
                 LateMemory *late)
    : shape_(shape), peers_(local_of.size()), counted_(local_of.size()), late_(late) {
    static_assert(sizeof(Slot) == kControlBytes && sizeof(Short) == kPair && sizeof(Shorts) == kPair);
    exposed_.reserve(local_of.size() * shape.slots);
    memory = to_pair(memory);
    auto *told = reinterpret_cast<std::atomic<uint8_t> *>(memory);
    const auto told_of = [&](int from, int to) { return told + size_t{shape.ranks} * from + to; };
    const auto ring = [&](int from, int to) {
        return memory + shape.flags_bytes() +
               (size_t{shape.ranks - 1} * from + (to < from ? to : to - 1)) * shape.ring_bytes();
    };
    for (size_t rank = 0; rank < local_of.size(); ++rank) {
        const int local = local_of[rank];
        if (local < 0 || local == local_rank)
            continue;
        peers_[rank].local = local;
        peers_[rank].told_out = told_of(local_rank, local);
        peers_[rank].told_in = told_of(local, local_rank);
        if (late == nullptr)
            peers_[rank].there_out = peers_[rank].there_in = kShortRing | kSlotRing;
        peers_[rank].shorts_out = reinterpret_cast<Shorts *>(ring(local_rank, local));
        peers_[rank].shorts_in = reinterpret_cast<Shorts *>(ring(local, local_rank));
        peers_[rank].out = ring(local_rank, local) + shape.shorts_bytes();
        peers_[rank].in = ring(local, local_rank) + shape.shorts_bytes();
    }
}

void Channel::count(Peer &peer, size_t bytes) {
    peer.counters.bytes += bytes;
    ++peer.counters.chunks;
    counted_.note(static_cast<int>(&peer - peers_.data()));
}

bool Channel::make_room(Peer &peer, uint8_t ring) {
    if ((peer.there_out & ring) != 0)
        return true;
    if (!error_.ok())
        return false;
    const bool brief = ring == kShortRing;
    error_ = late_->reserve(brief ? reinterpret_cast<std::byte *>(peer.shorts_out) : peer.out,
                            brief ? shape_.shorts_bytes() : shape_.ring_bytes() - shape_.shorts_bytes());
    if (!error_.ok())
        return false;
    peer.there_out |= ring;
    peer.told_out->store(peer.there_out, std::memory_order_release);
    return true;
}

bool Channel::is_there(Peer &peer, uint8_t ring) {
    if ((peer.there_in & ring) == 0)
        peer.there_in = peer.told_in->load(std::memory_order_acquire);
    return (peer.there_in & ring) != 0;
}

bool Channel::reaches(int peer) const {
    return peers_[peer].local >= 0;
}

size_t Channel::good_chunk(size_t bytes) const {
    // A quarter of a slice keeps sender and receiver busy at once; below 8 KiB the hand-over costs more than it hides.
    return std::clamp<size_t>(std::bit_ceil(bytes / 4 + 1), 8192, shape_.slot_bytes);
}

Channel::Slot *Channel::slot(std::byte *ring, uint64_t number) const {
    return reinterpret_cast<Slot *>(ring + (number % shape_.slots) * (sizeof(Slot) + shape_.slot_bytes));
}

Channel::Slot *Channel::free_slot(const Peer &peer) const {
    Slot *slot = this->slot(peer.out, peer.slots_sent);
    const bool taken = peer.slots_sent >= shape_.slots &&
                       slot->freed.load(std::memory_order_acquire) != peer.slots_sent - shape_.slots + 1;
    return taken ? nullptr : slot;
}

SendResult Channel::send_short(Peer &peer, const ChunkHeader &header, const void *data) {
    if (!make_room(peer, kShortRing))
        return SendResult::failed;
    ShortOut &out = peer.short_out;
    if (out.sent - out.freed == shape_.shorts) {
        out.freed = peer.shorts_out->freed.load(std::memory_order_acquire);
        if (out.sent - out.freed == shape_.shorts)
            return SendResult::busy;
    }
    Short &slot = peer.shorts_out->slot(out.sent++, shape_.shorts);
    if (header.bytes != 0)
        std::memcpy(slot.data, data, header.bytes);
    slot.header = header;
    slot.filled.store(++peer.sent, std::memory_order_release);
    prepare_later(peer, header.bytes);
    count(peer, header.bytes);
    return SendResult::copied;
}

/// Takes the lines of a short slot that is still to come, once it is known to be free.
void Channel::prepare_later(Peer &peer, size_t bytes) const {
    ShortOut &out = peer.short_out;
    if (out.sent + kAhead - out.freed >= shape_.shorts) {
        if (out.sent % kAhead != 0)
            return;
        out.freed = peer.shorts_out->freed.load(std::memory_order_acquire);
        if (out.sent + kAhead - out.freed >= shape_.shorts)
            return;
    }
    auto *line = reinterpret_cast<std::byte *>(&peer.shorts_out->slot(out.sent + kAhead, shape_.shorts));
    prefetch_to_write(line);
    if (bytes > kLine - offsetof(Short, data))
        prefetch_to_write(line + kLine);
}

/// Fetches all that the peer has sent already at once, if it is ahead. One look is for so many messages, and is not
/// repeated soon if there is nothing.
void Channel::fetch_ahead(Peer &peer, size_t bytes) const {
    ShortIn &in = peer.short_in;
    if (in.received < in.look_at || shape_.shorts <= kAhead)
        return;
    const uint64_t later = in.received + kAhead - 1;
    // What was there before has been received.
    if (peer.shorts_in->slot(later, shape_.shorts).filled.load(std::memory_order_relaxed) <= peer.received) {
        in.look_at = in.received + kNextLook;
        return;
    }
    in.look_at = later + 1;
    for (uint64_t number = in.received; number <= later; ++number) {
        const auto *line = reinterpret_cast<const std::byte *>(&peer.shorts_in->slot(number, shape_.shorts));
        __builtin_prefetch(line);
        if (bytes > kLine - offsetof(Short, data))
            __builtin_prefetch(line + kLine);
    }
}

SendResult Channel::send(int peer_rank, const ChunkHeader &header, const void *data) {
    Peer &peer = peers_[peer_rank];
    if (header.bytes <= kShortBytes)
        return send_short(peer, header, data);
    if (!make_room(peer, kSlotRing))
        return SendResult::failed;
    Slot *slot = free_slot(peer);
    if (slot == nullptr)
        return SendResult::busy;
    const int64_t began = header.bytes >= kTimedBytes ? now_ns() : 0;
    if (header.bytes != 0)
        std::memcpy(reinterpret_cast<std::byte *>(slot) + sizeof(Slot), data, header.bytes);
    slot->header = header;
    slot->address = 0;
    ++peer.slots_sent;
    slot->filled.store(++peer.sent, std::memory_order_release);
    if (began != 0)
        peer.counters.busy_ns += now_ns() - began;
    count(peer, header.bytes);
    return SendResult::copied;
}

size_t Channel::max_exposed(int /*peer*/, const void *data, size_t bytes) {
    const bool pays = memory_ != nullptr && bytes >= kLeastExposed && bytes < kMostExposed;
    return pays && memory_->reachable(data, bytes) ? kExposedChunk : 0;
}

SendResult Channel::expose(int peer_rank, const ChunkHeader &header, const void *data) {
    Peer &peer = peers_[peer_rank];
    if (!make_room(peer, kSlotRing))
        return SendResult::failed;
    Slot *slot = free_slot(peer);
    if (slot == nullptr)
        return SendResult::busy;
    slot->header = header;
    slot->address = reinterpret_cast<uint64_t>(data);
    slot->withdrawn.store(0, std::memory_order_relaxed);
    slot->filled.store(++peer.sent, std::memory_order_release);
    exposed_.push_back({{header, peer_rank}, slot, ++peer.slots_sent, now_ns()});
    return SendResult::in_flight;
}

bool Channel::completed(Completion &completion) {
    for (Exposed &exposed : exposed_) {
        if (exposed.slot->freed.load(std::memory_order_acquire) < exposed.number)
            continue;
        completion = exposed.chunk;
        Peer &peer = peers_[completion.peer];
        peer.counters.busy_ns += now_ns() - exposed.began_ns;
        count(peer, completion.header.bytes);
        exposed = exposed_.back();
        exposed_.pop_back();
        return true;
    }
    return false;
}

void Channel::withdraw() {
    for (const Exposed &exposed : exposed_)
        exposed.slot->withdrawn.exchange(1, std::memory_order_acq_rel);
}

Status Channel::fetch(const Arrival &arrival, size_t offset, void *to, size_t bytes) {
    Status status = memory_->read(arrival.peer, to, arrival.address + offset, bytes);
    // The look comes after what was read: a fence would say so too, but ThreadSanitizer does not know it.
    Slot *slot = this->slot(peers_[arrival.peer].in, arrival.token - 1);
    if (slot->withdrawn.fetch_or(0, std::memory_order_acq_rel) != 0)
        return fail(Fault::peer_memory_gone, "rank {} gave up before its message was fetched", arrival.peer);
    return status;
}

bool Channel::receive_short(int peer_rank, Arrival &arrival) {
    Peer &peer = peers_[peer_rank];
    ShortIn &in = peer.short_in;
    const Short &brief = peer.shorts_in->slot(in.received, shape_.shorts);
    if (brief.filled.load(std::memory_order_acquire) != peer.received + 1)
        return false;
    ++peer.received;
    arrival.header = brief.header;
    arrival.peer = peer_rank;
    arrival.address = 0;
    arrival.data = brief.data;
    arrival.token = kShortToken | in.received++;
    fetch_ahead(peer, brief.header.bytes);
    return true;
}

bool Channel::receive(int peer_rank, Arrival &arrival) {
    Peer &peer = peers_[peer_rank];
    if (is_there(peer, kShortRing) && receive_short(peer_rank, arrival))
        return true;
    if (!is_there(peer, kSlotRing))
        return false;
    Slot *slot = this->slot(peer.in, peer.slots_received);
    if (slot->filled.load(std::memory_order_acquire) != peer.received + 1)
        return false;
    arrival.header = slot->header;
    arrival.peer = peer_rank;
    arrival.address = slot->address;
    arrival.data = slot->address == 0 ? reinterpret_cast<std::byte *>(slot) + sizeof(Slot) : nullptr;
    ++peer.received;
    arrival.token = ++peer.slots_received;
    return true;
}

void Channel::release_short(Peer &peer, uint64_t number) const {
    ShortIn &in = peer.short_in;
    const auto bit = [&](uint64_t of) { return uint64_t{1} << (of & (shape_.shorts - 1)); };
    if (number != in.freed) {
        in.later |= bit(number);
        return;
    }
    for (++in.freed; (in.later & bit(in.freed)) != 0; ++in.freed)
        in.later &= ~bit(in.freed);
    if (in.freed - in.told < shape_.shorts / kFreedPart)
        return;
    in.told = in.freed;
    peer.shorts_in->freed.store(in.freed, std::memory_order_release);
}

void Channel::release(const Arrival &arrival) {
    if ((arrival.token & kShortToken) != 0)
        return release_short(peers_[arrival.peer], arrival.token & ~kShortToken);
    Slot *slot = this->slot(peers_[arrival.peer].in, arrival.token - 1);
    slot->freed.store(arrival.token, std::memory_order_release);
}

}  // namespace flx::shm
