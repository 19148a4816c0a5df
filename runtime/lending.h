/// \file lending.h
/// Ranks of one host lend each other their rails. Each rank owns one; a rail serves its owner first, and others as long
/// as the owner has nothing to send (owner-first borrowing as in FuseLink: "Fuselink: Enabling Efficient GPU
/// Communication over Multiple NICs", OSDI 2025).
///
/// What ranks must know of each other stands in a ledger in the host's shared memory. It is looked at before each chunk
/// on a borrowed rail, so a busy owner is noticed at the next chunk; what a borrower may have under way there is
/// capped, so little is ahead of the owner. A borrower that is refused finds the link busy and very slow, no more: the
/// executor moves what it had for that link to others.
///
/// An owner whose chunks stand still does not count as busy: its receiver may be late because it still needs what a
/// borrower has for it.
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
    std::atomic<int64_t> moved_ns;               ///< when a chunk of an owner was last taken or acknowledged
    alignas(64) std::atomic<uint64_t> borrowed;  ///< chunks of borrowers under way
    std::atomic<uint64_t> refused;               ///< chunks that borrowers did not send because of an owner
};
static_assert(sizeof(LedgerLine) == 128);

/// A rail as one rank may use it: its own, or a borrowed one.
class LentLink final : public Link {
  public:
    /// `line`: of this rail; outlives the link. `most_chunks`: of a borrower under way.
    LentLink(std::unique_ptr<Link> rail, LedgerLine &line, bool own, uint32_t most_chunks);
    ~LentLink() override;

    /// From now on the ledger counts; before, a rail is everyone's.
    void begin();
    /// The rank leaves the library: it needs nothing on this rail, and does not look at it, until it calls again.
    void leave();

    [[nodiscard]] const std::string &name() const override { return rail_->name(); }
    [[nodiscard]] LinkKind kind() const override { return rail_->kind(); }
    [[nodiscard]] bool reaches(int peer) const override { return rail_->reaches(peer); }
    [[nodiscard]] size_t max_chunk() const override { return rail_->max_chunk(); }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override { return rail_->good_chunk(bytes); }
    [[nodiscard]] size_t good_chunk_to(int peer, size_t bytes) const override {
        return rail_->good_chunk_to(peer, bytes);
    }
    SendResult send(int peer, const ChunkHeader &header, const void *data) override;
    bool receive(int peer, Arrival &arrival) override { return rail_->receive(peer, arrival); }
    void release(const Arrival &arrival) override { rail_->release(arrival); }
    bool completed(Completion &completion) override;
    void ended(int peer, uint64_t sequence) override { rail_->ended(peer, sequence); }
    bool progress() override { return rail_->progress(); }
    [[nodiscard]] size_t outstanding() const override { return rail_->outstanding(); }
    [[nodiscard]] size_t unacknowledged(int peer) const override { return rail_->unacknowledged(peer); }
    /// Towards a borrower that would be refused hardly anything: its unsent cells go to other links.
    [[nodiscard]] Pace pace(int peer) const override;
    [[nodiscard]] LinkCounters counters(int peer) const override { return rail_->counters(peer); }
    [[nodiscard]] LinkState state(int peer) const override { return rail_->state(peer); }
    [[nodiscard]] Status error(int peer) const override { return rail_->error(peer); }

  private:
    [[nodiscard]] bool borrowed() const;
    [[nodiscard]] bool owner_is_busy() const;
    void publish();
    void moved();

    std::unique_ptr<Link> rail_;
    LedgerLine &line_;
    const bool own_;
    const uint32_t most_chunks_;
    bool begun_ = false;
    uint64_t chunks_ = 0;  // in flight
    uint64_t bytes_ = 0;
    uint64_t waiting_ = 0;  // bytes of the chunk that found no room
    uint64_t shown_ = 0;    // what this rank has added to backlog or borrowed
};

}  // namespace flx
