/// \file exchange.h
/// Messages between pairs of ranks that are carried together: what alltoall, alltoallv, send and receive, and groups of
/// them come to. The executor carries an exchange as it does a schedule: a message is a step, cut into cells of its own
/// size, which the partition vector spreads over the links.
///
/// A message is named by its pair of ranks and a sequence number, so that a rank that has no part in an exchange need
/// not call. Messages of an alltoall(v) have the number of their operation within the communicator, as chunks of
/// collectives do. Those of sends and receives have a number of their own, counted by each ordered pair: the n-th send
/// to a rank meets the n-th receive from it, whatever else happens between.
///
/// No message waits for another. What is sent is not written before it is acknowledged or was copied, so a chunk may be
/// sent again until then. (What shall be exchanged in place is copied aside first.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"
#include "runtime/base/status.h"
#include "runtime/link/link.h"

namespace flx {

/// Messages so far, by peer: numbers of sends and receives, for all exchanges of a communicator.
struct MessageCounts {
    explicit MessageCounts(int size) : sent(static_cast<size_t>(size)), received(static_cast<size_t>(size)) {}
    std::vector<uint64_t> sent;
    std::vector<uint64_t> received;
};

class Exchange {
  public:
    struct Message {
        const std::byte *from = nullptr;  ///< sends and copies
        std::byte *to = nullptr;          ///< receives and copies
        size_t bytes = 0;
        uint64_t sequence = 0;
        uint32_t signature = 0;  ///< of the length: both sides must have the same
        bool done = false;
        bool of_hosts = false;  ///< what several ranks of a host have for some of another one, in one message
    };
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr uint32_t kLongest = UINT32_MAX;  ///< signature of all lengths from here on

    /// Of a message's length.
    [[nodiscard]] static uint32_t signature_of(size_t bytes) {
        return static_cast<uint32_t>(bytes < kLongest ? bytes : kLongest);
    }

    /// `counts` outlives it.
    Exchange(int rank, int size, MessageCounts &counts);

    /// Adds a message. `sequence`: of the operation that it belongs to, or 0 for a send or receive. Messages of this
    /// rank to itself are matched by start(). The message's step; kNone for one to itself.
    uint32_t send(int peer, const void *from, size_t bytes, uint64_t sequence);
    uint32_t receive(int peer, void *to, size_t bytes, uint64_t sequence, bool of_hosts = false);
    void copy(const void *from, void *to, size_t bytes);
    /// No message can be added any more: numbers the sends and receives. FLX_ERR_ARGUMENT if those of this rank to
    /// itself do not match; then nothing was numbered.
    Status start();
    /// It was carried before the rest.
    void mark_done(uint32_t step);
    [[nodiscard]] bool all_done() const { return done_ == messages_.size(); }
    /// Forgets the messages; numbers go on.
    void clear();

    [[nodiscard]] bool empty() const { return steps_.empty() && to_self_.empty() && from_self_.empty(); }
    /// One step a message: send, recv or copy.
    [[nodiscard]] const std::vector<algorithms::Step> &steps() const { return steps_; }
    [[nodiscard]] const Message &message(uint32_t step) const { return messages_[step]; }
    [[nodiscard]] const std::vector<int> &peers() const { return peers_; }
    /// All that is sent and received.
    [[nodiscard]] size_t bytes() const;
    /// The longest message to `peer`, in bytes.
    [[nodiscard]] size_t longest_to(int peer) const { return sides_[peer].longest; }

    /// The step that receives the message of this number from `peer`, or kNone.
    [[nodiscard]] uint32_t receiving_step(int peer, uint64_t sequence) const {
        return find(sides_[peer].receives, sequence);
    }
    [[nodiscard]] uint32_t sending_step(int peer, uint64_t sequence) const {
        return find(sides_[peer].sends, sequence);
    }
    /// Number, without kPairwise, of the first receive from `peer` that has one of its own; UINT64_MAX: none.
    [[nodiscard]] uint64_t first_received(int peer) const;
    /// `each(peer, number)` for every message that comes, and for empty ones with a number of their pair, in order.
    template <typename Each>
    void for_each_awaited(Each &&each) const {
        for (const int peer : peers_)
            for (const uint32_t step : sides_[peer].receives)
                if (const Message &message = messages_[step]; message.bytes != 0 || (message.sequence & kPairwise) != 0)
                    each(peer, message.sequence);
    }

  private:
    struct Side {  // towards one peer
        std::vector<uint32_t> sends;
        std::vector<uint32_t> receives;
        size_t longest = 0;
        bool is_peer = false;
    };

    uint32_t add(algorithms::StepKind kind, int peer, const Message &message);
    [[nodiscard]] uint32_t find(const std::vector<uint32_t> &steps, uint64_t sequence) const;

    int rank_;
    MessageCounts &counts_;
    std::vector<algorithms::Step> steps_;
    std::vector<Message> messages_;  // of the same index
    size_t done_ = 0;
    std::vector<Message> to_self_;
    std::vector<Message> from_self_;
    std::vector<int> peers_;
    std::vector<Side> sides_;  // by peer
};

}  // namespace flx
