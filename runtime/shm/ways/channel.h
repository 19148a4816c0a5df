/// \file channel.h
/// The shared-memory link: for each ordered pair of ranks of a host, a ring of slots in the communicator's segment.
///
/// Chunks of a few bytes go through a ring of their own, which is deeper: their slot, control words and all, is one or
/// two cache lines, and slots are given back many at a time, so that a sender need not read what its receiver writes
/// each time. Both rings together keep the order: a message carries its number among all of its pair of ranks.
///
/// The sender copies a chunk into the next slot; the receiver reads it where it lies (and reduces straight from it),
/// then frees the slot, in any order. Slots belong to the communicator, so two communicators used by two threads share
/// nothing and need no lock.
///
/// Where the memory is late (late_memory.h), a ring is reserved by its sender before the first message in it, and a
/// flag tells the receiver that it may look there.
///
/// Of a message that is exposed a slot only says where it lies: the receiver reads it there through the kernel, and
/// frees the slot when it has it. A sender whose communicator breaks withdraws what it exposed before its caller may
/// use that memory again; a receiver looks for that after it has read.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/link/counted_peers.h"
#include "runtime/link/link.h"
#include "runtime/shm/memory/late_memory.h"
#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/peer_memory.h"

namespace flx::shm {

/// How a host's ranks cut their segment into rings. Equal on all of them.
struct ChannelShape {
    uint32_t ranks = 0;
    uint32_t slots = 0;       ///< per ordered pair
    uint32_t slot_bytes = 0;  ///< payload
    uint32_t shorts = 64;     ///< short slots per ordered pair: a power of two, 8 to 64
    /// Within `bytes_per_rank` where that leaves each pair two slots of kMaxCellBytes, else those.
    static ChannelShape fit(uint32_t ranks, size_t bytes_per_rank);
    [[nodiscard]] size_t bytes() const;
    // Sizes for one ordered pair.
    [[nodiscard]] size_t shorts_bytes() const;
    [[nodiscard]] size_t ring_bytes() const;
    /// Of the flags, before all rings.
    [[nodiscard]] size_t flags_bytes() const;
    /// What each rank sends, from the beginning of that memory.
    [[nodiscard]] Area area(bool late = false) const;
};

class Channel final : public Link {
  public:
    /// `memory`: shape.bytes() of the segment, zeroed, aligned to a cache line, living as long as the link.
    /// `local_of[r]`: index on this host of rank r of the communicator, -1 for ranks elsewhere.
    /// `late`: of the memory only the flags are reserved, and this reserves more, living as long; null: all is.
    Channel(std::byte *memory, const ChannelShape &shape, int local_rank, std::vector<int> local_of,
            LateMemory *late = nullptr);

    /// From now on long messages are exposed. `memory`: of the same communicator, longer-lived; null: no more.
    void fetch_through(PeerMemory *memory) { memory_ = memory; }
    /// Exposed messages cannot be fetched any more.
    void withdraw();

    [[nodiscard]] const std::string &name() const override { return name_; }
    [[nodiscard]] LinkKind kind() const override { return LinkKind::shm; }
    [[nodiscard]] bool reaches(int peer) const override;
    [[nodiscard]] size_t max_chunk() const override { return shape_.slot_bytes; }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override;

    SendResult send(int peer, const ChunkHeader &header, const void *data) override;
    bool receive(int peer, Arrival &arrival) override;
    void release(const Arrival &arrival) override;
    [[nodiscard]] size_t max_exposed(int peer, const void *data, size_t bytes) override;
    SendResult expose(int peer, const ChunkHeader &header, const void *data) override;
    Status fetch(const Arrival &arrival, size_t offset, void *to, size_t bytes) override;
    bool completed(Completion &completion) override;
    bool progress() override { return false; }
    [[nodiscard]] size_t outstanding() const override { return exposed_.size(); }
    [[nodiscard]] size_t unacknowledged(int) const override { return 0; }
    [[nodiscard]] LinkCounters counters(int peer) const override { return peers_[peer].counters; }
    bool take_counted(std::vector<int> &peers) override {
        counted_.take(peers);
        return true;
    }
    /// There was no room for a late ring.
    [[nodiscard]] Status error(int) const override { return error_; }

  private:
    /// What each side keeps of a ring of short slots.
    struct ShortOut {
        uint64_t sent = 0;
        uint64_t freed = 0;  ///< as the receiver last said
    };
    struct ShortIn {
        uint64_t received = 0;
        uint64_t freed = 0;    ///< all before this one
        uint64_t later = 0;    ///< freed out of turn: a bit each, by place
        uint64_t told = 0;     ///< the last number that the sender can see
        uint64_t look_at = 0;  ///< the message from which on fetch_ahead looks again
    };
    struct Short;
    struct Shorts;

    /// One slot's control words, the payload behind them. Sender and receiver each write a line of their own.
    struct Slot {
        alignas(64) std::atomic<uint64_t> filled;  ///< 1 + number of the message in it, among all of the pair
        ChunkHeader header;
        uint64_t address;                         ///< of an exposed chunk; 0: the payload is here
        std::atomic<uint32_t> withdrawn;          ///< not to be used, whatever was read
        alignas(64) std::atomic<uint64_t> freed;  ///< 1 + number, among those of slots, of the last one taken out
    };
    static_assert(sizeof(Slot) == 128);

    struct Peer {
        int local = -1;
        std::byte *out = nullptr;  ///< ring from this rank to the peer
        std::byte *in = nullptr;
        Shorts *shorts_out = nullptr;
        Shorts *shorts_in = nullptr;
        std::atomic<uint8_t> *told_out = nullptr;  ///< which rings to the peer there are: a bit each
        std::atomic<uint8_t> *told_in = nullptr;
        uint8_t there_out = 0;  ///< likewise, as this rank knows
        uint8_t there_in = 0;
        uint64_t sent = 0;  ///< messages, by slots and short ones
        uint64_t received = 0;
        uint64_t slots_sent = 0;
        uint64_t slots_received = 0;
        ShortOut short_out;
        ShortIn short_in;
        LinkCounters counters;
    };
    struct Exposed {
        Completion chunk;
        Slot *slot;
        uint64_t number;  ///< as Slot::freed
        int64_t began_ns;
    };
    friend struct ChannelShape;

    /// A chunk was sent.
    void count(Peer &peer, size_t bytes);
    /// Reserves a ring to the peer where that was not done yet; false: there is no room.
    [[nodiscard]] bool make_room(Peer &peer, uint8_t ring);
    /// Whether there is a ring from the peer.
    [[nodiscard]] static bool is_there(Peer &peer, uint8_t ring);
    [[nodiscard]] Slot *slot(std::byte *ring, uint64_t number) const;
    /// The next slot to `peer`, or null: it is not free yet.
    [[nodiscard]] Slot *free_slot(const Peer &peer) const;
    SendResult send_short(Peer &peer, const ChunkHeader &header, const void *data);
    bool receive_short(int peer_rank, Arrival &arrival);
    void prepare_later(Peer &peer, size_t bytes) const;
    void fetch_ahead(Peer &peer, size_t bytes) const;
    void release_short(Peer &peer, uint64_t number) const;

    std::string name_ = "shm";
    ChannelShape shape_;
    std::vector<Peer> peers_;
    CountedPeers counted_;
    LateMemory *late_;
    Status error_;
    PeerMemory *memory_ = nullptr;
    std::vector<Exposed> exposed_;
};

}  // namespace flx::shm
