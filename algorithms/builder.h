/// \file builder.h
/// Private to the algorithms: appends steps to a schedule, and the arithmetic of ranks in a circle.
#pragma once

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "algorithms/registry.h"

namespace flx::algorithms {

inline constexpr Place kInput{Buffer::input, 0};
inline constexpr Place kOutput{Buffer::output, 0};
constexpr Place scratch(uint32_t slot) {
    return {Buffer::scratch, static_cast<uint16_t>(slot)};
}

/// No step: such entries in a list of dependencies are left out.
inline constexpr uint32_t kNoStep = UINT32_MAX;

/// `rank` + `by` on the circle of `size` ranks; `by` ≥ -size.
constexpr int around(int rank, int by, int size) {
    return (rank + by + size) % size;
}

/// Ranks in groups, of which there is a power of two: where `size` is none, the first ranks form pairs that take part
/// as one, the even rank for both. Groups follow each other as ranks do.
class Groups {
  public:
    Groups(int rank, int size)
        : groups_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), pairs_(size - groups_), rank_(rank) {}

    [[nodiscard]] int count() const { return groups_; }
    [[nodiscard]] bool paired() const { return rank_ < 2 * pairs_; }
    [[nodiscard]] bool absent() const { return paired() && rank_ % 2 == 1; }
    [[nodiscard]] int own() const { return paired() ? rank_ / 2 : rank_ - pairs_; }
    /// The rank that takes part for a group, which is its first; of `count()`, one beyond the last rank.
    [[nodiscard]] int first(int group) const { return group < pairs_ ? 2 * group : group + pairs_; }

  private:
    int groups_;
    int pairs_;
    int rank_;
};

/// Appends steps; each function returns the new step's index. `after` names the steps that it depends on.
class Builder {
  public:
    using Steps = std::initializer_list<uint32_t>;

    Builder(uint32_t blocks, uint8_t phases) {
        schedule_.blocks = blocks;
        schedule_.phases = phases;
    }

    uint32_t send(int peer, uint8_t phase, uint32_t block, Place from, Steps after = {}) {
        return add({.kind = StepKind::send, .phase = phase, .peer = peer, .block = block, .from = from}, after);
    }
    uint32_t recv(int peer, uint8_t phase, uint32_t block, Place to, Steps after = {}) {
        return add({.kind = StepKind::recv, .phase = phase, .peer = peer, .block = block, .to = to}, after);
    }
    uint32_t recv_reduce(int peer, uint8_t phase, uint32_t block, Place from, Place to, bool received_first,
                         Steps after = {}) {
        return add({.kind = StepKind::recv_reduce,
                    .phase = phase,
                    .received_first = received_first,
                    .peer = peer,
                    .block = block,
                    .from = from,
                    .to = to},
                   after);
    }
    /// Over all ranks 0 … size-1 in this order; the result is final.
    uint32_t gather_reduce(int size, uint8_t phase, uint32_t block, Place from, Place to, Steps after = {}) {
        schedule_.groups.resize(1);
        schedule_.groups[0].resize(static_cast<size_t>(size));
        std::iota(schedule_.groups[0].begin(), schedule_.groups[0].end(), 0);
        const uint32_t step =
            add({.kind = StepKind::gather_reduce, .phase = phase, .block = block, .from = from, .to = to}, after);
        return finish(step);
    }
    uint32_t copy(uint32_t block, Place from, Place to) {
        return add({.kind = StepKind::copy, .block = block, .from = from, .to = to}, {});
    }
    /// `step` must wait for `earlier` where it would overwrite what that reads. kNoStep: nothing.
    void wait_in_place(uint32_t step, uint32_t earlier) {
        if (earlier != kNoStep)
            schedule_.steps[step].depends_in_place(earlier);
    }
    /// The result of `step` is final.
    uint32_t finish(uint32_t step) {
        schedule_.steps[step].finish = true;
        return step;
    }

    Builder &input(Layout layout) {
        schedule_.input = layout;
        return *this;
    }
    Builder &output(Layout layout) {
        schedule_.output = layout;
        return *this;
    }
    Builder &slots(uint32_t count) {
        schedule_.scratch_slots = static_cast<uint16_t>(count);
        return *this;
    }
    Builder &reserve(size_t steps) {
        schedule_.steps.reserve(steps);
        return *this;
    }
    Schedule take() { return std::move(schedule_); }

  private:
    uint32_t add(Step step, Steps after) {
        for (const uint32_t earlier : after) {
            const auto known = step.after + step.dependencies;
            if (earlier != kNoStep && std::find(step.after, known, earlier) == known)
                step.depends(earlier);
        }
        schedule_.steps.push_back(step);
        return static_cast<uint32_t>(schedule_.steps.size() - 1);
    }

    Schedule schedule_;
};

/// The schedule of every collective on one rank: its input is the result.
Schedule alone(Collective collective);

extern const Algorithm kDirect;
extern const Algorithm kRing;
extern const Algorithm kDoubleBinaryTree;
extern const Algorithm kRecursiveDoubling;
extern const Algorithm kPrefixChain;
extern const Algorithm kPrefixDoubling;
extern const Algorithm kBinomialTree;
extern const Algorithm kBruck;
extern const Algorithm kLeadersBruck;
extern const Algorithm kLeadersDoubling;
extern const Algorithm kLeadersTree;
extern const Algorithm kLeadersDirect;
extern const Algorithm kLanesDirect;
extern const Algorithm kLanesRing;
extern const Algorithm kLanesDoubling;
extern const Algorithm kRecursiveHalving;
extern const Algorithm kLeadersHalving;
extern const Algorithm kLanesHalving;
extern const Algorithm kLeadersRing;

}  // namespace flx::algorithms
