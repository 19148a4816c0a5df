#include "algorithms/cost/step_graph.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace flx::algorithms {
namespace {

/// More steps than this would take too much time and memory, a microsecond and some hundred bytes for each.
constexpr uint64_t kMostSteps = 1 << 20;

/// By ratio.
unsigned nearest_power_of_two(unsigned number) {
    const unsigned below = std::bit_floor(number);
    return number * number < 2 * below * below ? below : std::bit_ceil(number);
}

/// Whether consecutive ranks are on consecutive hosts, all of them in turn.
bool goes_round(const Placement &placement) {
    for (int rank = 0; rank < placement.size(); ++rank)
        if (placement.host[static_cast<size_t>(rank)] != rank % placement.hosts())
            return false;
    return true;
}

/// A message that a walked rank waits for.
struct Expected {
    int sender;
    uint8_t phase;
    uint32_t block;
    uint32_t step;
};

/// What one rank waits for, by sender and phase.
class Inbox {
  public:
    void add(const Expected &message) { by_block_.push_back(message); }
    void close() {
        by_step_ = by_block_;
        std::ranges::sort(by_block_, {}, [](const Expected &m) { return std::tuple(m.sender, m.phase, m.block); });
        std::ranges::sort(by_step_, {}, [](const Expected &m) { return std::tuple(m.sender, m.phase, m.step); });
    }
    [[nodiscard]] size_t size() const { return by_block_.size(); }
    /// Null where none is expected.
    [[nodiscard]] const Expected *of_block(int sender, uint8_t phase, uint32_t block) const {
        const auto found =
            std::ranges::lower_bound(by_block_, std::tuple(sender, phase, block), {},
                                     [](const Expected &m) { return std::tuple(m.sender, m.phase, m.block); });
        const bool there =
            found != by_block_.end() && found->sender == sender && found->phase == phase && found->block == block;
        return there ? &*found : nullptr;
    }
    /// The one of that place among those of one sender and phase.
    [[nodiscard]] const Expected *in_order(int sender, uint8_t phase, uint32_t place) const {
        const auto first = std::ranges::lower_bound(by_step_, std::tuple(sender, phase), {},
                                                    [](const Expected &m) { return std::tuple(m.sender, m.phase); });
        if (by_step_.end() - first <= static_cast<ptrdiff_t>(place))
            return nullptr;
        const auto found = first + place;
        return found->sender == sender && found->phase == phase ? &*found : nullptr;
    }

  private:
    std::vector<Expected> by_block_;
    std::vector<Expected> by_step_;
};

}  // namespace

StepGraph::StepGraph(const Algorithm &algorithm, Collective collective, const Placement &placement, Ranks ranks)
    : collective_(collective), placement_(placement) {
    const bool all = ranks == Ranks::all || (ranks == Ranks::by_size && placement.size() <= kAllWalked);
    if (all || algorithm.written != nullptr) {
        build(algorithm, false, UINT64_MAX);
        return;
    }
    const auto hosts = static_cast<unsigned>(placement.hosts());
    const auto size = static_cast<unsigned>(placement.size());
    const unsigned mean = std::max(1U, (size + hosts / 2) / hosts);
    const bool around = goes_round(placement);
    // All candidates of one communicator on the same machine, or they could not be compared.
    if (placement.size() > kAllWalked && placement.most() * placement.hosts() != placement.size())
        make_even(hosts, mean, around);
    const auto try_to = [&](bool few) {
        const bool served = placement_.size() == placement.size() || algorithm.serves(collective, placement_.size());
        return served ? build(algorithm, few, kMostSteps) : Built::unlike;
    };
    Built built = try_to(true);
    if (built == Built::unlike && try_to(false) == Built::yes)
        return;
    for (const unsigned count : {mean, nearest_power_of_two(mean)})
        if (built == Built::unlike) {
            make_even(std::bit_ceil(hosts), count, around);
            built = try_to(true);
        }
    if (built == Built::yes)
        return;
    ranks_.clear();
    schedules_.clear();
}

void StepGraph::make_even(unsigned hosts, unsigned ranks, bool around) {
    std::vector<int> host_of(static_cast<size_t>(hosts) * ranks);
    for (size_t rank = 0; rank < host_of.size(); ++rank)
        host_of[rank] = static_cast<int>(around ? rank % hosts : rank / ranks);
    placement_ = Placement::of(host_of);
}

StepGraph::Built StepGraph::build(const Algorithm &algorithm, bool few, uint64_t most) {
    symmetry_.reset();
    ranks_.clear();
    schedules_.clear();
    if (few && placement_.hosts() > 1)
        symmetry_ = Symmetry::find(algorithm, collective_, placement_);
    if (few && !symmetry_)
        return Built::unlike;
    const size_t count = few ? placement_.ranks[0].size() : placement_.host.size();
    const auto rank_at = [&](size_t i) { return few ? placement_.ranks[0][i] : static_cast<int>(i); };
    const auto schedule_at = [&](size_t i) {
        return algorithm.build({collective_, rank_at(i), placement_.size(), 0, &placement_});
    };
    // Where there seem to be too many they are counted before any is kept: the memory for a million of them takes
    // longer than they do.
    if (schedule_at(0).steps.size() * count > most) {
        uint64_t counted = 0;
        for (size_t i = 0; i < count && counted <= most; ++i)
            counted += schedule_at(i).steps.size();
        if (counted > most)
            return Built::too_many;
    }
    uint64_t steps = 0;
    for (size_t i = 0; i < count && steps <= most; ++i) {
        ranks_.push_back(rank_at(i));
        schedules_.push_back(schedule_at(i));
        steps += schedules_.back().steps.size();
    }
    if (steps > most)
        return Built::too_many;
    return lay_out() ? Built::yes : Built::unlike;
}

StepGraph::At StepGraph::index_of(int rank) const {
    return {static_cast<uint32_t>(symmetry_ ? placement_.local[static_cast<size_t>(rank)] : rank), 0};
}

/// False: the ranks that are walked do not receive what they send to each other.
bool StepGraph::lay_out() {
    hosts_ = symmetry_ ? 1 : static_cast<uint32_t>(placement_.hosts());
    first_.assign(1, 0);
    for (const Schedule &schedule : schedules_)
        first_.push_back(first_.back() + static_cast<uint32_t>(schedule.steps.size()));
    nodes_.assign(steps(), {});
    follows_.assign(nodes_.size() + 1, 0);
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank)
        count_dependencies(rank);
    for (size_t i = 1; i < follows_.size(); ++i)
        follows_[i] += follows_[i - 1];
    followers_.resize(follows_.back());
    // From the last step on, so that the first follower of each comes to stand first.
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank)
        for (uint32_t index = steps(rank); index-- > 0;) {
            const Step &step = schedules_[rank].steps[index];
            for (uint8_t d = 0; d < step.dependencies; ++d)
                if (step.holds(d, false))
                    followers_[--follows_[first_[rank] + step.after[d]]] = index;
        }
    return match();
}

/// Counts followers in the entry of each step, which the sums over them make the end of its part.
void StepGraph::count_dependencies(uint32_t rank) {
    const Schedule &schedule = schedules_[rank];
    const int own = ranks_[rank];
    const auto is_near = [&](int peer) {
        return placement_.host[static_cast<size_t>(peer)] == placement_.host[static_cast<size_t>(own)];
    };
    for (uint32_t index = 0; index < schedule.steps.size(); ++index) {
        const Step &step = schedule.steps[index];
        Node &node = nodes_[first_[rank] + index];
        node.step = &step;
        for (uint8_t d = 0; d < step.dependencies; ++d)
            if (step.holds(d, false)) {
                ++follows_[first_[rank] + step.after[d]];
                ++node.waits;
            }
        if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
            ++node.waits;
        if (step.kind == StepKind::gather_reduce)
            node.waits += static_cast<uint32_t>(schedule.group_of(step).size()) - 1;
        if (step.peer < 0)
            continue;
        node.is_near = is_near(step.peer);
        node.peer_host = placement_.host[static_cast<size_t>(step.peer)];
        node.to_host = symmetry_ ? 0 : node.peer_host;
        node.from_host = symmetry_ ? 0 : placement_.host[static_cast<size_t>(own)];
    }
}

/// Finds the step that takes what each send step sends. Where one host stands for all, what goes to another host is
/// taken by the rank that stands for the peer, as if it came from who stands to it as this rank does to the peer.
bool StepGraph::match() {
    std::vector<Inbox> inboxes(schedules_.size());
    size_t expected = 0;
    uint8_t phases = 1;
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank) {
        const Schedule &schedule = schedules_[rank];
        phases = std::max(phases, schedule.phases);
        for (uint32_t index = 0; index < schedule.steps.size(); ++index) {
            const Step &step = schedule.steps[index];
            if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
                inboxes[rank].add({step.peer, step.phase, step.block, index});
            if (step.kind == StepKind::gather_reduce)
                for (const int32_t member : schedule.group_of(step))
                    if (member != ranks_[rank])
                        inboxes[rank].add({member, step.phase, step.block, index});
        }
        inboxes[rank].close();
        expected += inboxes[rank].size();
    }
    std::vector<uint32_t> sent;  // by peer and phase
    for (uint32_t rank = 0; rank < schedules_.size(); ++rank) {
        if (symmetry_)
            sent.assign(static_cast<size_t>(placement_.size()) * phases, 0);
        for (Node *node = nodes_.data() + first_[rank]; node != nodes_.data() + first_[rank + 1]; ++node) {
            const Step &step = *node->step;
            if (step.kind != StepKind::send)
                continue;
            const Expected *found = nullptr;
            if (!symmetry_ || node->is_near) {
                node->receiver = index_of(step.peer);
                found = inboxes[node->receiver.rank].of_block(ranks_[rank], step.phase, step.block);
            } else {
                node->receiver = index_of(symmetry_->moved_back(step.peer, node->peer_host));
                const uint32_t place = sent[static_cast<size_t>(step.peer) * phases + step.phase]++;
                found = inboxes[node->receiver.rank].in_order(symmetry_->moved_back(ranks_[rank], node->peer_host),
                                                              step.phase, place);
            }
            if (found == nullptr)
                return false;
            node->receiver.step = found->step;
            --expected;
        }
    }
    return expected == 0;
}

}  // namespace flx::algorithms
