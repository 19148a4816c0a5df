/// \file lending.h
/// Ranks of one host lend each other their rails. Each rank owns one; a rail serves its owner first, and others as long
/// as the owner has nothing to send (owner-first borrowing as in FuseLink: "Fuselink: Enabling Efficient GPU
/// Communication over Multiple NICs", OSDI 2025). Only exchanges are carried so, but for alltoalls: in
/// collectives all ranks have alike much to do, and shares that controllers learn.
///
/// What ranks of a host must know of each other stands in a ledger in the host's shared memory. It is looked at before
/// each chunk on a borrowed rail, so a busy owner is noticed at the next chunk, and what all borrowers together may
/// have under way there is capped, so little is ahead of the owner. What ranks of other hosts must know comes with
/// acknowledgements, as credits do: on which of the receiver's rails owners of third hosts send to it.
///
/// Everything begins on the owner's rail; a borrowed one only takes cells that wait there. So a borrower that is
/// refused finds the link busy and very slow, no more, and nothing ever waits for a rail to be lent.
///
/// An owner whose chunks stand still does not count as busy: its receiver may be late because it still needs what a
/// borrower has for it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/link/link.h"

namespace flx {

/// One rail of a host, in shared memory that was zero at first.
struct LedgerLine {
    alignas(64) std::atomic<uint32_t> owners;    ///< ranks of the host that own it
    std::atomic<uint64_t> backlog;               ///< bytes for other hosts that owners have not had acknowledged
    std::atomic<int64_t> moved_ns;               ///< when a chunk of an owner was last taken or acknowledged
    alignas(64) std::atomic<uint64_t> borrowed;  ///< chunks of borrowers under way
    std::atomic<uint64_t> lent;                  ///< chunks that borrowers have sent
    std::atomic<uint64_t> refused;               ///< chunks that borrowers did not send because of an owner
};
static_assert(sizeof(LedgerLine) == 128);

/// What one rank of a communicator knows of the rails that it may borrow. Used by one thread at a time; other ranks
/// are seen through the ledger.
class Lending {
  public:
    struct Member {
        int host = 0;
        uint32_t owns = 0;  ///< links, as a mask
    };
    /// Chunks up to this may always go; larger ones only as long as the owner has nothing to send.
    static constexpr size_t kFreeBytes = 8 << 10;

    [[nodiscard]] static size_t bytes(int hosts);
    /// `ledger`: bytes(hosts) that were zero, shared by the ranks of this host; outlives the object. `members`: by
    /// rank. `most_chunks`: that all borrowers of a rail together may have under way on it.
    Lending(std::byte *ledger, int rank, std::vector<Member> members, int hosts, uint32_t most_chunks);
    ~Lending();
    Lending(const Lending &) = delete;
    Lending &operator=(const Lending &) = delete;

    /// An exchange begins in which this rank has so many bytes for ranks of other hosts; others may be under way.
    void enter(uint64_t bytes);
    /// Called when all exchanges have ended: this rank needs no rail, and looks at none, until the next.
    void leave();
    [[nodiscard]] bool entered() const { return entered_; }
    /// Whether a chunk to `peer` on `link` is subject to the owner of the link.
    [[nodiscard]] bool is_far(int peer) const { return members_[peer].host != members_[rank_].host; }
    [[nodiscard]] uint32_t own_links() const { return members_[rank_].owns; }
    [[nodiscard]] LedgerLine &line(int link) { return lines_[link]; }

  private:
    friend class LentLink;
    [[nodiscard]] bool owns(int link) const { return (own_links() >> link & 1) != 0; }
    [[nodiscard]] bool owner_is_busy(int link) const;
    [[nodiscard]] bool receiver_is_busy(int link, int peer) const;
    bool reserve(int link);
    void done(uint64_t bytes);
    void owner_moved(int link);
    // Credits. With two hosts the sender's ledger says it all.
    [[nodiscard]] bool has_thirds() const { return hosts_ > 2; }
    void arrived(int link, int peer);
    [[nodiscard]] uint16_t busy_inwards(int peer);
    void told(int peer, uint16_t links);

    struct Told {
        uint16_t links = 0;
        int64_t at_ns = 0;
    };
    LedgerLine *lines_;
    std::atomic<int64_t> *arrivals_;  // [link · hosts + host]: when a chunk came on a rail that its sender owns
    const int rank_;
    const std::vector<Member> members_;
    const int hosts_;
    const uint32_t most_chunks_;
    const class LentLink *own_link_ = nullptr;
    bool entered_ = false;
    uint64_t left_ = 0;         // of what was announced in enter()
    std::vector<Told> heard_;   // by peer: rails of its host on which others' owners send
    std::vector<Told> inward_;  // by host: rails of this host that ranks there are to leave alone
};

/// A rail as one rank may use it: its own, or a borrowed one.
class LentLink final : public Link {
  public:
    /// What a probe found; counts until the rail has shown its pace.
    struct Believed {
        double bytes_per_ns = 0;  ///< 0: not known
        double latency_ns = 0;
    };
    LentLink(std::unique_ptr<Link> rail, Lending &lending, int index, Believed believed);
    ~LentLink() override;

    /// The exchange has ended: nothing of it is under way here.
    void leave();

    [[nodiscard]] const std::string &name() const override { return rail_->name(); }
    [[nodiscard]] LinkKind kind() const override { return rail_->kind(); }
    [[nodiscard]] bool reaches(int peer) const override { return rail_->reaches(peer); }
    [[nodiscard]] size_t max_chunk() const override { return rail_->max_chunk(); }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override { return rail_->good_chunk(bytes); }
    [[nodiscard]] size_t good_chunk_to(int peer, size_t bytes) const override {
        return rail_->good_chunk_to(peer, bytes);
    }
    SendResult send(int peer, const ChunkHeader &header, const void *data) override {
        return post(peer, header, data, false);
    }
    SendResult send_soon(int peer, const ChunkHeader &header, const void *data) override {
        return post(peer, header, data, true);
    }
    void flush() override { rail_->flush(); }
    bool receive(int peer, Arrival &arrival) override;
    void release(const Arrival &arrival) override;
    bool completed(Completion &completion) override;
    void ended(int peer, uint64_t sequence) override { rail_->ended(peer, sequence); }
    bool progress() override { return rail_->progress(); }
    [[nodiscard]] size_t outstanding() const override { return rail_->outstanding(); }
    [[nodiscard]] size_t unacknowledged(int peer) const override { return rail_->unacknowledged(peer); }
    /// Towards a borrower that would be refused hardly anything: it takes no cells.
    [[nodiscard]] Pace pace(int peer) const override;
    [[nodiscard]] LinkCounters counters(int peer) const override { return rail_->counters(peer); }
    bool take_counted(std::vector<int> &peers) override { return rail_->take_counted(peers); }
    [[nodiscard]] LinkCounters timed() const override { return rail_->timed(); }
    [[nodiscard]] LinkState state(int peer) const override { return rail_->state(peer); }
    [[nodiscard]] Status error(int peer) const override { return rail_->error(peer); }

  private:
    SendResult post(int peer, const ChunkHeader &header, const void *data, bool soon);
    [[nodiscard]] bool borrows(int peer) const;
    [[nodiscard]] bool in_use(int peer) const;

    std::unique_ptr<Link> rail_;
    Lending &lending_;
    const int index_;
    const Believed believed_;
    uint64_t borrowed_ = 0;  // chunks of this rank under way, counted in the ledger
};

}  // namespace flx
