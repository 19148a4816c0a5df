#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ucx_glue/line.h"
#include "ucx_glue/rail_link.h"
#include "ucx_glue/reach.h"

namespace flx::ucx {

namespace {

/// Acknowledgements that nobody waits for ride on chunks. So many may wait for a chunk, of so many bytes: little beside
/// the window and the copies that their sender may have.
constexpr size_t kLazyAcks = 32;
constexpr size_t kLazyBytes = 32 << 10;
/// While chunks are held, acknowledgements wait until there are so many bytes of them: a slow rail's window is small.
constexpr size_t kAckBytes = 64 << 10;
/// The largest packed remote key. UCX's are some ten to a hundred bytes a transport.
constexpr size_t kMostKeyBytes = 4096;

}  // namespace

Peer &Rail::peer_by_uid(uint64_t uid) {
    if (last_peer_ != nullptr && last_peer_->uid == uid)
        return *last_peer_;
    Peer *&peer = by_uid_[uid];
    if (peer == nullptr) {
        peers_.push_back(std::make_unique<Peer>());
        peer = peers_.back().get();
        peer->rail = this;
        peer->uid = uid;
        peer->owed.reserve(4 * kAcksPerMessage);
    }
    last_peer_ = peer;
    return *peer;
}

/// Null: the process is not a known peer. Others that connect to a rail are not heard, and leave nothing behind.
Peer *Rail::sender(uint64_t uid) {
    const bool known = (last_peer_ != nullptr && last_peer_->uid == uid) || by_uid_.find(uid) != by_uid_.end();
    if (!known && options_.paths != nullptr && !options_.paths->knows(uid))
        return nullptr;
    return &peer_by_uid(uid);
}

/// What a message's header says; false: it is no such header, or not to be heard.
template <typename Wire>
bool Rail::read(const void *header, size_t bytes, Wire &wire) const {
    if (deaf() || bytes != sizeof wire)
        return false;
    std::memcpy(&wire, header, sizeof wire);
    return true;
}

/// Closing its endpoints moves the worker once more. What comes late then must reach no link, which would keep it after
/// the rail: its sender has lost this connection, or does so now, and sends it again.
bool Rail::deaf() const {
    return closing_ || line_.drops();
}

ucs_status_t Rail::chunk_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                 const ucp_am_recv_param_t *param) {
    auto &self = *static_cast<Rail *>(rail);
    if (self.deaf())
        return UCS_OK;
    ChunkWire wire;
    if (header_bytes < kChunkWireBytes || header_bytes > sizeof wire)
        return UCS_OK;
    std::memcpy(&wire, header, header_bytes);
    if (wire.acks > kRidingAcks || header_bytes != kChunkWireBytes + 4 * wire.acks ||
        (wire.slot == kNoSlot && bytes != wire.header.bytes))
        return UCS_OK;
    const bool persistent = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    return self.take_chunk(wire, data, bytes, persistent) ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t Rail::chunks_handler(void *rail, const void *, size_t, void *data, size_t bytes,
                                  const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    auto *at = static_cast<std::byte *>(data);
    for (uint32_t chunks = 0; chunks < kMostTogether && bytes >= kChunkWireBytes && !self.deaf(); ++chunks) {
        ChunkWire wire;
        std::memcpy(&wire, at, kChunkWireBytes);
        if (wire.acks > kRidingAcks || wire.slot != kNoSlot)
            return UCS_OK;
        const size_t header_bytes = kChunkWireBytes + 4 * wire.acks;
        if (bytes < header_bytes || bytes - header_bytes < wire.header.bytes)
            return UCS_OK;
        std::memcpy(wire.riding, at + kChunkWireBytes, 4 * wire.acks);
        self.take_chunk(wire, at + header_bytes, wire.header.bytes, false);
        at += header_bytes + wire.header.bytes;
        bytes -= header_bytes + wire.header.bytes;
    }
    return UCS_OK;
}

bool Rail::take_chunk(const ChunkWire &wire, void *data, size_t bytes, bool persistent) {
    Peer *const known = sender(wire.uid);
    if (known == nullptr)
        return false;
    Peer &peer = *known;
    ++peer.heard;
    ++peer.received;
    acknowledged(peer, wire.riding, wire.acks);

    if (line_.failover().reach().gone(wire.header.comm)) {
        owe(peer, wire.number, wire.header.bytes, wire.prompt != 0);
        return false;
    }
    Inbound *chunk = inbound_.take();
    ++inbound_used_;
    chunk->peer = &peer;
    chunk->rank = -1;
    chunk->number = wire.number;
    chunk->prompt = wire.prompt != 0;
    chunk->handed = false;
    chunk->header = wire.header;
    if (!take_payload(*chunk, wire, data, bytes, persistent)) {
        inbound_.give(chunk);
        --inbound_used_;
        fail_peer(peer, UCS_ERR_NO_MEMORY);
        return false;
    }
    const bool kept = chunk->memory == Inbound::Memory::ucx;
    small_came_ = small_came_ || wire.prompt == 0;
    deliver(chunk);
    // Its acknowledgement must not have to wait for a connection to be made.
    if (peer.endpoint == nullptr && peer.process >= 0 && !peer.wants_endpoint) {
        peer.wants_endpoint = true;
        defer(peer);
    }
    return kept;
}

bool Rail::take_payload(Inbound &chunk, const ChunkWire &wire, void *data, size_t bytes, bool persistent) {
    Peer &peer = *chunk.peer;
    chunk.data = nullptr;
    chunk.memory = Inbound::Memory::none;
    if (wire.slot != kNoSlot) {
        if (wire.slot >= peer.ring.slots() || wire.header.bytes > peer.ring.slot_bytes())
            return false;
        chunk.data = peer.ring.slot(wire.slot);
        chunk.memory = Inbound::Memory::slot;
        return true;
    }
    // Executors read elements where they lie, so data must be aligned for any of them.
    if (persistent && reinterpret_cast<uintptr_t>(data) % alignof(std::max_align_t) == 0) {
        chunk.data = static_cast<std::byte *>(data);
        chunk.memory = Inbound::Memory::ucx;
        return true;
    }
    chunk.buffer_class = BufferPool::class_of(bytes);
    chunk.data = buffers_.take(chunk.buffer_class);
    if (chunk.data == nullptr)
        return false;
    chunk.memory = Inbound::Memory::pooled;
    std::memcpy(chunk.data, data, bytes);
    return true;
}

void Rail::deliver(Inbound *chunk) {
    if (RailLink *link = landing(*chunk); link != nullptr) {
        chunk->rank = link->rank_of(*chunk->peer);
        if (chunk->rank >= 0) {
            if (link->ended(*chunk))
                stale_.append(chunk);
            else
                link->arrived(chunk);
            return;
        }
    }
    orphans_.append(chunk);
}

void Rail::release_stale() {
    while (Inbound *chunk = stale_.take_first())
        release(chunk);
}

void Rail::attach(RailLink &link) {
    for (Inbound *chunk = orphans_.first(); chunk != nullptr;) {
        Inbound *next = chunk->next;
        if (chunk->header.comm == link.comm_id() && landing(*chunk) != nullptr) {
            orphans_.remove(chunk);
            deliver(chunk);
        }
        chunk = next;
    }
}

void Rail::release(Inbound *chunk) {
    Peer &peer = *chunk->peer;
    if (chunk->handed)
        --peer.handed;
    if (peer.relayed) {
        line_.failover().relay().owe(peer.uid, chunk->header.comm, chunk->number);
        free_inbound(chunk);
        return;
    }
    owe(peer, chunk->number, chunk->header.bytes, chunk->prompt);
    free_inbound(chunk);
    // While the executor has further chunks of this peer, or will take them next, their acknowledgements will go along.
    bool due =
        peer.owed_promptly && (!more_comes(peer) || peer.owed_bytes >= std::min(options_.window_bytes / 8, kAckBytes));
    if (due || peer.owed.size() >= kLazyAcks ||
        (peer.owed_bytes >= std::min(kLazyBytes, options_.window_bytes / 4) && !peer.owed_promptly))
        send_acks(peer);
}

bool Rail::more_comes(const Peer &peer) {
    return peer.handed != 0 || (peer.reader != nullptr && peer.reader->has_more(peer));
}

void Rail::free_inbound(Inbound *chunk) {
    if (chunk->memory == Inbound::Memory::pooled)
        buffers_.give(chunk->data, chunk->buffer_class);
    else if (chunk->memory == Inbound::Memory::ucx)
        ucp_am_data_release(context_.worker, chunk->data);
    chunk->data = nullptr;
    --inbound_used_;
    inbound_.give(chunk);
}

void Rail::owe(Peer &peer, uint32_t number, size_t bytes, bool prompt) {
    if (peer.failure != UCS_OK)
        return;
    if (peer.owed.empty())
        owing_.push_back(&peer);
    peer.owed.push_back(number);
    peer.owed_bytes += bytes;
    peer.owed_promptly |= prompt;
}

/// Takes the acknowledgements that fit onto a chunk, unless the peer waits for them: then they do not queue behind one.
uint32_t Rail::take_riding_acks(Peer &peer, uint32_t *numbers) {
    uint32_t count = 0;
    if (peer.owed_promptly)
        return 0;
    while (count < kRidingAcks && !peer.owed.empty()) {
        numbers[count++] = peer.owed.back();
        peer.owed.pop_back();
    }
    if (count > 0 && peer.owed.empty()) {
        peer.owed_bytes = 0;
        peer.owed_promptly = false;
        std::erase(owing_, &peer);
    }
    return count;
}

void Rail::send_acks(Peer &peer) {
    while (!peer.owed.empty() && peer.failure == UCS_OK && ensure_endpoint(peer)) {
        AckMessage *message = ack_messages_.take();
        message->rail = this;
        message->peer = &peer;
        uint32_t count = static_cast<uint32_t>(std::min<size_t>(kAcksPerMessage, peer.owed.size()));
        message->wire = {uid_, count, peer.credit};
        std::memcpy(message->numbers, peer.owed.data() + (peer.owed.size() - count), count * sizeof(uint32_t));
        peer.owed.resize(peer.owed.size() - count);
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_EAGER;
        param.cb.send = acks_sent;
        param.user_data = message;
        ucs_status_ptr_t request = ucp_am_send_nbx(peer.ack_endpoint, kAckMessage, &message->wire, sizeof message->wire,
                                                   message->numbers, count * sizeof(uint32_t), &param);
        if (UCS_PTR_IS_ERR(request))
            fail_peer(peer, UCS_PTR_STATUS(request));
        peer.ack_connected = peer.ack_connected || request == nullptr;
        if (request == nullptr || UCS_PTR_IS_ERR(request))
            ack_messages_.give(message);
        else
            ++requests_;
    }
    peer.owed.clear();  // of a peer that is gone
    peer.owed_bytes = 0;
    peer.owed_promptly = false;
    std::erase(owing_, &peer);
}

void Rail::acks_sent(void *request, ucs_status_t status, void *data) {
    auto *message = static_cast<AckMessage *>(data);
    ucp_request_free(request);
    --message->rail->requests_;
    if (status == UCS_OK)
        message->peer->ack_connected = true;
    else
        message->rail->fail_peer(*message->peer, status);
    message->rail->ack_messages_.give(message);
}

/// Sends the acknowledgements that a peer waits for, or `all`.
void Rail::send_due_acks(bool all) {
    for (size_t i = owing_.size(); i > 0; --i) {  // from the end: send_acks() takes the peer off the list
        Peer &peer = *owing_[i - 1];
        bool known = peer.process >= 0;
        if (known && (all || (peer.owed_promptly && !more_comes(peer))))
            send_acks(peer);
    }
}

ucs_status_t Rail::ack_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    AckWire wire;
    if (!self.read(header, header_bytes, wire))
        return UCS_OK;
    if (wire.count > kAcksPerMessage || bytes != wire.count * sizeof(uint32_t))
        return UCS_OK;
    uint32_t numbers[kAcksPerMessage];
    std::memcpy(numbers, data, bytes);
    Peer *const peer = self.sender(wire.uid);
    if (peer == nullptr)
        return UCS_OK;
    ++peer->heard;
    peer->told = wire.credit;
    self.acknowledged(*peer, numbers, wire.count);
    return UCS_OK;
}

ucs_status_t Rail::ring_request_handler(void *rail, const void *header, size_t header_bytes, void *, size_t,
                                        const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    RingRequestWire wire;
    if (!self.read(header, header_bytes, wire))
        return UCS_OK;
    Peer *const peer = self.sender(wire.uid);
    if (peer == nullptr)
        return UCS_OK;
    peer->wants_ring = true;
    self.defer(*peer);
    return UCS_OK;
}

ucs_status_t Rail::ring_grant_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                      const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    RingGrantWire wire;
    if (!self.read(header, header_bytes, wire))
        return UCS_OK;
    Peer *const peer = self.sender(wire.uid);
    if (peer == nullptr || bytes > kMostKeyBytes)
        return UCS_OK;
    peer->grant = wire;
    peer->grant_key.assign(static_cast<const char *>(data), bytes);
    peer->has_grant = true;
    self.defer(*peer);
    return UCS_OK;
}

ucs_status_t Rail::echo_handler(void *rail, const void *header, size_t header_bytes, void *, size_t bytes,
                                const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    EchoWire wire;
    if (!self.read(header, header_bytes, wire))
        return UCS_OK;
    if (wire.bytes != bytes || wire.bytes > kMostEcho)
        return UCS_OK;
    Peer *const peer = self.sender(wire.uid);
    if (peer == nullptr)
        return UCS_OK;
    ++peer->heard;
    if (wire.back != 0) {
        self.line_.failover().echoed(*peer, wire.bytes);
    } else {
        peer->echo = wire.bytes;
        self.defer(*peer);
    }
    return UCS_OK;
}

ucs_status_t Rail::up_handler(void *rail, const void *header, size_t header_bytes, void *, size_t,
                              const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    RingRequestWire wire;
    if (!self.read(header, header_bytes, wire))
        return UCS_OK;
    if (Peer *const peer = self.sender(wire.uid); peer != nullptr)
        self.line_.failover().told_up(*peer);
    return UCS_OK;
}

ucs_status_t Rail::relay_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                 const ucp_am_recv_param_t *) {
    auto &self = *static_cast<Rail *>(rail);
    RelayWire wire;
    if (!self.read(header, header_bytes, wire))
        return UCS_OK;
    Peer *const hop = self.sender(wire.hop);
    if (hop == nullptr)
        return UCS_OK;
    Relay &relay = self.line_.failover().relay();
    ++hop->heard;
    if (wire.to != self.uid_)
        relay.forward(wire, data, bytes);
    else if (wire.kind == RelayWire::kAcks)
        relay.acknowledged(wire, data, bytes);
    else if (wire.header.bytes == bytes && relay.take(wire))
        self.take_relayed(wire, data, bytes);
    return UCS_OK;
}

void Rail::take_relayed(const RelayWire &wire, const void *data, size_t bytes) {
    Relay &relay = line_.failover().relay();
    if (line_.failover().reach().gone(wire.header.comm)) {
        relay.refuse(wire);
        return;
    }
    std::unique_ptr<Peer> &peer = origins_[wire.from];
    if (peer == nullptr) {
        peer = std::make_unique<Peer>();
        peer->rail = this;
        peer->uid = wire.from;
        peer->process = relay.process_of(wire.from);
        peer->relayed = true;
    }
    Inbound *chunk = inbound_.take();
    ++inbound_used_;
    chunk->peer = peer.get();
    chunk->rank = -1;
    chunk->number = wire.number;
    chunk->prompt = true;
    chunk->handed = false;
    chunk->header = wire.header;
    chunk->line = wire.line;
    chunk->memory = Inbound::Memory::none;
    chunk->data = nullptr;
    chunk->buffer_class = BufferPool::class_of(bytes);
    chunk->data = buffers_.take(chunk->buffer_class);
    if (chunk->data == nullptr) {
        free_inbound(chunk);
        relay.leave(wire);
        fail_peer(peer_by_uid(wire.hop), UCS_ERR_NO_MEMORY);
        return;
    }
    chunk->memory = Inbound::Memory::pooled;
    std::memcpy(chunk->data, data, bytes);
    deliver(chunk);
}

/// The link that takes a chunk; null: it was not made yet. A chunk may come by a line on which its communicator has no
/// link here, as links are dropped by each rank.
RailLink *Rail::landing(const Inbound &chunk) const {
    const Peer &peer = *chunk.peer;
    RailLink *link = peer.relayed ? nullptr : line_.link(chunk.header.comm);
    if (link != nullptr && link->serves(peer.process))
        return link;
    return line_.failover().reach().landing(chunk.header.comm, peer.process, peer.relayed ? chunk.line : line_.index());
}

bool Rail::send_relay(Peer &peer, const RelayWire &wire, std::vector<std::byte> &payload, size_t counted) {
    if (!ensure_endpoint(peer))
        return false;
    RelayMessage *message = relay_messages_.take();
    message->rail = this;
    message->peer = &peer;
    message->wire = wire;
    message->payload = std::move(payload);
    message->counted = counted;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = relay_sent;
    param.user_data = message;
    ucs_status_ptr_t request = ucp_am_send_nbx(peer.endpoint, kRelayMessage, &message->wire, sizeof message->wire,
                                               message->payload.data(), message->payload.size(), &param);
    if (UCS_PTR_IS_PTR(request)) {
        ++requests_;
        return true;
    }
    const bool sent = !UCS_PTR_IS_ERR(request);
    if (sent) {
        line_.failover().relay().let_go(counted);
        std::vector<std::byte>().swap(message->payload);
    } else {
        payload = std::move(message->payload);
        fail_peer(peer, UCS_PTR_STATUS(request));
    }
    relay_messages_.give(message);
    return sent;
}

void Rail::relay_sent(void *request, ucs_status_t status, void *data) {
    auto *message = static_cast<RelayMessage *>(data);
    ucp_request_free(request);
    Rail &rail = *message->rail;
    --rail.requests_;
    if (status != UCS_OK)
        rail.fail_peer(*message->peer, status);
    rail.line_.failover().relay().let_go(message->counted);
    std::vector<std::byte>().swap(message->payload);
    rail.relay_messages_.give(message);
}

}  // namespace flx::ucx
