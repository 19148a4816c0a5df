/// \file lossy_rails.h
/// Rails between ranks that are threads, which lose what they carry: below the Link, chunks that were not acknowledged
/// are sent again over another rail, as ucx_glue does, and the executor sees no more than a late Completion.
///
/// A rail between two ranks is cut at random. What it carries then, in both directions, is lost or comes late. Each
/// side notices on its own, later, and until then sends into the old incarnation. What is sent again is read from where
/// the chunk lies, so memory that was overwritten too early shows in results.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/link/link.h"
#include "runtime/link/trace.h"

namespace flx::testing {

/// How often what a test is about has happened.
struct LossFacts {
    std::atomic<int> cuts{0}, lost_data{0}, lost_acks{0}, late{0}, resent{0}, duplicates{0}, copied{0};
};

/// What the ranks share.
class LossyNetwork {
  public:
    struct Message {
        bool ack = false;
        uint64_t number = 0;  // the sender's name for the chunk, on this rail and in this incarnation
        uint32_t incarnation = 0;
        ChunkHeader header{};
        std::vector<std::byte> data;
        int delay = 0;  // in polls
    };
    LossyNetwork(int ranks, int rails, uint32_t one_in, LossFacts &facts)
        : ranks(ranks), rails(rails), one_in(one_in), facts(facts), queues_(count()), incarnations_(count()) {}

    /// Both by rail and direction; a cut changes both directions' incarnation.
    std::deque<Message> &queue(int rail, int from, int to) { return queues_[at(rail, from, to)]; }
    uint32_t &incarnation(int rail, int a, int b) { return incarnations_[at(rail, std::min(a, b), std::max(a, b))]; }

    const int ranks;
    const int rails;
    const uint32_t one_in;  // polls of a rail end in a cut; 0: none
    LossFacts &facts;
    std::mutex mutex;
    std::atomic<int> done{0};     // ranks outside FLX for good
    std::atomic<int> drained{0};  // and with nothing unacknowledged

  private:
    [[nodiscard]] size_t count() const { return static_cast<size_t>(rails) * ranks * ranks; }
    [[nodiscard]] size_t at(int rail, int from, int to) const {
        return (static_cast<size_t>(rail) * ranks + from) * ranks + to;
    }
    std::vector<std::deque<Message>> queues_;
    std::vector<uint32_t> incarnations_;
};

/// One rank's rails.
class LossyRails {
  public:
    LossyRails(LossyNetwork &network, int rank, uint32_t seed, Trace &trace)
        : network_(network), rank_(rank), random_(seed), trace_(trace) {
        known_.resize(static_cast<size_t>(network.rails) * network.ranks);
        for (int rail = 0; rail < network.rails; ++rail)
            links_.push_back(std::make_unique<End>(*this, rail));
    }

    [[nodiscard]] std::vector<Link *> links() const {
        std::vector<Link *> result;
        for (const auto &link : links_)
            result.push_back(link.get());
        return result;
    }
    /// Chunks that were not acknowledged, copied ones too.
    [[nodiscard]] size_t unacknowledged() const { return outgoing_.size(); }
    [[nodiscard]] size_t held() const { return held_.size(); }

    /// Operations up to `sequence` ended on this rank: what still comes of them is a duplicate, and is acknowledged as
    /// it comes. Executors cannot do that: they only look at the peers of the operation that runs, and another rank may
    /// wait for the acknowledgement of an earlier one.
    void ended(uint64_t sequence) {
        const std::lock_guard guard(network_.mutex);
        ended_ = sequence;
        for (auto &[from, inbox] : inboxes_)
            std::erase_if(inbox, [&, from = from](const LossyNetwork::Message &message) {
                return is_stale(from.first, from.second, message);
            });
    }
    /// What the guard thread does for a rank that is outside FLX.
    void guard() {
        for (const auto &link : links_)
            link->progress();
    }

  private:
    struct Outgoing {
        ChunkHeader header{};
        int peer = -1;
        const std::byte *source = nullptr;
        std::vector<std::byte> copy;
        int home = 0;  // the rail that the executor gave it to
        int rail = 0;  // that carries it
        uint32_t incarnation = 0;
        int transmissions = 0;
    };

    class End final : public Link {
      public:
        End(LossyRails &rails, int rail) : rails_(rails), rail_(rail), name_(fmt::format("rail{}", rail)) {}
        [[nodiscard]] const std::string &name() const override { return name_; }
        [[nodiscard]] LinkKind kind() const override { return LinkKind::rail; }
        [[nodiscard]] bool reaches(int peer) const override { return peer != rails_.rank_; }
        [[nodiscard]] size_t max_chunk() const override { return kMaxCellBytes; }
        [[nodiscard]] size_t good_chunk(size_t bytes) const override { return bytes / 3 + 1; }
        SendResult send(int peer, const ChunkHeader &header, const void *data) override {
            EXPECT_LE(header.bytes, max_chunk());
            return rails_.send(rail_, peer, header, static_cast<const std::byte *>(data));
        }
        bool receive(int peer, Arrival &arrival) override { return rails_.receive(rail_, peer, arrival); }
        void release(const Arrival &arrival) override { rails_.release(rail_, arrival); }
        bool completed(Completion &completion) override {
            if (completions_.empty())
                return false;
            completion = completions_.front();
            completions_.pop_front();
            return true;
        }
        bool progress() override {
            rails_.progress(rail_);
            return false;
        }
        [[nodiscard]] size_t outstanding() const override { return rails_.outgoing_.size(); }
        [[nodiscard]] size_t unacknowledged(int) const override { return 0; }
        [[nodiscard]] LinkCounters counters(int) const override { return {}; }
        [[nodiscard]] Status error(int) const override { return {}; }
        std::deque<Completion> completions_;

      private:
        LossyRails &rails_;
        const int rail_;
        const std::string name_;
    };

    bool chance(uint32_t one_in) { return one_in != 0 && random_() % one_in == 0; }
    uint32_t &known(int rail, int peer) { return known_[static_cast<size_t>(rail) * network_.ranks + peer]; }

    SendResult send(int rail, int peer, const ChunkHeader &header, const std::byte *data) {
        constexpr int kWindow = 3;  // each rail has room of its own, as real ones have
        const std::lock_guard guard(network_.mutex);
        const auto under_way = std::count_if(outgoing_.begin(), outgoing_.end(), [&](const auto &entry) {
            return entry.second.home == rail && entry.second.peer == peer;
        });
        if (under_way >= kWindow || chance(5))
            return SendResult::busy;
        Outgoing chunk{header, peer, data, {}, rail, rail, 0, 0};
        const bool copied = chance(4);
        if (copied)
            chunk.copy.assign(data, data + header.bytes);
        network_.facts.copied += copied ? 1 : 0;
        transmit(rail, std::move(chunk));
        return copied ? SendResult::copied : SendResult::in_flight;
    }

    /// Content as it is now.
    void transmit(int rail, Outgoing chunk) {
        chunk.rail = rail;
        chunk.incarnation = known(rail, chunk.peer);
        const std::byte *from = chunk.copy.empty() ? chunk.source : chunk.copy.data();
        LossyNetwork::Message message{false, ++number_, chunk.incarnation, chunk.header, {}, delay()};
        message.data.assign(from, from + chunk.header.bytes);
        if (++chunk.transmissions > 1) {
            ++network_.facts.resent;
            trace_.note(TraceKind::resends, rail, chunk.peer, chunk.header);
        }
        network_.queue(rail, rank_, chunk.peer).push_back(std::move(message));
        outgoing_[number_] = std::move(chunk);
    }

    bool receive(int rail, int peer, Arrival &arrival) {
        const std::lock_guard guard(network_.mutex);
        std::deque<LossyNetwork::Message> &inbox = inboxes_[{rail, peer}];
        if (inbox.empty())
            return false;
        const uint64_t token = ++token_;
        LossyNetwork::Message &message = held_[token] = std::move(inbox.front());
        inbox.pop_front();
        arrival = {message.header, peer, message.data.data(), token};
        return true;
    }

    void release(int rail, const Arrival &arrival) {
        const std::lock_guard guard(network_.mutex);
        const auto entry = held_.find(arrival.token);
        if (entry == held_.end())
            std::abort();  // released twice
        acknowledge(rail, arrival.peer, entry->second);
        held_.erase(entry);
    }

    void acknowledge(int rail, int peer, const LossyNetwork::Message &message) {
        if (message.incarnation >= known(rail, peer))  // else the rail that it came by is gone
            network_.queue(rail, rank_, peer).push_back({true, message.number, message.incarnation, {}, {}, delay()});
    }

    bool is_stale(int rail, int peer, const LossyNetwork::Message &message) {
        if (message.header.sequence > ended_)
            return false;
        ++network_.facts.duplicates;
        trace_.note(TraceKind::acknowledges, rail, peer, message.header);
        acknowledge(rail, peer, message);
        return true;
    }

    void progress(int rail) {
        const std::lock_guard guard(network_.mutex);
        for (int peer = 0; peer < network_.ranks; ++peer) {
            if (peer == rank_)
                continue;
            uint32_t &incarnation = network_.incarnation(rail, rank_, peer);
            if (chance(network_.one_in) && network_.done < network_.ranks)
                cut(rail, peer, ++incarnation);
            if (known(rail, peer) != incarnation && chance(4))
                lose(rail, peer, incarnation);
            take(rail, peer, incarnation);
        }
    }

    void cut(int rail, int peer, uint32_t incarnation) {
        ++network_.facts.cuts;
        for (auto *queue : {&network_.queue(rail, rank_, peer), &network_.queue(rail, peer, rank_)}) {
            for (LossyNetwork::Message &message : *queue)
                if (message.incarnation < incarnation)
                    message.delay += chance(2) ? static_cast<int>(random_() % 40) : kNever;
        }
    }

    void lose(int rail, int peer, uint32_t incarnation) {
        known(rail, peer) = incarnation;
        trace_.note(TraceKind::loses, rail, peer, {});
        std::vector<Outgoing> again;
        for (auto entry = outgoing_.begin(); entry != outgoing_.end();) {
            Outgoing &chunk = entry->second;
            const bool was_there = chunk.rail == rail && chunk.peer == peer && chunk.incarnation < incarnation;
            if (was_there)
                again.push_back(std::move(chunk));
            entry = was_there ? outgoing_.erase(entry) : std::next(entry);
        }
        for (Outgoing &chunk : again)
            transmit(static_cast<int>(random_() % static_cast<uint32_t>(network_.rails)), std::move(chunk));
    }

    void take(int rail, int peer, uint32_t incarnation) {
        std::deque<LossyNetwork::Message> &queue = network_.queue(rail, peer, rank_);
        for (auto message = queue.begin(); message != queue.end();) {
            const bool old = message->incarnation < incarnation;
            if (message->delay >= kNever || (old && chance(6))) {
                ++(message->ack ? network_.facts.lost_acks : network_.facts.lost_data);
                message = queue.erase(message);
            } else if (message->delay-- > 0) {
                ++message;
            } else {
                network_.facts.late += old ? 1 : 0;
                if (message->ack)
                    acknowledged(message->number);
                else if (!is_stale(rail, peer, *message))
                    inboxes_[{rail, peer}].push_back(std::move(*message));
                message = queue.erase(message);
            }
        }
    }

    /// A number that names nothing was sent again, under another one.
    void acknowledged(uint64_t number) {
        const auto entry = outgoing_.find(number);
        if (entry == outgoing_.end())
            return;
        const Outgoing &chunk = entry->second;
        if (chunk.copy.empty())
            links_[static_cast<size_t>(chunk.home)]->completions_.push_back({chunk.header, chunk.peer});
        outgoing_.erase(entry);
    }

    int delay() { return chance(2) ? 0 : static_cast<int>(random_() % 6); }

    static constexpr int kNever = 1'000'000;
    LossyNetwork &network_;
    const int rank_;
    std::mt19937 random_;
    Trace &trace_;
    uint64_t number_ = 0;
    uint64_t token_ = 0;
    uint64_t ended_ = 0;
    std::vector<uint32_t> known_;  // incarnations
    std::vector<std::unique_ptr<End>> links_;
    std::map<uint64_t, Outgoing> outgoing_;
    std::map<uint64_t, LossyNetwork::Message> held_;
    std::map<std::pair<int, int>, std::deque<LossyNetwork::Message>> inboxes_;
};

}  // namespace flx::testing
