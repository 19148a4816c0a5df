#include "ucx_glue/rail_link.h"

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"

namespace flx::ucx {

RailLink::RailLink(std::shared_ptr<Line> line, uint32_t comm_id, const std::vector<int> &processes, double deadline_s)
    : line_(std::move(line)),
      comm_id_(comm_id),
      deadline_ns_(static_cast<int64_t>(deadline_s * 1e9)),
      sides_(processes.size()),
      counted_(processes.size()) {
    auto lock = line_->lock();
    for (size_t rank = 0; rank < processes.size(); ++rank) {
        int process = processes[rank];
        sides_[rank].target = process < 0 ? nullptr : line_->target(process);
        if (sides_[rank].target == nullptr)
            continue;
        if (static_cast<size_t>(process) >= rank_of_process_.size())
            rank_of_process_.resize(process + 1, -1);
        rank_of_process_[process] = static_cast<int>(rank);
    }
    line_->attach(*this);
}

RailLink::~RailLink() {
    auto lock = line_->lock();
    line_->detach(*this);
    load_.remove(open_bytes_);
}

bool RailLink::reaches(int peer) const {
    return peer >= 0 && static_cast<size_t>(peer) < sides_.size() && sides_[peer].target != nullptr;
}

/// Chunks for the peer that may be sent again must not go where no link takes them.
void RailLink::part(int peer) {
    auto lock = line_->lock();
    if (!reaches(peer))
        return;
    Side &side = sides_[peer];
    while (Inbound *chunk = side.inbox.take_first())
        chunk->peer->rail->release(chunk);
    rank_of_process_[side.target->process] = -1;
    side.target = nullptr;
}

size_t RailLink::good_chunk(size_t bytes) const {
    // Eight chunks keep sender, wire and receiver at work at once; below 32 KiB what a message costs begins to show.
    size_t eighth = (bytes / 8 + 4095) / 4096 * 4096;
    return std::clamp(eighth, std::min(kMaxCellBytes, max_chunk()), max_chunk());
}

size_t RailLink::good_chunk_to(int peer, size_t bytes) const {
    // A chunk of one or two milliseconds keeps what a message costs out of sight, and an operation's end even. Where
    // the slice is short, some chunks of it are under way sooner if they are smaller.
    constexpr double kMostNs = 2e6;
    constexpr double kLeastNs = 0.25e6;
    constexpr double kSmallest = 8 << 10;
    auto lock = line_->lock();
    const double rate = sides_[peer].pace.rate();
    if (rate <= 0)
        return good_chunk(bytes);
    const auto longest = static_cast<double>(max_chunk());
    const double most = std::clamp(rate * kMostNs, std::min<double>(kMaxCellBytes, longest), longest);
    const double least = std::clamp(rate * kLeastNs, kSmallest, static_cast<double>(kMaxCellBytes));
    return static_cast<size_t>(std::clamp(static_cast<double>(bytes) / 4, std::min(least, most), most));
}

Pace RailLink::pace(int peer) const {
    auto lock = line_->lock();
    const Side &side = sides_[peer];
    return side.pace.at(polled_ns_, side.paced_bytes, side.paced_chunks);
}

size_t RailLink::window(int rank) const {
    // What waits here must outlast the moments in which this process has no core; more of it makes operations end
    // unevenly and later ones wait.
    constexpr double kWindowNs = 8e6;
    constexpr size_t kLeast = 128 << 10;
    const PaceMeter &pace = sides_[rank].pace;
    const size_t most = line_->options().window_bytes;
    if (pace.rate() <= 0)
        return most;
    const double bytes = pace.rate() * (kWindowNs + pace.round_trip_ns());
    return std::clamp(static_cast<size_t>(std::min(bytes, static_cast<double>(most))), std::min(kLeast, most), most);
}

bool RailLink::has_room(int rank, size_t bytes) const {
    // Bounds what tiny chunks, which the window in bytes hardly feels, cost at the receiver.
    constexpr uint32_t kMaxChunks = 512;
    const Side &side = sides_[rank];
    if (load_.full(side.open_bytes, open_bytes_, bytes))
        return false;
    return side.open_chunks == 0 || (side.open_bytes + bytes <= window(rank) && side.open_chunks < kMaxChunks);
}

SendResult RailLink::post(int peer, const ChunkHeader &header, const void *data, bool soon) {
    auto lock = line_->lock();
    Target &target = *sides_[peer].target;
    Failover &failover = line_->failover();
    const bool up = target.standing == Standing::up;
    if (!up && !failover.relays(comm_id_, target.process))
        return SendResult::failed;
    if (failover.blocked(comm_id_, target.process))
        return SendResult::busy;
    if (!up)
        return failover.relay().send(target.process, *this, peer, header, data);
    return target.peer->rail->send(*target.peer, *this, peer, header, data, soon);
}

void RailLink::flush() {
    auto lock = line_->lock();
    line_->flush();
}

bool RailLink::receive(int peer, Arrival &arrival) {
    auto lock = line_->lock();
    Inbound *chunk = sides_[peer].inbox.take_first();
    if (chunk == nullptr)
        return false;
    chunk->handed = true;
    ++chunk->peer->handed;
    chunk->peer->reader = this;
    held_.append(chunk);
    arrival.header = chunk->header;
    arrival.peer = peer;
    arrival.data = chunk->data;
    arrival.token = reinterpret_cast<uint64_t>(chunk);
    return true;
}

void RailLink::release(const Arrival &arrival) {
    auto lock = line_->lock();
    auto *chunk = reinterpret_cast<Inbound *>(arrival.token);
    held_.remove(chunk);
    chunk->peer->rail->release(chunk);
}

bool RailLink::completed(Completion &completion) {
    auto lock = line_->lock();
    if (!relayed_.empty()) {
        completion = relayed_.back();
        relayed_.pop_back();
        return true;
    }
    Outgoing *chunk = take_finished();
    if (chunk == nullptr)
        return false;
    completion.header = chunk->wire.header;
    completion.peer = chunk->rank;
    chunk->peer->rail->collected(chunk);
    return true;
}

bool RailLink::progress() {
    auto lock = line_->lock();
    const bool moved = line_->progress(false);
    if (paced_ != 0)
        polled_ns_ = now_ns();
    line_->failover().turn();
    return moved;
}

/// Chunks that came of them before they ended, and were not taken, are given back too.
void RailLink::ended(int peer, uint64_t sequence) {
    auto lock = line_->lock();
    if (peer >= 0)
        sides_[peer].ended = sequence;
    else
        ended_ = sequence;
    for (Side &side : sides_) {
        for (Inbound *chunk = side.inbox.first(); chunk != nullptr;) {
            Inbound *next = chunk->next;
            if (ended(*chunk)) {
                side.inbox.remove(chunk);
                chunk->peer->rail->release(chunk);
            } else if (side.ascending) {
                break;  // a peer may be hundreds of operations ahead
            }
            chunk = next;
        }
    }
}

bool RailLink::ended(const Inbound &chunk) const {
    const uint64_t sequence = chunk.header.sequence;
    return sequence <= ((sequence & kPairwise) != 0 ? sides_[chunk.rank].ended : ended_) && sequence != 0;
}

void RailLink::tell(int peer, uint16_t links) {
    auto lock = line_->lock();
    const Target *target = sides_[peer].target;
    if (target != nullptr && target->peer != nullptr)
        target->peer->credit = comm_id_ << 16 | links;
}

/// The credit may be for another communicator of the same two processes, and says nothing of this one's links then.
uint16_t RailLink::told(int peer) const {
    auto lock = line_->lock();
    const Target *target = sides_[peer].target;
    const uint32_t credit = target != nullptr && target->peer != nullptr ? target->peer->told : 0;
    return (credit ^ comm_id_ << 16) >> 16 == 0 ? static_cast<uint16_t>(credit) : 0;
}

size_t RailLink::outstanding() const {
    auto lock = line_->lock();
    return outstanding_ + astray_;
}

size_t RailLink::unacknowledged(int peer) const {
    auto lock = line_->lock();
    return sides_[peer].paced_bytes;
}

LinkCounters RailLink::counters(int peer) const {
    auto lock = line_->lock();
    return sides_[peer].counters;
}

bool RailLink::take_counted(std::vector<int> &peers) {
    auto lock = line_->lock();
    counted_.take(peers);
    return true;
}

/// Another thread's progress may count meanwhile.
LinkCounters RailLink::timed() const {
    auto lock = line_->lock();
    return total_;
}

LinkState RailLink::state(int peer) const {
    auto lock = line_->lock();
    const Target &target = *sides_[peer].target;
    const bool carries = target.standing == Standing::up || line_->failover().relays(comm_id_, target.process);
    return carries ? LinkState::up : LinkState::lost;
}

Status RailLink::error(int peer) const {
    auto lock = line_->lock();
    if (!reaches(peer))
        return fail(Fault::no_link, "rail {} does not reach rank {}", name(), peer);
    return line_->failover().error(comm_id_, *sides_[peer].target, peer, deadline_ns_);
}

int RailLink::rank_of(const Peer &peer) const {
    bool known = peer.process >= 0 && static_cast<size_t>(peer.process) < rank_of_process_.size();
    return known ? rank_of_process_[peer.process] : -1;
}

bool RailLink::has_more(const Peer &peer) const {
    const int rank = rank_of(peer);
    return rank >= 0 && !sides_[rank].inbox.empty();
}

bool RailLink::serves(int process) const {
    return process >= 0 && static_cast<size_t>(process) < rank_of_process_.size() && rank_of_process_[process] >= 0;
}

void RailLink::relayed(const ChunkHeader &header, int rank, bool collect) {
    --astray_;
    if (collect)
        relayed_.push_back({header, rank});
}

void RailLink::arrived(Inbound *chunk) {
    Side &side = sides_[chunk->rank];
    if (const Inbound *last = side.inbox.last(); last != nullptr) {
        const uint64_t before = last->header.sequence;
        const uint64_t sequence = chunk->header.sequence;
        side.ascending = side.ascending && before <= sequence && ((before ^ sequence) & kPairwise) == 0;
    } else {
        side.ascending = true;
    }
    side.inbox.append(chunk);
}

void RailLink::started(const Outgoing &chunk) {
    Side &side = sides_[chunk.rank];
    const uint32_t bytes = chunk.wire.header.bytes;
    ++outstanding_;
    ++side.open_chunks;
    side.open_bytes += bytes;
    open_bytes_ += bytes;
    load_.add(bytes);
    if (!paced(chunk)) {
        // Its acknowledgement may come long after the operation, whose bytes are asked for when it ends.
        side.counters.bytes += bytes;
        side.counters.untimed_bytes += bytes;
        ++side.counters.chunks;
        return;
    }
    if (side.paced_chunks == 0) {
        side.busy_since = now_ns();
        side.pace.begun(side.busy_since);
    }
    if (paced_ == 0)
        busy_since_ = now_ns();
    side.paced_bytes += bytes;
    ++side.paced_chunks;
    ++paced_;
}

void RailLink::ended(const Outgoing &chunk) {
    --outstanding_;
    Side &side = sides_[chunk.rank];
    --side.open_chunks;
    side.open_bytes -= chunk.wire.header.bytes;
    open_bytes_ -= chunk.wire.header.bytes;
    load_.remove(chunk.wire.header.bytes);
    if (!paced(chunk))
        return;
    side.paced_bytes -= chunk.wire.header.bytes;
    --side.paced_chunks;
    --paced_;
}

void RailLink::withdrawn(const Outgoing &chunk) {
    ended(chunk);
    if (paced(chunk))
        return;
    LinkCounters &counters = sides_[chunk.rank].counters;
    counters.bytes -= chunk.wire.header.bytes;
    counters.untimed_bytes -= chunk.wire.header.bytes;
    --counters.chunks;
}

void RailLink::delivered(const Outgoing &chunk, int64_t now) {
    ended(chunk);
    if (!paced(chunk))
        return;
    Side &side = sides_[chunk.rank];
    const uint32_t bytes = chunk.wire.header.bytes;
    counted_.note(chunk.rank);
    side.counters.bytes += bytes;
    ++side.counters.chunks;
    side.pace.delivered(bytes, now, side.paced_bytes);
    // `now` was read when the acknowledgements came in, which may be before the send that a late callback ends.
    if (now > side.busy_since) {
        side.counters.busy_ns += static_cast<uint64_t>(now - side.busy_since);
        side.busy_since = now;
    }
    total_.bytes += bytes;
    ++total_.chunks;
    if (now > busy_since_) {
        total_.busy_ns += static_cast<uint64_t>(now - busy_since_);
        busy_since_ = now;
    }
}

void RailLink::finished(Outgoing *chunk) {
    if (chunk->resent)
        --astray_;
    if (chunk->copy != nullptr)
        return;
    chunk->next = nullptr;
    (finished_last_ != nullptr ? finished_last_->next : finished_first_) = chunk;
    finished_last_ = chunk;
}

Inbound *RailLink::take_inbound() {
    if (Inbound *chunk = held_.take_first())
        return chunk;
    for (Side &side : sides_)
        if (Inbound *chunk = side.inbox.take_first())
            return chunk;
    return nullptr;
}

Outgoing *RailLink::take_finished() {
    Outgoing *chunk = finished_first_;
    if (chunk == nullptr)
        return nullptr;
    finished_first_ = chunk->next;
    if (finished_first_ == nullptr)
        finished_last_ = nullptr;
    return chunk;
}

}  // namespace flx::ucx
