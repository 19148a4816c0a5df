#include "lending.h"

#include <algorithm>

#include "telemetry.h"

namespace flx {

namespace {
/// An owner that moved nothing for so long has not the rail in use.
constexpr int64_t kStillNs = 20'000'000;
/// Of a rail's pace, while its owner uses it: so little that other links end sooner, and not 0, which is unknown.
constexpr double kLeftOver = 1e-3;
}  // namespace

LentLink::LentLink(std::unique_ptr<Link> rail, LedgerLine &line, bool own, uint32_t most_chunks)
    : rail_(std::move(rail)), line_(line), own_(own), most_chunks_(most_chunks) {}

void LentLink::begin() {
    begun_ = true;
    if (own_)
        line_.owners.fetch_add(1, std::memory_order_relaxed);
}

LentLink::~LentLink() {
    leave();
    if (own_ && begun_)
        line_.owners.fetch_sub(1, std::memory_order_relaxed);
}

/// A rail that nobody owns is everyone's.
bool LentLink::borrowed() const {
    return begun_ && !own_ && line_.owners.load(std::memory_order_relaxed) != 0;
}

bool LentLink::owner_is_busy() const {
    return line_.backlog.load(std::memory_order_relaxed) != 0 &&
           now_ns() - line_.moved_ns.load(std::memory_order_relaxed) < kStillNs;
}

Pace LentLink::pace(int peer) const {
    Pace pace = rail_->pace(peer);
    if (borrowed() && owner_is_busy())
        pace.bytes_per_ns *= kLeftOver;
    return pace;
}

SendResult LentLink::send(int peer, const ChunkHeader &header, const void *data) {
    const bool borrows = borrowed();
    if (borrows && owner_is_busy()) {
        line_.refused.fetch_add(1, std::memory_order_relaxed);
        return SendResult::busy;
    }
    if (borrows && chunks_ >= most_chunks_)
        return SendResult::busy;
    const SendResult result = rail_->send(peer, header, data);
    waiting_ = result == SendResult::busy ? header.bytes : 0;
    if (result == SendResult::in_flight) {
        ++chunks_;
        bytes_ += header.bytes;
        moved();
    }
    publish();
    return result;
}

bool LentLink::completed(Completion &completion) {
    if (!rail_->completed(completion))
        return false;
    // What was sent before this link was there to count it is none of its chunks.
    chunks_ -= chunks_ != 0 ? 1 : 0;
    bytes_ -= std::min<uint64_t>(bytes_, completion.header.bytes);
    moved();
    publish();
    return true;
}

void LentLink::moved() {
    if (own_ && begun_)
        line_.moved_ns.store(now_ns(), std::memory_order_relaxed);
}

void LentLink::leave() {
    chunks_ = 0;
    bytes_ = 0;
    waiting_ = 0;
    publish();
}

/// Relaxed: a borrower that sees this a moment late sends a chunk more, and no data goes through the ledger. Chunks
/// that were copied do not count: nobody is in a hurry to acknowledge them.
void LentLink::publish() {
    const uint64_t amount = own_ ? bytes_ + waiting_ : chunks_;
    if (amount == shown_ || !begun_)
        return;
    (own_ ? line_.backlog : line_.borrowed).fetch_add(amount - shown_, std::memory_order_relaxed);
    shown_ = amount;
}

}  // namespace flx
