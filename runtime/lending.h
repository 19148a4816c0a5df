/// \file lending.h
/// Ranks of one host lend each other their rails. Each rank owns one; a rail serves its owner first, and others as long
/// as the owner has nothing to send (owner-first borrowing as in FuseLink: "Fuselink: Enabling Efficient GPU
/// Communication over Multiple NICs", OSDI 2025).
///
/// What ranks must know of each other stands in a ledger in the host's shared memory. It is looked at before each chunk
/// on a borrowed rail, so a busy owner is noticed at the next chunk; what a borrower may have under way there is
/// capped, so little is ahead of the owner. A borrower that is refused finds the link busy, no more: it keeps its own
/// rail.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "link.h"

namespace flx {

/// One rail of a host. In shared memory that was zero.
struct LedgerLine {
    alignas(64) std::atomic<uint32_t> owners;    ///< ranks of the host that own it
    std::atomic<uint64_t> backlog;               ///< bytes that owners have unacknowledged or wait to send
    alignas(64) std::atomic<uint64_t> borrowed;  ///< chunks of borrowers under way
    std::atomic<uint64_t> refused;               ///< chunks that borrowers did not send because of an owner
};
static_assert(sizeof(LedgerLine) == 128);

/// A rail as one rank may use it: its own, or a borrowed one.
class LentLink final : public Link {
  public:
    /// `line`: of this rail; outlives the link. `most_chunks`: of a borrower under way.
    LentLink(std::unique_ptr<Link> rail, LedgerLine &line, bool own, int peers, uint32_t most_chunks);
    ~LentLink() override;

    [[nodiscard]] bool own() const { return own_; }
    /// The rank leaves the library: it needs nothing on this rail, and does not look at it, until it calls again.
    void leave();

    [[nodiscard]] const std::string &name() const override { return rail_->name(); }
    [[nodiscard]] LinkKind kind() const override { return rail_->kind(); }
    [[nodiscard]] bool reaches(int peer) const override { return rail_->reaches(peer); }
    [[nodiscard]] size_t max_chunk() const override { return rail_->max_chunk(); }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override { return rail_->good_chunk(bytes); }
    SendResult send(int peer, const ChunkHeader &header, const void *data) override;
    bool receive(int peer, Arrival &arrival) override { return rail_->receive(peer, arrival); }
    void release(const Arrival &arrival) override { rail_->release(arrival); }
    bool completed(Completion &completion) override { return rail_->completed(completion); }
    bool progress() override;
    [[nodiscard]] size_t outstanding() const override { return rail_->outstanding(); }
    [[nodiscard]] size_t unacknowledged(int peer) const override { return rail_->unacknowledged(peer); }
    [[nodiscard]] LinkCounters counters(int peer) const override { return rail_->counters(peer); }
    [[nodiscard]] LinkState state(int peer) const override { return rail_->state(peer); }
    [[nodiscard]] Status error(int peer) const override { return rail_->error(peer); }

  private:
    void publish();
    void publish_backlog(uint64_t bytes);

    std::unique_ptr<Link> rail_;
    LedgerLine &line_;
    const bool own_;
    const int peers_;
    const uint32_t most_chunks_;
    uint64_t shown_ = 0;    // what this rank has added to backlog or borrowed
    uint64_t waiting_ = 0;  // bytes of the chunk that found no room
    size_t seen_ = 0;       // chunks outstanding when the backlog was counted last
};

}  // namespace flx
