#include "channel.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "telemetry.h"

namespace flx::shm {
namespace {
constexpr uint32_t kMostSlots = 8;
constexpr uint32_t kLargestSlot = 64 * 1024;
/// Chunks below this are not timed: reading the clock would cost more than copying them.
constexpr size_t kTimedBytes = 4096;
constexpr size_t kControlBytes = 128;
}  // namespace

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
    return shape;
}

size_t ChannelShape::bytes() const {
    return size_t{ranks} * (std::max(ranks, 2U) - 1) * slots * (kControlBytes + slot_bytes);
}

Channel::Channel(std::byte *memory, const ChannelShape &shape, int local_rank, std::vector<int> local_of)
    : shape_(shape), peers_(local_of.size()) {
    static_assert(sizeof(Slot) == kControlBytes);
    const size_t ring_bytes = size_t{shape.slots} * (kControlBytes + shape.slot_bytes);
    const auto ring = [&](int from, int to) {
        return memory + (size_t{shape.ranks - 1} * from + (to < from ? to : to - 1)) * ring_bytes;
    };
    for (size_t rank = 0; rank < local_of.size(); ++rank) {
        const int local = local_of[rank];
        if (local < 0 || local == local_rank)
            continue;
        peers_[rank].local = local;
        peers_[rank].out = ring(local_rank, local);
        peers_[rank].in = ring(local, local_rank);
    }
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

SendResult Channel::send(int peer_rank, const ChunkHeader &header, const void *data) {
    Peer &peer = peers_[peer_rank];
    Slot *slot = this->slot(peer.out, peer.sent);
    if (peer.sent >= shape_.slots && slot->freed.load(std::memory_order_acquire) != peer.sent - shape_.slots + 1)
        return SendResult::busy;
    const int64_t began = header.bytes >= kTimedBytes ? now_ns() : 0;
    if (header.bytes != 0)
        std::memcpy(reinterpret_cast<std::byte *>(slot) + sizeof(Slot), data, header.bytes);
    slot->header = header;
    slot->filled.store(++peer.sent, std::memory_order_release);
    if (began != 0)
        peer.counters.busy_ns += now_ns() - began;
    peer.counters.bytes += header.bytes;
    ++peer.counters.chunks;
    return SendResult::copied;
}

bool Channel::receive(int peer_rank, Arrival &arrival) {
    Peer &peer = peers_[peer_rank];
    Slot *slot = this->slot(peer.in, peer.received);
    if (slot->filled.load(std::memory_order_acquire) != peer.received + 1)
        return false;
    arrival.header = slot->header;
    arrival.peer = peer_rank;
    arrival.data = reinterpret_cast<std::byte *>(slot) + sizeof(Slot);
    arrival.token = ++peer.received;
    return true;
}

void Channel::release(const Arrival &arrival) {
    Slot *slot = this->slot(peers_[arrival.peer].in, arrival.token - 1);
    slot->freed.store(arrival.token, std::memory_order_release);
}

}  // namespace flx::shm
