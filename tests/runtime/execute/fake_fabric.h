/// \file fake_fabric.h
/// Links between ranks that are threads of one process, as unpleasant as the contract in link.h allows: little room,
/// refusals, late arrival, late completion, duplicates. A chunk in flight is the sender's own memory until the receiver
/// releases it, so that memory overwritten too early shows in results.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/execute/executor.h"
#include "runtime/link/link.h"
#include "runtime/shares/partition.h"

namespace flx::testing {

/// How often what happened that a test is about.
struct FabricFacts {
    std::atomic<int> busy{0}, in_flight{0}, duplicates{0}, early{0}, split{0}, lost{0}, returned{0}, moved{0};
    std::atomic<int> sent_twice{0};  ///< cells

    /// A chunk that a link took. Cells that a link sends out of order were moved to it.
    void sent(int from, int to, const std::string &link, const ChunkHeader &header) {
        const std::lock_guard guard(mutex_);
        const auto step = std::tuple(header.sequence, from, to, header.phase, header.block);
        std::set<uint32_t> &cells = cells_[step];
        for (uint32_t cell = header.first_cell; cell < header.first_cell + header.cells; ++cell)
            sent_twice += cells.insert(cell).second ? 0 : 1;
        const auto [next, first] = next_.try_emplace(std::pair(step, link), 0);
        if (!first && header.first_cell < next->second)
            ++moved;
        next->second = header.first_cell + header.cells;
    }

    /// Operations are numbered from 1 again.
    void forget_sent() {
        const std::lock_guard guard(mutex_);
        cells_.clear();
        next_.clear();
    }

  private:
    using StepOfRank = std::tuple<uint64_t, int, int, uint32_t, uint32_t>;
    std::mutex mutex_;
    std::map<StepOfRank, std::set<uint32_t>> cells_;
    std::map<std::pair<StepOfRank, std::string>, uint32_t> next_;
};

/// What the ranks' ends of one link share.
class Fabric {
  public:
    struct Message {
        ChunkHeader header{};
        const std::byte *data = nullptr;
        std::vector<std::byte> own;  // where `data` is not the sender's memory
        int delay = 0;               // in polls
        bool in_flight = false;
        bool duplicate = false;
    };
    struct Direction {
        std::mutex mutex;
        std::deque<Message> queue;
        int room_taken = 0;  // chunks sent and not released
        size_t bytes_taken = 0;
        uint64_t bytes_sent = 0;
        std::deque<std::pair<Completion, int>> completions;
        size_t outstanding = 0;
    };

    Fabric(std::string name, LinkKind kind, int ranks, int room, size_t max_chunk, FabricFacts &facts)
        : name(std::move(name)), kind(kind), ranks(ranks), room(room), max_chunk(max_chunk), facts(facts) {
        for (int pair = 0; pair < ranks * ranks; ++pair)
            directions_.push_back(std::make_unique<Direction>());
    }
    [[nodiscard]] Direction &direction(int from, int to) const { return *directions_[from * ranks + to]; }

    const std::string name;
    const LinkKind kind;
    const int ranks;
    const int room;
    const size_t max_chunk;
    FabricFacts &facts;
    int slowness = 0;  ///< polls by which each chunk is later

  private:
    std::vector<std::unique_ptr<Direction>> directions_;
};

/// One rank's end.
class FakeLink final : public Link {
  public:
    FakeLink(Fabric &fabric, int rank, uint32_t seed) : fabric_(fabric), rank_(rank), random_(seed) {}

    /// For FabricFacts::early: the operation that runs.
    void set_sequence(uint64_t sequence) { sequence_ = sequence; }
    /// After so many chunks it is lost, towards all peers; what it has taken is delivered nevertheless. It comes back
    /// when it was tried `tries` times more (never, if 0).
    void lose_after(int chunks, int tries) {
        until_lost_ = chunks;
        until_back_ = tries;
    }
    void set_pace(double bytes_per_ns) { pace_ = bytes_per_ns; }
    /// Arrivals handed over and not released.
    [[nodiscard]] size_t held() const { return held_.size(); }

    [[nodiscard]] const std::string &name() const override { return fabric_.name; }
    [[nodiscard]] LinkKind kind() const override { return fabric_.kind; }
    [[nodiscard]] bool reaches(int peer) const override { return peer != rank_; }
    [[nodiscard]] size_t max_chunk() const override { return fabric_.max_chunk; }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override { return bytes / 3 + 1; }

    SendResult send(int peer, const ChunkHeader &header, const void *data) override {
        Fabric::Direction &direction = fabric_.direction(rank_, peer);
        const std::lock_guard guard(direction.mutex);
        if (until_lost_ == 0) {
            if (until_back_ == 0 || --until_back_ != 0)
                return chance(2) ? SendResult::failed : SendResult::busy;
            until_lost_ = -1;
            ++fabric_.facts.returned;
        }
        if (direction.room_taken >= fabric_.room || chance(4)) {
            ++fabric_.facts.busy;
            return SendResult::busy;
        }
        if (until_lost_ > 0 && --until_lost_ == 0)
            ++fabric_.facts.lost;
        fabric_.facts.sent(rank_, peer, fabric_.name, header);
        direction.bytes_taken += header.bytes;
        direction.bytes_sent += header.bytes;
        const auto *bytes = static_cast<const std::byte *>(data);
        Fabric::Message message{header, bytes, {}, delay(), !chance(4), false};
        if (message.in_flight) {
            ++fabric_.facts.in_flight;
            ++direction.outstanding;
        } else {
            message.own.assign(bytes, bytes + header.bytes);
            message.data = message.own.data();
        }
        const SendResult result = message.in_flight ? SendResult::in_flight : SendResult::copied;
        direction.queue.push_back(std::move(message));
        ++direction.room_taken;
        return result;
    }

    bool receive(int peer, Arrival &arrival) override {
        Fabric::Direction &direction = fabric_.direction(peer, rank_);
        const std::lock_guard guard(direction.mutex);
        if (direction.queue.empty() || direction.queue.front().delay-- > 0)
            return false;
        const uint64_t token = ++token_;
        Fabric::Message &message = held_[token] = std::move(direction.queue.front());
        direction.queue.pop_front();
        arrival = {message.header, peer, message.data, token};
        if (message.header.sequence > sequence_)
            ++fabric_.facts.early;
        if (message.duplicate)
            ++fabric_.facts.duplicates;
        else if (chance(6)) {
            Fabric::Message twin{message.header, nullptr, {}, delay(), false, true};
            twin.own.assign(message.data, message.data + message.header.bytes);
            twin.data = twin.own.data();
            direction.queue.push_back(std::move(twin));
            ++direction.room_taken;
        }
        return true;
    }

    void release(const Arrival &arrival) override {
        Fabric::Direction &direction = fabric_.direction(arrival.peer, rank_);
        const std::lock_guard guard(direction.mutex);
        const auto entry = held_.find(arrival.token);
        if (entry == held_.end())
            std::abort();  // released twice
        --direction.room_taken;
        if (!entry->second.duplicate)
            direction.bytes_taken -= arrival.header.bytes;
        if (entry->second.in_flight)
            direction.completions.push_back({{arrival.header, rank_}, delay()});
        held_.erase(entry);
    }

    bool completed(Completion &completion) override {
        for (int peer = 0; peer < fabric_.ranks; ++peer) {
            Fabric::Direction &direction = fabric_.direction(rank_, peer);
            const std::lock_guard guard(direction.mutex);
            if (direction.completions.empty() || direction.completions.front().second-- > 0)
                continue;
            completion = direction.completions.front().first;
            direction.completions.pop_front();
            --direction.outstanding;
            return true;
        }
        return false;
    }

    bool progress() override { return false; }
    [[nodiscard]] size_t outstanding() const override {
        size_t sum = 0;
        for (int peer = 0; peer < fabric_.ranks; ++peer) {
            Fabric::Direction &direction = fabric_.direction(rank_, peer);
            const std::lock_guard guard(direction.mutex);
            sum += direction.outstanding;
        }
        return sum;
    }
    [[nodiscard]] size_t unacknowledged(int peer) const override {
        Fabric::Direction &direction = fabric_.direction(rank_, peer);
        const std::lock_guard guard(direction.mutex);
        return direction.bytes_taken;
    }
    [[nodiscard]] Pace pace(int) const override { return {pace_, 0}; }
    [[nodiscard]] LinkState state(int) const override { return until_lost_ == 0 ? LinkState::lost : LinkState::up; }
    [[nodiscard]] LinkCounters counters(int peer) const override {
        Fabric::Direction &direction = fabric_.direction(rank_, peer);
        const std::lock_guard guard(direction.mutex);
        return {direction.bytes_sent, 0, 0};
    }
    [[nodiscard]] Status error(int) const override { return {}; }

  private:
    bool chance(uint32_t one_in) { return random_() % one_in == 0; }
    int delay() { return fabric_.slowness + random_delay(); }
    int random_delay() { return chance(2) ? 0 : static_cast<int>(random_() % 6); }

    Fabric &fabric_;
    const int rank_;
    std::mt19937 random_;
    double pace_ = 0;
    int until_lost_ = -1;  // chunks; 0: lost
    int until_back_ = 0;   // attempts
    uint64_t sequence_ = 0;
    uint64_t token_ = 0;
    std::map<uint64_t, Fabric::Message> held_;
};

/// A vector of its own for each block that is sent.
class RandomRouter final : public Router {
  public:
    RandomRouter(int links, uint32_t seed, FabricFacts &facts) : links_(links), random_(seed), facts_(facts) {}

    const PartitionVector &vector(int, size_t, int) override {
        std::vector<double> shares(static_cast<size_t>(links_));
        for (double &share : shares)
            share = random_() % 3 == 0 ? 0 : static_cast<double>(1 + random_() % 100);
        shares[random_() % shares.size()] += 1;
        vector_ = make_partition(shares);
        for (int link = 0, used = 0; link < links_; ++link)
            if (vector_.weight[link] != 0 && ++used == 2)
                ++facts_.split;
        return vector_;
    }
    [[nodiscard]] uint32_t incoming_links(int) const override { return (1U << links_) - 1; }
    [[nodiscard]] uint32_t outgoing_links(int) const override { return (1U << links_) - 1; }

  private:
    const int links_;
    std::mt19937 random_;
    FabricFacts &facts_;
    PartitionVector vector_;
};

}  // namespace flx::testing
