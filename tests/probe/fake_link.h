/// \file fake_link.h
/// Links in memory between ranks that are threads: wires with a rate, a delay, a token bucket and a bounded queue.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/link/link.h"

namespace flx::probe {

/// Clocks of ranks that are threads, which advance by what the ranks do: each look at the clock costs a microsecond.
/// The rank that is furthest behind runs, and no other; so what ranks measure does not depend on how busy the machine
/// is.
class VirtualClock {
  public:
    explicit VirtualClock(int ranks) : clocks_(static_cast<size_t>(ranks), 1) {}

    /// Rank `rank` looks at its clock.
    int64_t look(int rank) {
        spend(rank, 1000);
        return now(rank);
    }
    int64_t now(int rank) const { return clocks_[static_cast<size_t>(rank)]; }
    /// Rank `rank` computes for `ns`.
    void spend(int rank, int64_t ns) {
        int64_t &mine = clocks_[static_cast<size_t>(rank)];
        mine += ns;
        if (mine < others_)
            return;
        std::unique_lock lock(mutex_);
        pass_on();
        wait(lock, rank);
    }
    /// Waits for the first turn.
    void begin(int rank) {
        std::unique_lock lock(mutex_);
        wait(lock, rank);
    }
    /// Rank `rank`, whose turn it is, has returned.
    void leave(int rank) {
        const std::scoped_lock lock(mutex_);
        clocks_[static_cast<size_t>(rank)] = INT64_MAX;
        pass_on();
    }

  private:
    static constexpr int64_t kAhead = 20'000;  ///< how far a rank may run ahead before the turn changes

    void wait(std::unique_lock<std::mutex> &lock, int rank) {
        changed_.wait(lock, [&] { return turn_ == rank; });
        others_ = INT64_MAX;
        for (size_t i = 0; i < clocks_.size(); ++i)
            if (static_cast<int>(i) != rank && clocks_[i] < INT64_MAX)
                others_ = std::min(others_, clocks_[i] + kAhead);
    }
    void pass_on() {
        turn_ = static_cast<int>(std::min_element(clocks_.begin(), clocks_.end()) - clocks_.begin());
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<int64_t> clocks_;
    int64_t others_ = INT64_MAX;  ///< the turn changes when the running rank's clock reaches this
    int turn_ = 0;
};

struct FakeWire {
    std::string name = "fake";
    double bytes_per_ns = 0.1;
    int64_t delay_ns = 20'000;
    size_t bucket = 0;        ///< bytes that pass at once after idling
    size_t queue = 2u << 20;  ///< bytes taken before `busy`
    LinkKind kind = LinkKind::rail;
    bool in_flight = true;  ///< acknowledged chunks, whose source is read at delivery; else copied at send
    enum class Fault { none, silent, failed, busy } fault = Fault::none;
};

/// All ends of one wire kind between `size` ranks.
class FakeNetwork {
  public:
    FakeNetwork(FakeWire wire, int size, VirtualClock &clock) : wire_(std::move(wire)), size_(size), clock_(clock) {}

    std::unique_ptr<Link> end(int rank);

    int64_t now(int rank) const { return clock_.now(rank); }

  private:
    friend class FakeLink;
    struct Chunk {
        ChunkHeader header;
        const std::byte *data;
        std::vector<std::byte> copy;
        int64_t due;
    };
    struct Direction {
        std::mutex mutex;
        std::deque<Chunk> chunks;
        std::deque<ChunkHeader> acknowledged;
        size_t queued = 0;
        int64_t free_at = INT64_MIN / 2;  // long ago: the bucket is full
    };
    Direction &direction(int from, int to) {
        const std::scoped_lock lock(mutex_);
        auto &entry = directions_[{from, to}];
        if (!entry)
            entry = std::make_unique<Direction>();
        return *entry;
    }

    FakeWire wire_;
    int size_;
    VirtualClock &clock_;
    std::mutex mutex_;
    std::map<std::pair<int, int>, std::unique_ptr<Direction>> directions_;
};

class FakeLink : public Link {
  public:
    FakeLink(FakeNetwork &network, int rank) : network_(network), rank_(rank) {}

    const std::string &name() const override { return network_.wire_.name; }
    LinkKind kind() const override { return network_.wire_.kind; }
    bool reaches(int peer) const override { return peer >= 0 && peer < network_.size_ && peer != rank_; }
    size_t max_chunk() const override { return 256u << 10; }
    size_t good_chunk(size_t bytes) const override { return std::min<size_t>(bytes, 64u << 10); }

    SendResult send(int peer, const ChunkHeader &header, const void *data) override {
        const FakeWire &wire = network_.wire_;
        if (wire.fault == FakeWire::Fault::failed)
            return SendResult::failed;
        if (wire.fault == FakeWire::Fault::busy)
            return SendResult::busy;
        if (wire.fault == FakeWire::Fault::silent)
            return SendResult::copied;
        auto &direction = network_.direction(rank_, peer);
        std::unique_lock lock(direction.mutex);
        if (direction.queued + header.bytes > wire.queue)
            return SendResult::busy;
        const int64_t now = network_.now(rank_);
        const auto token_ns = static_cast<int64_t>(static_cast<double>(wire.bucket) / wire.bytes_per_ns);
        direction.free_at =
            std::max(direction.free_at, now - token_ns) + static_cast<int64_t>(header.bytes / wire.bytes_per_ns);
        FakeNetwork::Chunk chunk{header, static_cast<const std::byte *>(data), {}, 0};
        chunk.due = std::max(direction.free_at, now) + wire.delay_ns;
        if (!wire.in_flight) {
            chunk.copy.assign(chunk.data, chunk.data + header.bytes);
            chunk.data = chunk.copy.data();
        }
        direction.queued += header.bytes;
        direction.chunks.push_back(std::move(chunk));
        outstanding_ += wire.in_flight ? 1 : 0;
        lock.unlock();                   // the turn changes below
        if (wire.kind == LinkKind::shm)  // the core that copies is what limits it
            network_.clock_.spend(rank_, static_cast<int64_t>(header.bytes / wire.bytes_per_ns));
        return wire.in_flight ? SendResult::in_flight : SendResult::copied;
    }

    bool receive(int peer, Arrival &arrival) override {
        auto &direction = network_.direction(peer, rank_);
        const std::scoped_lock lock(direction.mutex);
        if (direction.chunks.empty() || direction.chunks.front().due > network_.now(rank_))
            return false;
        held_ = std::move(direction.chunks.front());
        direction.chunks.pop_front();
        arrival = {held_.header, peer, held_.data, 0};
        return true;
    }

    void release(const Arrival &arrival) override {
        auto &direction = network_.direction(arrival.peer, rank_);
        const std::scoped_lock lock(direction.mutex);
        direction.queued -= arrival.header.bytes;
        direction.acknowledged.push_back(arrival.header);
    }

    bool completed(Completion &completion) override {
        if (!network_.wire_.in_flight)
            return false;
        for (int peer = 0; peer < network_.size_; ++peer) {
            auto &direction = network_.direction(rank_, peer);
            const std::scoped_lock lock(direction.mutex);
            if (direction.acknowledged.empty())
                continue;
            completion = {direction.acknowledged.front(), peer};
            direction.acknowledged.pop_front();
            --outstanding_;
            return true;
        }
        return false;
    }

    bool progress() override { return false; }
    size_t outstanding() const override { return outstanding_; }
    size_t unacknowledged(int) const override { return 0; }
    LinkCounters counters(int) const override { return {}; }
    Status error(int) const override {
        if (network_.wire_.fault == FakeWire::Fault::failed)
            return fail(flx::Fault::no_link, "the cable of {} is cut", name());
        return {};
    }

  private:
    FakeNetwork &network_;
    int rank_;
    size_t outstanding_ = 0;
    FakeNetwork::Chunk held_{};
};

inline std::unique_ptr<Link> FakeNetwork::end(int rank) {
    return std::make_unique<FakeLink>(*this, rank);
}

}  // namespace flx::probe
