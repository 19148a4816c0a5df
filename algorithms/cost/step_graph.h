/// \file step_graph.h
/// The steps of an algorithm's ranks, and which one lets which other begin: what a prediction walks. It depends on no
/// size in bytes and on no cost, so one graph serves many predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "algorithms/cost/symmetry.h"
#include "algorithms/registry.h"

namespace flx::algorithms {

/// Up to so many ranks, all are walked. Beyond, those of one host stand for all where hosts do alike.
inline constexpr int kAllWalked = 256;

class StepGraph {
  public:
    enum class Ranks : uint8_t {
        by_size,  ///< as kAllWalked says
        all,      ///< walk all of them: tests compare both
        few       ///< walk those of one host where hosts do alike
    };
    /// Requires that the algorithm serves the collective. Rank 0 is the root.
    ///
    /// More ranks than kAllWalked are reckoned on hosts that have the same number of ranks, their mean. If hosts do not
    /// do alike there, all ranks are walked if they have no more than a million steps together, as trees and chains
    /// have. Others are reckoned on the next power of two of hosts, and if that does not help, with a power of two of
    /// ranks each. What has too many steps even so is not reckoned at all.
    StepGraph(const Algorithm &algorithm, Collective collective, const Placement &placement,
              Ranks ranks = Ranks::by_size);
    // Nodes and the symmetry point into the graph.
    StepGraph(const StepGraph &) = delete;
    StepGraph &operator=(const StepGraph &) = delete;

    /// It is not reckoned, which follows from the arguments alone: nothing of it may be asked for, and a prediction is
    /// infinite.
    [[nodiscard]] bool too_large() const { return schedules_.empty(); }

    /// Of a step: a rank's index among those walked, and the step's index in its schedule.
    struct At {
        uint32_t rank = 0;
        uint32_t step = 0;
    };
    struct Node {
        const Step *step = nullptr;
        uint32_t waits = 0;     ///< for so many steps and messages
        At receiver;            ///< of a send
        int32_t from_host = 0;  ///< of a send: whose rails it leaves by, as an index among walked hosts
        int32_t to_host = 0;    ///< of a send: where it arrives, likewise
        int32_t peer_host = 0;  ///< of a send: its peer's, among all hosts
        bool is_near = false;   ///< of a send or receive: the peer is on the same host
    };

    [[nodiscard]] Collective collective() const { return collective_; }
    [[nodiscard]] const Placement &placement() const { return placement_; }
    [[nodiscard]] uint32_t blocks() const { return schedules_[0].blocks; }
    /// Of the whole communicator, by its number.
    [[nodiscard]] const std::vector<int> &ranks() const { return ranks_; }
    [[nodiscard]] uint32_t hosts() const { return hosts_; }
    [[nodiscard]] bool all_walked() const { return ranks_.size() == placement_.host.size(); }
    /// Only of graphs in which not all are walked.
    [[nodiscard]] const Symmetry &symmetry() const { return *symmetry_; }
    [[nodiscard]] uint32_t steps(uint32_t rank) const { return first_[rank + 1] - first_[rank]; }
    /// Of all ranks that are walked.
    [[nodiscard]] uint32_t steps() const { return first_.back(); }
    [[nodiscard]] uint32_t first(uint32_t rank) const { return first_[rank]; }
    [[nodiscard]] const Node &node(At at) const { return nodes_[first_[at.rank] + at.step]; }
    /// Of a gather_reduce: the ranks that it adds over, in order.
    [[nodiscard]] const std::vector<int32_t> &group(At at) const {
        return schedules_[at.rank].group_of(*node(at).step);
    }
    /// The steps of the same rank that wait for this one.
    [[nodiscard]] std::span<const uint32_t> followers(At at) const {
        const uint32_t index = first_[at.rank] + at.step;
        return std::span(followers_).subspan(follows_[index], follows_[index + 1] - follows_[index]);
    }

  private:
    void make_even(unsigned hosts, unsigned ranks, bool around);
    enum class Built : uint8_t {
        yes,
        unlike,   ///< few: hosts do not do alike
        too_many  ///< steps
    };
    Built build(const Algorithm &algorithm, bool few, uint64_t most);
    bool lay_out();
    void count_dependencies(uint32_t rank);
    bool match();
    [[nodiscard]] At index_of(int rank) const;

    Collective collective_;
    Placement placement_;
    std::optional<Symmetry> symmetry_;
    std::vector<int> ranks_;
    uint32_t hosts_ = 0;
    std::vector<Schedule> schedules_;
    std::vector<uint32_t> first_;
    std::vector<Node> nodes_;
    std::vector<uint32_t> follows_;
    std::vector<uint32_t> followers_;
};

}  // namespace flx::algorithms
