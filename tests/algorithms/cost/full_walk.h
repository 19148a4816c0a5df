/// \file full_walk.h
/// The cost function as it was first written: it walks the schedules of all ranks and looks everything up as it goes.
/// Bits of sums depend on what it says, so the one that is faster must say the same.
#pragma once

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "algorithms/cost/model.h"
#include "algorithms/registry.h"

namespace flx::algorithms::reference {

/// Long blocks go in so many parts, one after another, as executors pipeline their cells.
inline constexpr double kMostParts = 32;
inline constexpr double kPartBytes = 64 << 10;
/// Chunks of up to so many bytes go together where they are ready for one peer at the same time: each further one then
/// costs a part of a message.
inline constexpr double kTogetherBytes = 16 << 10;
inline constexpr double kTogetherPart = 1.0 / 8;
/// A walk over more parts of steps than this would take too long.
inline constexpr double kMostNodes = 60'000;

/// One execution: list scheduling in the order of time. A rank does one thing at a time; what a host sends, and what it
/// gets, goes through its rails one after another.
class Walk {
  public:
    Walk(const Algorithm &algorithm, Collective collective, const Placement &placement, size_t bytes,
         const CostModel &model)
        : placement_(placement), model_(model), sends_all_(collective == Collective::scatter) {
        const int size = placement.size();
        for (int rank = 0; rank < size; ++rank)
            schedules_.push_back(algorithm.build({collective, rank, size, 0, &placement}));
        block_bytes_ = static_cast<double>(bytes) / schedules_[0].blocks;
        double steps = 0;
        for (const Schedule &schedule : schedules_)
            steps += static_cast<double>(schedule.steps.size());
        const double most = std::clamp(kMostNodes / std::max(steps, 1.0), 1.0, kMostParts);
        parts_ = static_cast<uint32_t>(std::clamp(block_bytes_ / kPartBytes, 1.0, most));
        free_.assign(static_cast<size_t>(size), 0);
        busy_ = free_;
        last_.resize(static_cast<size_t>(size));
        out_.assign(static_cast<size_t>(placement.hosts()), 0);
        in_ = out_;
        lay_out();
    }

    double run() {
        for (uint32_t node = 0; node < waits_.size(); ++node)
            if (waits_[node] == 0)
                ready_.emplace(0.0, node);
        double end = 0;
        while (!ready_.empty()) {
            const auto [time, node] = ready_.top();
            ready_.pop();
            end = std::max(end, node < waits_.size() ? execute(node, time) : arrive(node - nodes(), time));
        }
        return sends_all_ ? (end + busiest()) / 2 : end;
    }

  private:
    /// A part of a step of a rank. Of what is ready at one time the first parts go first, as room for chunks is short.
    [[nodiscard]] uint32_t node(size_t rank, uint32_t step, uint32_t part) const {
        return first_[rank] + part * steps(rank) + step;
    }

    void lay_out() {
        uint32_t nodes = 0;
        for (const Schedule &schedule : schedules_) {
            first_.push_back(nodes);
            nodes += static_cast<uint32_t>(schedule.steps.size()) * parts_;
        }
        waits_.assign(nodes, 0);
        begins_.assign(nodes, 0);
        rank_of_.resize(nodes);
        followers_.resize(schedules_.size());
        for (size_t rank = 0; rank < schedules_.size(); ++rank) {
            const std::vector<Step> &steps = schedules_[rank].steps;
            followers_[rank].resize(steps.size());
            for (uint32_t index = 0; index < steps.size(); ++index) {
                const Step &step = steps[index];
                uint32_t waits = 0;
                for (uint8_t d = 0; d < step.dependencies; ++d)
                    if (step.holds(d, false)) {
                        followers_[rank][step.after[d]].push_back(index);
                        ++waits;
                    }
                const auto expect = [&](int sender) {
                    receives_[key(sender, rank, step.phase, step.block)] = index;
                    ++waits;
                };
                if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
                    expect(step.peer);
                if (step.kind == StepKind::gather_reduce)
                    for (const int32_t member : schedules_[rank].group_of(step))
                        if (member != static_cast<int>(rank))
                            expect(member);
                for (uint32_t part = 0; part < parts_; ++part) {
                    waits_[node(rank, index, part)] = waits;
                    rank_of_[node(rank, index, part)] = static_cast<int>(rank);
                }
            }
        }
    }

    [[nodiscard]] uint64_t key(int sender, size_t receiver, uint8_t phase, uint32_t block) const {
        const auto ranks = static_cast<uint64_t>(schedules_.size());
        return ((static_cast<uint64_t>(sender) * ranks + receiver) * 256 + phase) * (uint64_t{1} << 32) + block;
    }

    /// Sums read what came where it lies; all else is copied.
    [[nodiscard]] double work_ns(const Schedule &schedule, const Step &step, int rank, double bytes) const {
        const auto is_near = [&](int peer) {
            return placement_.host[static_cast<size_t>(peer)] == placement_.host[static_cast<size_t>(rank)];
        };
        const auto tier = [&](int peer) -> const TierCost & { return is_near(peer) ? model_.near : model_.far; };
        const auto copy_ns = [&] {
            return bytes / (is_near(step.peer) ? model_.near.bytes_per_ns : model_.copy_bytes_per_ns);
        };
        switch (step.kind) {
            case StepKind::send:
                return tier(step.peer).send_ns + copy_ns();
            case StepKind::recv:
                return tier(step.peer).receive_ns + copy_ns();
            case StepKind::recv_reduce:
                return tier(step.peer).receive_ns + bytes / model_.add_bytes_per_ns;
            case StepKind::gather_reduce: {
                double work = 0;
                for (const int32_t member : schedule.group_of(step))
                    work += bytes / model_.add_bytes_per_ns + (member == rank ? 0 : tier(member).receive_ns);
                return work;
            }
            case StepKind::copy:
                break;
        }
        return bytes / model_.copy_bytes_per_ns;
    }

    /// The work of the rank that has most. Calls that follow each other take as long as that where no rank waits for
    /// another.
    [[nodiscard]] double busiest() const { return *std::ranges::max_element(busy_); }

    void came(uint32_t node, double time) {
        begins_[node] = std::max(begins_[node], time);
        if (--waits_[node] == 0)
            ready_.emplace(begins_[node], node);
    }

    double execute(uint32_t number, double time) {
        const int rank = rank_of_[number];
        const auto at = static_cast<size_t>(rank);
        const uint32_t index = (number - first_[at]) % steps(at);
        const uint32_t part = (number - first_[at]) / steps(at);
        const Step &step = schedules_[at].steps[index];
        const double bytes = block_bytes_ / parts_;
        const bool together = goes_along(step, rank, bytes, time);
        const double work = work_ns(schedules_[at], step, rank, bytes) - (together ? saved_ns(step.kind) : 0);
        const double end = std::max(time, free_[at]) + work;
        last_[at] = {step.kind, step.peer, end};
        free_[at] = end;
        busy_[at] += work;
        for (const uint32_t follower : followers_[at][index])
            came(node(at, follower, part), end);
        if (step.kind != StepKind::send)
            return end;
        const auto peer = static_cast<size_t>(step.peer);
        const auto from = static_cast<size_t>(placement_.host[at]);
        const auto to = static_cast<size_t>(placement_.host[peer]);
        if (from == to) {
            came(node(peer, receives_.at(key(rank, peer, step.phase, step.block)), part), end + model_.near.latency_ns);
            return end;
        }
        // A rail, and who serves it, is busy with a message as well as with its bytes.
        out_[from] =
            std::max(out_[from], end) + bytes / model_.far.bytes_per_ns + (together ? 0 : model_.far.send_ns / 4);
        ready_.emplace(out_[from], number + nodes());
        return end;
    }

    /// Whether it was ready, for or from the peer on another host of the rank's last step, before that step ended.
    [[nodiscard]] bool goes_along(const Step &step, int rank, double bytes, double time) const {
        const Last &last = last_[static_cast<size_t>(rank)];
        return step.peer >= 0 && last.peer == step.peer && last.kind == step.kind && time <= last.end &&
               bytes <= kTogetherBytes &&
               placement_.host[static_cast<size_t>(rank)] != placement_.host[static_cast<size_t>(step.peer)];
    }
    [[nodiscard]] double saved_ns(StepKind kind) const {
        return (1 - kTogetherPart) * (kind == StepKind::send ? model_.far.send_ns : model_.far.receive_ns);
    }

    /// What a send put on the rails has left its host.
    double arrive(uint32_t number, double time) {
        const int rank = rank_of_[number];
        const auto at = static_cast<size_t>(rank);
        const Step &step = schedules_[at].steps[(number - first_[at]) % steps(at)];
        const auto peer = static_cast<size_t>(step.peer);
        double &in = in_[static_cast<size_t>(placement_.host[peer])];
        in = std::max(in + block_bytes_ / parts_ / model_.far.bytes_per_ns, time);
        came(node(peer, receives_.at(key(rank, peer, step.phase, step.block)), (number - first_[at]) / steps(at)),
             in + model_.far.latency_ns);
        return in;
    }

    [[nodiscard]] uint32_t steps(size_t rank) const { return static_cast<uint32_t>(schedules_[rank].steps.size()); }
    [[nodiscard]] uint32_t nodes() const { return static_cast<uint32_t>(waits_.size()); }

    const Placement &placement_;
    const CostModel &model_;
    const bool sends_all_;  // one rank has all messages, and goes on as soon as they are sent
    std::vector<Schedule> schedules_;
    double block_bytes_ = 0;
    uint32_t parts_ = 1;
    std::vector<uint32_t> first_;  // node of each rank
    std::vector<uint32_t> waits_;  // for so many dependencies and messages
    std::vector<double> begins_;   // when the last of those was there
    std::vector<int> rank_of_;
    std::vector<std::vector<std::vector<uint32_t>>> followers_;  // by rank and step
    std::unordered_map<uint64_t, uint32_t> receives_;
    std::vector<double> free_;  // ranks
    std::vector<double> busy_;
    struct Last {
        StepKind kind = StepKind::copy;
        int peer = -1;
        double end = 0;
    };
    std::vector<Last> last_;   // what each rank did last
    std::vector<double> out_;  // rails of hosts
    std::vector<double> in_;
    using Ready = std::tuple<double, uint32_t>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

inline double predict_ns(const Algorithm &algorithm, Collective collective, const Placement &placement, size_t bytes,
                         const CostModel &model) {
    return Walk(algorithm, collective, placement, bytes, model).run();
}

}  // namespace flx::algorithms::reference
