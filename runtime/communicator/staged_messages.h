/// \file staged_messages.h
/// Carries out an alltoallv, gatherv or scatterv by hosts: messages of lengths that only their ends know. Short ones
/// are shown to the head of the host, who sends what its host has for another one as one message, and the other head
/// shows each of its ranks what came for it. Longer ones of an alltoallv go by lanes: one rank of the host collects and
/// sends what all of them have for a rank of another host. Long ones go by themselves, as they would in an exchange.
/// Both ends of a message know its length, so both know which it is; of what hosts send each other, each knows the
/// length of the whole, since ranks show what they await as well. One call, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/placement.h"
#include "runtime/base/status.h"
#include "runtime/base/wait.h"
#include "runtime/communicator/between.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/planner.h"
#include "runtime/shm/ways/nearby.h"

namespace flx {

class StagedMessages {
  public:
    /// `heads`: by host, a root for its own. `near`: null where this rank is alone on its host. All outlive it.
    StagedMessages(const Call &call, const Choice &choice, int rank, const algorithms::Placement &placement,
                   const std::vector<int> &heads, shm::Nearby *near, Between &between, Waiter &waiter);

    /// FLX_ERR_MISMATCH where two ranks do not name the same length: heads tell each other all lengths.
    Status run();
    /// Bytes that this rank showed others of its host.
    [[nodiscard]] uint64_t shown() const { return shown_bytes_; }

  private:
    /// What hosts send each other: the length of each message, by sender and within that by receiver, also of those
    /// that go otherwise; then those that do not.
    struct Parcel {
        uint32_t *lengths = nullptr;
        size_t messages = 0;
        size_t bytes = 0;  ///< of those that it has

        [[nodiscard]] size_t header() const { return messages * sizeof(uint32_t); }
        [[nodiscard]] size_t size() const { return header() + bytes; }
        [[nodiscard]] std::byte *first() const { return reinterpret_cast<std::byte *>(lengths) + header(); }
    };

    Status alltoallv();
    Status gatherv();
    Status scatterv();

    // alltoallv
    void show(std::byte *place);
    Status take_from(size_t local);
    void pack();
    void pack_lane();
    void send_lane();
    Status take_lane();
    void deal_out(std::byte *place);
    Status deal();
    void give_long_of_all();

    // gatherv and scatterv
    Status pack_gathered();
    void await_gathered();
    void put_gathered();
    Parcel pack_scattered();
    Status deal_scattered(const Parcel &dealt, size_t own);
    Status carry_long(size_t own);

    Status exchange_parcels();
    Status check(const Parcel &parcel, const Parcel &awaited, size_t from, size_t to) const;
    Status give(uint64_t number);
    void take_numbers();
    [[nodiscard]] Status differ(int from, size_t sent, int to, size_t awaited) const;

    template <typename T>
    T *room(size_t many) {
        return reinterpret_cast<T *>(between_.aside(many * sizeof(T)));
    }
    Parcel parcel(size_t messages, size_t bytes);
    [[nodiscard]] size_t hosts() const { return placement_.ranks.size(); }
    [[nodiscard]] const std::vector<int> &on(size_t host) const { return placement_.ranks[host]; }
    [[nodiscard]] size_t host_of(int rank) const {
        return static_cast<size_t>(placement_.host[static_cast<size_t>(rank)]);
    }
    [[nodiscard]] size_t local_of(int rank) const {
        return static_cast<size_t>(placement_.local[static_cast<size_t>(rank)]);
    }
    [[nodiscard]] bool leads() const { return heads_[host_] == rank_; }
    [[nodiscard]] bool alone() const { return near_ == nullptr; }
    /// As the other end is told.
    [[nodiscard]] static uint32_t told(size_t bytes) { return Exchange::signature_of(bytes); }
    // None of other lengths.
    [[nodiscard]] uint32_t if_led(size_t bytes) const { return bytes <= led_ ? static_cast<uint32_t>(bytes) : 0; }
    [[nodiscard]] uint32_t if_shown(size_t bytes) const {
        return bytes <= shown_to_ ? static_cast<uint32_t>(bytes) : 0;
    }
    [[nodiscard]] uint32_t if_lane(size_t bytes) const { return if_shown(bytes) - if_led(bytes); }
    [[nodiscard]] bool is_long(size_t bytes) const { return bytes > shown_to_; }
    [[nodiscard]] size_t count(const Blocks &blocks, int rank) const { return blocks.counts[rank] * element_; }
    [[nodiscard]] size_t place_of(const Blocks &blocks, int rank) const {
        return blocks.displacements[rank] * element_;
    }
    [[nodiscard]] const Blocks &sends() const { return call_.in_place ? call_.blocks : call_.sends; }
    [[nodiscard]] const std::byte *sent_from() const { return call_.in_place ? call_.out() : call_.in(); }

    const Call &call_;
    const size_t element_;
    const size_t led_;       ///< bytes of the longest that heads carry
    const size_t shown_to_;  ///< of the longest that is shown
    const int rank_;
    const algorithms::Placement &placement_;
    const std::vector<int> &heads_;
    shm::Nearby *const near_;
    Between &between_;
    Waiter &waiter_;
    const size_t host_;
    const size_t own_;   ///< this rank's index on its host
    const size_t here_;  ///< ranks of this host
    const size_t ranks_;
    const uint32_t signature_;
    uint64_t shown_bytes_ = 0;
    uint64_t of_lanes_ = 0;  ///< number of lanes' messages
    uint64_t long_ = 0;      ///< number of long ones

    // In memory of the operation's own, which is there again in the next one.
    std::span<const std::byte *> shown_;  ///< by rank of this host: what it shows
    std::span<Parcel> sent_;              ///< by host
    std::span<Parcel> awaited_;           ///< by host: the lengths that are awaited; no messages
    std::span<Parcel> came_;              ///< by host
    std::span<Parcel> lane_sent_;         ///< by rank of other hosts that this one collects for
    std::span<Parcel> lane_came_;         ///< by host
    bool gave_ = false;                   ///< there are messages that are not given yet
};

}  // namespace flx
