#include "runtime/link/lending.h"

#include <algorithm>

#include "runtime/base/clock.h"

namespace flx {

namespace {
/// An owner of whom nothing has moved for so long does not use the rail.
constexpr int64_t kStillNs = 20'000'000;
/// How often arrivals are noted, and credits made.
constexpr int64_t kNoteNs = 1'000'000;
/// The part of a rail's pace that is left while its owner uses it: so little that other links end sooner, but not 0,
/// which means unknown.
constexpr double kLeftOver = 1e-3;
/// The pace of a rail of which nothing is known, bytes/ns: enough to be tried.
constexpr double kUnknownPace = 0.01;
}  // namespace

size_t Lending::bytes(int hosts) {
    const size_t times = sizeof(std::atomic<int64_t>) * kMaxLinks * static_cast<size_t>(hosts);
    return kMaxLinks * sizeof(LedgerLine) + (times + 63) / 64 * 64;
}

Lending::Lending(std::byte *ledger, int rank, std::vector<Member> members, int hosts, uint32_t most_chunks)
    : lines_(reinterpret_cast<LedgerLine *>(ledger)),
      arrivals_(reinterpret_cast<std::atomic<int64_t> *>(ledger + kMaxLinks * sizeof(LedgerLine))),
      rank_(rank),
      members_(std::move(members)),
      hosts_(hosts),
      most_chunks_(most_chunks),
      heard_(members_.size()),
      inward_(static_cast<size_t>(hosts)) {
    for (int link = 0; link < kMaxLinks; ++link)
        if (owns(link))
            lines_[link].owners.fetch_add(1, std::memory_order_relaxed);
}

Lending::~Lending() {
    leave();
    for (int link = 0; link < kMaxLinks; ++link)
        if (owns(link))
            lines_[link].owners.fetch_sub(1, std::memory_order_relaxed);
}

/// All accesses are relaxed: a borrower that sees something a moment late sends a chunk more, and no data goes through
/// the ledger.
void Lending::enter(uint64_t bytes) {
    entered_ = true;
    left_ += bytes;
    for (int link = 0; link < kMaxLinks && bytes != 0; ++link) {
        if (!owns(link))
            continue;
        owner_moved(link);
        lines_[link].backlog.fetch_add(bytes, std::memory_order_relaxed);
    }
}

void Lending::leave() {
    done(left_);
    entered_ = false;
}

/// Notes that so much less is to be sent.
void Lending::done(uint64_t bytes) {
    bytes = std::min(bytes, left_);
    left_ -= bytes;
    for (int link = 0; link < kMaxLinks && bytes != 0; ++link)
        if (owns(link))
            lines_[link].backlog.fetch_sub(bytes, std::memory_order_relaxed);
}

void Lending::owner_moved(int link) {
    lines_[link].moved_ns.store(now_ns(), std::memory_order_relaxed);
}

bool Lending::owner_is_busy(int link) const {
    const LedgerLine &line = lines_[link];
    return line.backlog.load(std::memory_order_relaxed) != 0 &&
           now_ns() - line.moved_ns.load(std::memory_order_relaxed) < kStillNs;
}

bool Lending::receiver_is_busy(int link, int peer) const {
    const Told &told = heard_[peer];
    return (told.links >> link & 1) != 0 && now_ns() - told.at_ns < kStillNs;
}

bool Lending::reserve(int link) {
    std::atomic<uint64_t> &borrowed = lines_[link].borrowed;
    if (borrowed.fetch_add(1, std::memory_order_relaxed) < most_chunks_)
        return true;
    borrowed.fetch_sub(1, std::memory_order_relaxed);
    return false;
}

void Lending::arrived(int link, int peer) {
    if (!has_thirds() || !is_far(peer) || (members_[peer].owns >> link & 1) == 0)
        return;
    std::atomic<int64_t> &last = arrivals_[link * hosts_ + members_[peer].host];
    const int64_t now = now_ns();
    if (now - last.load(std::memory_order_relaxed) > kNoteNs)
        last.store(now, std::memory_order_relaxed);
}

/// The rails on which owners send to this host from hosts other than this peer's, which knows more of its own host.
uint16_t Lending::busy_inwards(int peer) {
    const int host = members_[peer].host;
    Told &told = inward_[host];
    const int64_t now = now_ns();
    if (now - told.at_ns < kNoteNs)
        return told.links;
    told = {0, now};
    for (int link = 0; link < kMaxLinks; ++link)
        for (int other = 0; other < hosts_; ++other)
            if (other != host && now - arrivals_[link * hosts_ + other].load(std::memory_order_relaxed) < kStillNs)
                told.links |= static_cast<uint16_t>(1U << link);
    return told.links;
}

void Lending::told(int peer, uint16_t links) {
    heard_[peer] = {links, links != 0 ? now_ns() : 0};
}

LentLink::LentLink(std::unique_ptr<Link> rail, Lending &lending, int index, Believed believed)
    : rail_(std::move(rail)), lending_(lending), index_(index), believed_(believed) {
    if (lending_.owns(index_))
        lending_.own_link_ = this;
}

LentLink::~LentLink() {
    leave();
    if (lending_.own_link_ == this)
        lending_.own_link_ = nullptr;
}

void LentLink::leave() {
    lending_.line(index_).borrowed.fetch_sub(borrowed_, std::memory_order_relaxed);
    borrowed_ = 0;
}

/// False for a rail that nobody owns, which is everyone's; and where this rank's own rail does not carry to `peer`, so
/// that all rails are everyone's.
bool LentLink::borrows(int peer) const {
    if (!lending_.entered() || lending_.owns(index_) || !lending_.is_far(peer) ||
        lending_.line(index_).owners.load(std::memory_order_relaxed) == 0)
        return false;
    const Link *own = lending_.own_link_;
    return own != nullptr && own->reaches(peer) && own->state(peer) == LinkState::up;
}

bool LentLink::in_use(int peer) const {
    return lending_.owner_is_busy(index_) || lending_.receiver_is_busy(index_, peer);
}

Pace LentLink::pace(int peer) const {
    Pace pace = rail_->pace(peer);
    if (!lending_.entered() || !lending_.is_far(peer))
        return pace;
    if (pace.bytes_per_ns <= 0)
        pace.bytes_per_ns = believed_.bytes_per_ns > 0 ? believed_.bytes_per_ns : kUnknownPace;
    if (pace.round_trip_ns <= 0)
        pace.round_trip_ns = 2 * believed_.latency_ns;
    if (borrows(peer) && in_use(peer))
        pace.bytes_per_ns *= kLeftOver;
    return pace;
}

SendResult LentLink::post(int peer, const ChunkHeader &header, const void *data, bool soon) {
    const bool governed = header.bytes > Lending::kFreeBytes && borrows(peer);
    LedgerLine &line = lending_.line(index_);
    if (governed && in_use(peer)) {
        line.refused.fetch_add(1, std::memory_order_relaxed);
        return SendResult::busy;
    }
    if (governed && !lending_.reserve(index_))
        return SendResult::busy;
    const SendResult result =
        soon && !governed ? rail_->send_soon(peer, header, data) : rail_->send(peer, header, data);
    if (governed) {
        if (result == SendResult::in_flight)
            ++borrowed_;
        else
            line.borrowed.fetch_sub(1, std::memory_order_relaxed);
    }
    if (!lending_.entered() || result == SendResult::busy || result == SendResult::failed)
        return result;
    if (governed)
        line.lent.fetch_add(1, std::memory_order_relaxed);
    if (lending_.owns(index_))
        lending_.owner_moved(index_);
    if (result == SendResult::copied && lending_.is_far(peer))
        lending_.done(header.bytes);
    return result;
}

bool LentLink::completed(Completion &completion) {
    if (!rail_->completed(completion))
        return false;
    if (!lending_.entered())
        return true;
    if (lending_.owns(index_))
        lending_.owner_moved(index_);
    if (!lending_.is_far(completion.peer))
        return true;
    lending_.done(completion.header.bytes);
    if (borrowed_ != 0 && completion.header.bytes > Lending::kFreeBytes) {
        --borrowed_;
        lending_.line(index_).borrowed.fetch_sub(1, std::memory_order_relaxed);
    }
    if (lending_.has_thirds())
        lending_.told(completion.peer, rail_->told(completion.peer));
    return true;
}

bool LentLink::receive(int peer, Arrival &arrival) {
    if (!rail_->receive(peer, arrival))
        return false;
    if (lending_.entered() && arrival.header.bytes > Lending::kFreeBytes)
        lending_.arrived(index_, peer);
    return true;
}

void LentLink::release(const Arrival &arrival) {
    if (lending_.entered() && lending_.has_thirds() && lending_.is_far(arrival.peer))
        rail_->tell(arrival.peer, lending_.busy_inwards(arrival.peer));
    rail_->release(arrival);
}

}  // namespace flx
