#include <cassert>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "ucx_glue/line.h"
#include "ucx_glue/rail_link.h"

namespace flx::ucx {

namespace {

constexpr uint32_t kIndexBits = 20;
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
/// Bytes of copies, per rail. Beyond that chunks are sent from the caller's memory.
constexpr size_t kMaxCopiedBytes = 1 << 20;
/// Of short operations, chunks up to this are copied where payloads are not put: the copy takes less than the wait for
/// an acknowledgement.
constexpr size_t kMostCopiedSoon = 64 << 10;

}  // namespace

/// `in_flight`: a chunk of so many bytes may be started, as a `put`, if it was to be one and can, or a message.
SendResult Rail::can_start(Peer &peer, const RailLink &link, int rank, size_t bytes, bool &put) {
    if (!link.has_room(rank, bytes) || outgoing_.all().size() > kIndexMask)
        return SendResult::busy;
    if (!ensure_endpoint(peer))
        return SendResult::failed;
    put = put && peer.remote.state() != RemoteRing::State::refused;
    if (put && peer.remote.state() != RemoteRing::State::granted) {
        if (peer.remote.state() == RemoteRing::State::unknown) {
            peer.remote.asked();
            send_control(peer, kRingRequestMessage);
        }
        return peer.failure == UCS_OK ? SendResult::busy : SendResult::failed;
    }
    if (put && !peer.remote.has_free()) {
        // Another communicator's chunks may fill all slots and stay: a message needs none.
        if (link.has_something_under_way(rank))
            return SendResult::busy;
        put = false;
    }
    return SendResult::in_flight;
}

SendResult Rail::send(Peer &peer, RailLink &link, int rank, const ChunkHeader &header, const void *data, bool soon) {
    assert(header.bytes <= options_.chunk_bytes && header.comm == link.comm_id());
    if (peer.failure != UCS_OK || header.bytes > options_.chunk_bytes)
        return SendResult::failed;
    const bool copies =
        link.copies(rank, header) || (soon && header.bytes <= (spec_.rma ? kMostKept : kMostCopiedSoon));
    bool put = spec_.rma && !copies;
    if (const SendResult result = can_start(peer, link, rank, header.bytes, put); result != SendResult::in_flight)
        return result;
    Outgoing *chunk = take_outgoing(peer, &link, rank, header);
    chunk->home = &link;
    chunk->source = data;
    if (copies) {
        int size_class = BufferPool::class_of(header.bytes);
        size_t size = BufferPool::bytes_of(size_class);
        if (copied_bytes_ + size <= kMaxCopiedBytes)
            chunk->copy = buffers_.take(size_class);
        if (chunk->copy != nullptr) {
            copied_bytes_ += size;
            chunk->copy_class = size_class;
            std::memcpy(chunk->copy, data, header.bytes);
            chunk->source = chunk->copy;
        }
    }
    chunk->wire.prompt = chunk->copy == nullptr ? 1 : 0;
    if (soon && !put && header.bytes <= kMostKept)
        keep(chunk);
    else if (!start(chunk, put))
        return SendResult::failed;
    return chunk->copy != nullptr ? SendResult::copied : SendResult::in_flight;
}

bool Rail::resend(Peer &peer, RailLink *link, Resend &resend) {
    if (peer.failure != UCS_OK || outgoing_.all().size() > kIndexMask || !ensure_endpoint(peer))
        return false;
    std::byte *copy = nullptr;
    const int size_class = BufferPool::class_of(resend.header.bytes);
    if (resend.copy != nullptr) {
        copy = buffers_.take(size_class);  // whatever has been copied already: nobody else keeps it
        if (copy == nullptr)
            return false;
        std::memcpy(copy, resend.copy.get(), resend.header.bytes);
    }
    Outgoing *chunk = take_outgoing(peer, link, resend.rank, resend.header);
    chunk->home = resend.home;
    chunk->resent = true;
    chunk->source = copy != nullptr ? copy : resend.source;
    chunk->copy = copy;
    if (copy != nullptr) {
        chunk->copy_class = size_class;
        copied_bytes_ += BufferPool::bytes_of(size_class);
    }
    chunk->wire.prompt = 1;
    return start(chunk, false);  // by a message: it needs no slot, of which none may be free for the same reason
}

/// False: the peer failed, and the chunk is as if it had never been.
bool Rail::start(Outgoing *chunk, bool put) {
    Peer &peer = *chunk->peer;
    send_kept(peer);
    const uint32_t bytes = chunk->wire.header.bytes;
    const bool taken =
        peer.failure == UCS_OK && (put ? start_put(chunk, chunk->source) : start_message(chunk, chunk->source, bytes));
    if (!taken) {
        drop_outgoing(chunk);
        return false;
    }
    count_started(*chunk);
    return true;
}

void Rail::count_started(Outgoing &chunk) {
    Peer &peer = *chunk.peer;
    ++peer.sent;
    ++peer.unacknowledged_chunks;
    peer.unacknowledged_bytes += chunk.wire.header.bytes;
    if (peer.failure == UCS_OK)
        ++live_unacknowledged_;
    if (chunk.link != nullptr)
        chunk.link->started(chunk);
}

/// A message costs its sender and its receiver a system call each, and more than some kilobytes do.
void Rail::keep(Outgoing *chunk) {
    Peer &peer = *chunk->peer;
    if (peer.kept_chunks == kMostTogether || peer.kept_bytes + chunk->wire.header.bytes > kTogetherBytes)
        send_kept(peer);
    count_started(*chunk);
    if (peer.failure != UCS_OK)
        return;  // flushing found out; the chunk goes another way, like all that is unacknowledged
    if (peer.kept_chunks == 0)
        keeping_.push_back(&peer);
    chunk->next = nullptr;
    chunk->kept = true;
    (peer.kept_last != nullptr ? peer.kept_last->next : peer.kept_first) = chunk;
    peer.kept_last = chunk;
    ++peer.kept_chunks;
    peer.kept_bytes += chunk->wire.header.bytes;
}

/// In the order in which peers came: what was ready first is awaited first.
void Rail::send_kept() {
    while (!keeping_.empty())
        send_kept(*keeping_.front());
}

void Rail::send_kept(Peer &peer) {
    const uint32_t chunks = std::exchange(peer.kept_chunks, 0);
    if (chunks == 0)
        return;
    std::erase(keeping_, &peer);
    Outgoing *first = std::exchange(peer.kept_first, nullptr);
    peer.kept_last = nullptr;
    peer.kept_bytes = 0;
    for (Outgoing *chunk = first; chunk != nullptr; chunk = chunk->next)
        chunk->kept = false;
    if (peer.failure != UCS_OK)
        return;
    if (chunks == 1)
        start_message(first, first->source, first->wire.header.bytes);
    else
        start_batch(peer, first, chunks);
}

void Rail::start_batch(Peer &peer, Outgoing *first, uint32_t chunks) {
    Batch *batch = batches_.take();
    batch->chunks = chunks;
    Outgoing *chunk = first;
    for (uint32_t i = 0; i < chunks; ++i, chunk = chunk->next) {
        chunk->wire.acks = static_cast<uint16_t>(take_riding_acks(peer, chunk->wire.riding));
        batch->chunk[i] = chunk;
        batch->parts[2 * i] = {&chunk->wire, kChunkWireBytes + 4 * chunk->wire.acks};
        batch->parts[2 * i + 1] = {const_cast<void *>(chunk->source), chunk->wire.header.bytes};
    }
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                         UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_DATATYPE;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    param.datatype = UCP_DATATYPE_IOV;
    param.cb.send = batch_sent;
    param.user_data = batch;
    ucs_status_ptr_t request =
        ucp_am_send_nbx(peer.endpoint, kChunksMessage, nullptr, 0, batch->parts, 2 * size_t{chunks}, &param);
    if (UCS_PTR_IS_PTR(request)) {
        for (uint32_t i = 0; i < chunks; ++i)
            ++batch->chunk[i]->requests;
        ++requests_;
        return;
    }
    batches_.give(batch);
    if (UCS_PTR_IS_ERR(request))
        fail_peer(peer, UCS_PTR_STATUS(request));
}

void Rail::batch_sent(void *request, ucs_status_t status, void *data) {
    auto *batch = static_cast<Batch *>(data);
    Peer &peer = *batch->chunk[0]->peer;
    Rail &rail = *peer.rail;
    ucp_request_free(request);
    --rail.requests_;
    if (status != UCS_OK)
        rail.fail_peer(peer, status);
    for (uint32_t i = 0; i < batch->chunks; ++i) {
        Outgoing *chunk = batch->chunk[i];
        --chunk->requests;
        rail.let_go(chunk);
    }
    rail.batches_.give(batch);
}

/// UCX does not look at its source any more.
void Rail::let_go(Outgoing *chunk) {
    finish_if_done(chunk, chunk->acknowledged ? now_ns() : 0);
}

bool Rail::clings(const Peer &peer) const {
    for (const Outgoing &chunk : const_cast<NodePool<Outgoing> &>(outgoing_).all())
        if (chunk.used && chunk.peer == &peer && (!chunk.acknowledged || chunk.requests > 0))
            return true;
    return false;
}

bool Rail::surrender(Peer &peer, Resend &resend) {
    for (Outgoing &chunk : outgoing_.all()) {
        if (!chunk.used || chunk.peer != &peer || chunk.acknowledged || chunk.requests > 0)
            continue;
        const ChunkHeader &header = chunk.wire.header;
        resend.home = chunk.home;
        resend.rank = chunk.rank;
        resend.header = header;
        resend.source = chunk.source;
        resend.copy.reset();
        if (chunk.copy != nullptr) {
            resend.copy = std::make_unique<std::byte[]>(header.bytes);
            std::memcpy(resend.copy.get(), chunk.copy, header.bytes);
            resend.source = resend.copy.get();
        }
        --peer.unacknowledged_chunks;
        peer.unacknowledged_bytes -= header.bytes;
        if (chunk.link != nullptr)
            chunk.link->withdrawn(chunk);
        if (chunk.home != nullptr && !chunk.resent)
            chunk.home->went_astray();
        drop_outgoing(&chunk);
        return true;
    }
    return false;
}

Outgoing *Rail::take_outgoing(Peer &peer, RailLink *link, int rank, const ChunkHeader &header) {
    size_t made = outgoing_.all().size();
    Outgoing *chunk = outgoing_.take();
    if (outgoing_.all().size() > made)
        chunk->index = static_cast<uint32_t>(made);
    ++chunk->generation;
    chunk->peer = &peer;
    chunk->link = link;
    chunk->home = nullptr;
    chunk->resent = false;
    chunk->rank = rank;
    chunk->requests = 0;
    chunk->used = true;
    chunk->acknowledged = false;
    chunk->kept = false;
    chunk->putting = false;
    chunk->source = nullptr;
    chunk->copy = nullptr;
    chunk->wire.uid = uid_;
    chunk->wire.number = chunk->generation << kIndexBits | chunk->index;
    chunk->wire.slot = kNoSlot;
    chunk->wire.header = header;
    chunk->wire.acks = 0;
    return chunk;
}

void Rail::drop_outgoing(Outgoing *chunk) {
    if (chunk->copy != nullptr) {
        buffers_.give(chunk->copy, chunk->copy_class);
        copied_bytes_ -= BufferPool::bytes_of(chunk->copy_class);
        chunk->copy = nullptr;
    }
    if (chunk->wire.slot != kNoSlot)
        chunk->peer->remote.give(chunk->wire.slot);
    chunk->used = false;
    outgoing_.give(chunk);
}

/// The payload goes straight from the caller's memory into a slot. Neither the put's own completion (the source may be
/// reused) nor ucp_worker_fence (which says nothing about active messages on another lane) means that it has arrived;
/// a flush does, and the message that announces the slot is sent after it.
bool Rail::start_put(Outgoing *chunk, const void *data) {
    Peer &peer = *chunk->peer;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = chunk_sent;
    param.user_data = chunk;
    uint32_t slot = peer.remote.take();
    chunk->wire.slot = slot;
    chunk->putting = true;
    ucs_status_ptr_t request = ucp_put_nbx(peer.endpoint, data, chunk->wire.header.bytes, peer.remote.address(slot),
                                           peer.remote.key(), &param);
    if (UCS_PTR_IS_ERR(request)) {
        fail_peer(peer, UCS_PTR_STATUS(request));
        return false;
    }
    if (request != nullptr) {
        ++chunk->requests;
        ++requests_;
    }
    request = ucp_ep_flush_nbx(peer.endpoint, &param);
    if (UCS_PTR_IS_ERR(request)) {
        fail_peer(peer, UCS_PTR_STATUS(request));
        // Where the put is under way the chunk must live until its callback, so it counts as taken.
        return chunk->requests > 0;
    }
    if (request != nullptr) {
        ++chunk->requests;
        ++requests_;
    }
    if (chunk->requests > 0)
        return true;
    chunk->putting = false;
    return start_message(chunk, nullptr, 0);
}

/// Eager whatever the size: a rendezvous would read or write user memory at a time of UCX's choosing, and large ones in
/// opposite directions take turns.
bool Rail::start_message(Outgoing *chunk, const void *payload, size_t bytes) {
    Peer &peer = *chunk->peer;
    chunk->wire.acks = static_cast<uint16_t>(take_riding_acks(peer, chunk->wire.riding));
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                         UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    param.cb.send = chunk_sent;
    param.user_data = chunk;
    ucs_status_ptr_t request = ucp_am_send_nbx(peer.endpoint, kChunkMessage, &chunk->wire,
                                               kChunkWireBytes + 4 * chunk->wire.acks, payload, bytes, &param);
    if (UCS_PTR_IS_ERR(request)) {
        fail_peer(peer, UCS_PTR_STATUS(request));
        return false;
    }
    if (request != nullptr) {
        ++chunk->requests;
        ++requests_;
    }
    return true;
}

void Rail::chunk_sent(void *request, ucs_status_t status, void *data) {
    auto *chunk = static_cast<Outgoing *>(data);
    Rail &rail = *chunk->peer->rail;
    ucp_request_free(request);
    --chunk->requests;
    --rail.requests_;
    if (status != UCS_OK)
        rail.fail_peer(*chunk->peer, status);
    if (chunk->requests > 0)
        return;
    if (!chunk->putting) {
        rail.let_go(chunk);
    } else if (chunk->peer->failure == UCS_OK) {
        chunk->next = nullptr;
        (rail.announce_last_ != nullptr ? rail.announce_last_->next : rail.announce_first_) = chunk;
        rail.announce_last_ = chunk;
    }
}

void Rail::acknowledged(Peer &peer, const uint32_t *numbers, size_t count) {
    if (count == 0)
        return;
    int64_t now = 0;  // read where a chunk's pace is measured
    for (size_t i = 0; i < count; ++i) {
        uint32_t index = numbers[i] & kIndexMask;
        if (index >= outgoing_.all().size())
            continue;
        Outgoing &chunk = outgoing_.all()[index];
        if (!chunk.used || chunk.acknowledged || chunk.kept || chunk.wire.number != numbers[i] || chunk.peer != &peer)
            continue;
        chunk.acknowledged = true;
        if (now == 0 && chunk.link != nullptr && RailLink::paced(chunk))
            now = now_ns();
        finish_if_done(&chunk, now);
    }
}

/// A chunk is done when the receiver has acknowledged it and UCX does not look at its source any more.
void Rail::finish_if_done(Outgoing *chunk, int64_t now) {
    if (!chunk->acknowledged || chunk->requests > 0)
        return;
    Peer &peer = *chunk->peer;
    --peer.unacknowledged_chunks;
    peer.unacknowledged_bytes -= chunk->wire.header.bytes;
    if (peer.failure == UCS_OK)
        --live_unacknowledged_;
    if (chunk->wire.slot != kNoSlot) {
        peer.remote.give(chunk->wire.slot);
        chunk->wire.slot = kNoSlot;
    }
    bool collect = chunk->home != nullptr && chunk->copy == nullptr;
    if (chunk->link != nullptr)
        chunk->link->delivered(*chunk, now);
    if (chunk->home != nullptr)
        chunk->home->finished(chunk);
    if (!collect)
        drop_outgoing(chunk);
}

void Rail::collected(Outgoing *chunk) {
    drop_outgoing(chunk);
}

bool Rail::sends_for(const RailLink &link) const {
    for (const Outgoing &chunk : const_cast<NodePool<Outgoing> &>(outgoing_).all())
        if (chunk.used && chunk.home == &link && chunk.requests > 0 && chunk.copy == nullptr)
            return true;
    return false;
}

void Rail::detach(RailLink &link) {
    send_kept();
    // Chunks that UCX still sends refer to memory that the program may free as soon as the communicator is gone.
    for (int64_t end = now_ns() + 100'000'000; sends_for(link) && now_ns() < end;)
        progress(true);
    for (const auto &peer : peers_)
        if (peer->reader == &link)
            peer->reader = nullptr;
    for (Outgoing &chunk : outgoing_.all()) {
        if (!chunk.used || (chunk.link != &link && chunk.home != &link))
            continue;
        if (chunk.home == &link && chunk.requests > 0 && chunk.copy == nullptr && chunk.peer->endpoint != nullptr) {
            fail_peer(*chunk.peer, UCS_ERR_CANCELED);
            close_endpoint(*chunk.peer);
        }
        if (chunk.link == &link)
            chunk.link = nullptr;
        if (chunk.home != &link)
            continue;
        chunk.home = nullptr;
        if (chunk.copy == nullptr && chunk.requests == 0 && !chunk.acknowledged)
            forsake(chunk);
    }
}

/// The memory of a chunk is gone, and nobody waits for its acknowledgement: it must not be sent again.
void Rail::forsake(Outgoing &chunk) {
    Peer &peer = *chunk.peer;
    if (peer.failure == UCS_OK)
        return;  // it has left this process
    --peer.unacknowledged_chunks;
    peer.unacknowledged_bytes -= chunk.wire.header.bytes;
    drop_outgoing(&chunk);
}

}  // namespace flx::ucx
