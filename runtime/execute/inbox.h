/// \file inbox.h
/// What the executors of one communicator share when several operations are under way: who takes a chunk that came in,
/// and chunks of operations that this rank has not begun. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/link/link.h"

namespace flx {

class Executor;
class Trace;

class Inbox {
  public:
    struct Early {
        Arrival arrival;
        int link;
        std::byte *aside;  ///< memory of our own that it was copied to; null: the link's
    };

    /// Arrivals are copied after nothing was sent or used for `patience_ns`.
    explicit Inbox(int size, int64_t patience_ns = 20'000'000);
    ~Inbox();
    Inbox(const Inbox &) = delete;
    Inbox &operator=(const Inbox &) = delete;

    void join(Executor &executor) { running_.push_back(&executor); }
    void leave(Executor &executor) { std::erase(running_, &executor); }
    [[nodiscard]] const std::vector<Executor *> &running() const { return running_; }

    /// Operations begin in the order of their sequence numbers.
    void begins(uint64_t sequence) { last_sequence_ = sequence > last_sequence_ ? sequence : last_sequence_; }
    /// What an operation has from `peer`, or a message with a number of its pair, begins to be received. The latter are
    /// numbered when they are issued, and one that is part of an operation that waits for others begins after later
    /// ones.
    void receives(int peer, uint64_t sequence) {
        Received &from = received_[static_cast<size_t>(peer)];
        if ((sequence & kPairwise) == 0) {
            if (sequence > from.operation) {
                const uint64_t ahead = sequence - from.operation;
                from.awaited = ahead < kWindow ? from.awaited << ahead : 0;
                from.operation = sequence;
            }
            if (from.operation - sequence < kWindow)
                from.awaited |= uint64_t{1} << (from.operation - sequence);
            return;
        }
        if (sequence <= from.last) [[unlikely]] {
            std::erase(from.skipped, sequence);
            return;
        }
        for (uint64_t skipped = from.last + 1; skipped < sequence; ++skipped)
            from.skipped.push_back(skipped);
        from.last = sequence;
    }
    /// Whether a chunk is of an operation that this rank has not begun.
    [[nodiscard]] bool later(int peer, const ChunkHeader &header) const {
        if ((header.sequence & kPairwise) == 0)
            return header.sequence > last_sequence_;
        const Received &from = received_[static_cast<size_t>(peer)];
        return header.sequence > from.last ||
               std::find(from.skipped.begin(), from.skipped.end(), header.sequence) != from.skipped.end();
    }
    /// Whether a chunk that is not later() can only be of an operation in which this rank awaited nothing from `peer`.
    /// Others that no running operation takes are what a link sent twice, or what was sent to measure it, of number 0,
    /// which may come late.
    [[nodiscard]] bool unasked(int peer, const ChunkHeader &header) const {
        const Received &from = received_[static_cast<size_t>(peer)];
        if ((header.sequence & kPairwise) != 0 || header.sequence == 0)
            return false;
        if (header.sequence > from.operation)
            return true;
        const uint64_t back = from.operation - header.sequence;
        return back < kWindow && (from.awaited >> back & 1) == 0;
    }
    void keep(const Arrival &arrival, int link);
    [[nodiscard]] bool keeps_nothing() const { return kept_ == 0; }
    /// Goes through what is kept of operation `sequence`: `stays(early, stay)` uses one up, or sets `stay`.
    template <typename Stays>
    Status sift(uint64_t sequence, Stays &&stays) {
        return sift(lists_[sequence % kOperations], stays);
    }
    /// Goes through all that is kept: for what carries several operations, or messages with numbers of their pair.
    template <typename Stays>
    Status sift_all(Stays &&stays) {
        for (List &list : lists_)
            FLX_TRY(sift(list, stays));
        return {};
    }

    /// An operation went on: a cell was sent, received or summed. What only came and is held does not count, since a
    /// rail that is lost again and again brings the same chunks for ever.
    void used() { used_ = true; }
    /// Called after every turn. Operations that run side by side share the room that links have for a peer's chunks,
    /// so what cannot be used yet may keep out what is needed first. After a while in which none went on it is copied,
    /// which gives the room back. Rare, and never where one operation runs at a time on links that keep the order. True
    /// if something was copied.
    bool set_aside_if_stuck(const std::vector<Link *> &links);

    /// Records what is copied from now on, for tests; null: no more.
    void record(Trace *trace) { trace_ = trace; }

  private:
    /// Peers may be hundreds of short operations ahead, and each that begins must find its own chunks at once.
    static constexpr size_t kOperations = 32;

    /// Of so many operations it is known from whom something was awaited.
    static constexpr uint64_t kWindow = 64;
    static constexpr uint32_t kNone = UINT32_MAX;
    struct Node {
        Early early;
        uint32_t next;
    };
    struct List {  // in the order in which they came
        uint32_t first = kNone;
        uint32_t last = kNone;
    };

    template <typename Stays>
    Status sift(List &list, Stays &stays) {
        uint32_t before = kNone;
        for (uint32_t node = list.first; node != kNone;) {
            bool stays_here = false;
            FLX_TRY(stays(nodes_[node].early, stays_here));
            const uint32_t next = nodes_[node].next;
            if (stays_here)
                before = node;
            else
                drop(list, before, node);
            node = next;
        }
        return {};
    }
    void drop(List &list, uint32_t before, uint32_t node);

    bool set_aside(Early &early, bool several, const std::vector<Link *> &links);

    const int64_t patience_ns_;
    Trace *trace_ = nullptr;
    std::vector<Executor *> running_;
    /// By sequence number; the last one has messages with numbers of their pair.
    std::array<List, kOperations + 1> lists_;
    std::vector<Node> nodes_;
    uint32_t free_ = kNone;
    size_t kept_ = 0;
    uint64_t last_sequence_ = 0;
    /// Numbers of messages that have begun: up to the last one, but for those that were skipped.
    struct Received {
        uint64_t last = kPairwise;
        std::vector<uint64_t> skipped;
        uint64_t operation = 0;  ///< the last one in which something was awaited
        uint64_t awaited = 0;    ///< bit n: whether something was in the one n before it
    };
    std::vector<Received> received_;  // by peer
    bool used_ = false;               // since the last turn
    int64_t stuck_since_ns_ = 0;      // nothing was while arrivals were held; 0: something was
};

}  // namespace flx
