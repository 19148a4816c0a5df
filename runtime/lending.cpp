#include "lending.h"

namespace flx {

LentLink::LentLink(std::unique_ptr<Link> rail, LedgerLine &line, bool own, int peers, uint32_t most_chunks)
    : rail_(std::move(rail)), line_(line), own_(own), peers_(peers), most_chunks_(most_chunks) {
    if (own_)
        line_.owners.fetch_add(1, std::memory_order_relaxed);
}

LentLink::~LentLink() {
    leave();
    if (own_)
        line_.owners.fetch_sub(1, std::memory_order_relaxed);
}

SendResult LentLink::send(int peer, const ChunkHeader &header, const void *data) {
    if (own_) {
        const SendResult result = rail_->send(peer, header, data);
        waiting_ = result == SendResult::busy ? header.bytes : 0;
        publish();
        return result;
    }
    // A rail that nobody owns is everyone's.
    const bool borrowed = line_.owners.load(std::memory_order_relaxed) != 0;
    if (borrowed && line_.backlog.load(std::memory_order_relaxed) != 0) {
        line_.refused.fetch_add(1, std::memory_order_relaxed);
        return SendResult::busy;
    }
    if (borrowed && rail_->outstanding() >= most_chunks_)
        return SendResult::busy;
    const SendResult result = rail_->send(peer, header, data);
    publish();
    return result;
}

bool LentLink::progress() {
    const bool moved = rail_->progress();
    publish();
    return moved;
}

void LentLink::leave() {
    waiting_ = 0;
    seen_ = 0;
    publish_backlog(0);
}

/// Relaxed: a borrower that sees this a moment late sends a chunk more, and no data goes through the ledger.
void LentLink::publish() {
    const size_t chunks = rail_->outstanding();
    if (!own_) {
        publish_backlog(chunks);
        return;
    }
    if (chunks == seen_ && (shown_ != 0) == (chunks != 0 || waiting_ != 0))
        return;
    seen_ = chunks;
    uint64_t bytes = waiting_;
    for (int peer = 0; chunks != 0 && peer < peers_; ++peer)
        if (rail_->reaches(peer))
            bytes += rail_->unacknowledged(peer);
    publish_backlog(bytes);
}

void LentLink::publish_backlog(uint64_t amount) {
    if (amount == shown_)
        return;
    (own_ ? line_.backlog : line_.borrowed).fetch_add(amount - shown_, std::memory_order_relaxed);
    shown_ = amount;
}

}  // namespace flx
