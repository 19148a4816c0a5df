#include "algorithms/resend.h"

#include <fmt/format.h>

#include <algorithm>

namespace flx::algorithms {
namespace {

/// The order of events of one cell index on all ranks, as a graph.
class Order {
  public:
    Order(const std::vector<Schedule> &schedules, const std::vector<std::vector<Match>> &matches, bool in_place,
          uint32_t long_blocks)
        : schedules_(schedules) {
        size_t nodes = 0;
        for (const Schedule &schedule : schedules) {
            first_.push_back(nodes);
            nodes += 2 * schedule.steps.size();
        }
        after_.resize(nodes);
        seen_.resize(nodes);
        for (size_t rank = 0; rank < schedules.size(); ++rank) {
            const std::vector<Step> &steps = schedules[rank].steps;
            for (uint32_t i = 0; i < steps.size(); ++i) {
                const Step &step = steps[i];
                if (step.block >= long_blocks)
                    continue;
                for (uint8_t d = 0; d < step.dependencies; ++d) {
                    // A dependency's block without this cell counts as done.
                    if (steps[step.after[d]].block < long_blocks && step.holds(d, in_place))
                        after_[end(rank, step.after[d])].push_back(begin(rank, i));
                }
                if (step.kind != StepKind::send)
                    continue;
                after_[begin(rank, i)].push_back(end(rank, i));
                after_[begin(rank, i)].push_back(begin(static_cast<size_t>(step.peer), matches[rank][i].step));
            }
        }
    }

    /// Post of a send, or the moment at which another step does the cell.
    [[nodiscard]] size_t begin(size_t rank, uint32_t step) const { return first_[rank] + 2 * size_t{step}; }
    /// A send's end; of other steps the same as their begin.
    [[nodiscard]] size_t end(size_t rank, uint32_t step) const {
        return begin(rank, step) + (schedules_[rank].steps[step].kind == StepKind::send ? 1 : 0);
    }

    /// Marks what surely happens after `event`, and `event`.
    void follow(size_t event) {
        ++round_;
        todo_.assign(1, event);
        seen_[event] = round_;
        while (!todo_.empty()) {
            const size_t at = todo_.back();
            todo_.pop_back();
            for (const size_t next : after_[at]) {
                if (seen_[next] != round_) {
                    seen_[next] = round_;
                    todo_.push_back(next);
                }
            }
        }
    }
    [[nodiscard]] bool marked(size_t event) const { return seen_[event] == round_; }

  private:
    const std::vector<Schedule> &schedules_;
    std::vector<size_t> first_;  // event of each rank
    std::vector<std::vector<size_t>> after_;
    std::vector<uint32_t> seen_;
    std::vector<size_t> todo_;
    uint32_t round_ = 0;
};

/// Places are equal or disjoint, in units of blocks: output, then the input unless they share memory, then scratch.
/// As Simulation::address where all blocks have one element.
size_t location(const Schedule &schedule, int rank, bool in_place, const Place &place, uint32_t block) {
    const size_t out = schedule.output == Layout::whole ? schedule.blocks : 1;
    const size_t in = schedule.input == Layout::whole ? schedule.blocks : 1;
    const size_t shared = schedule.input == Layout::single ? static_cast<size_t>(rank) : 0;
    switch (place.buffer) {
        case Buffer::output:
            return schedule.output == Layout::whole ? block : 0;
        case Buffer::input:
            return (in_place ? shared : out) + (schedule.input == Layout::whole ? block : 0);
        case Buffer::scratch:
            return out + in + place.slot;
        case Buffer::none:
            break;
    }
    return SIZE_MAX;
}

}  // namespace

std::string check_resend(const std::vector<Schedule> &schedules, const std::vector<std::vector<Match>> &matches,
                         Collective collective, bool in_place, uint32_t long_blocks, ResendReasons &reasons) {
    Order order(schedules, matches, in_place, long_blocks);
    for (size_t rank = 0; rank < schedules.size(); ++rank) {
        const Schedule &schedule = schedules[rank];
        const auto at = [&](const Place &place, const Step &step) {
            if (in_place && collective == Collective::scatter && place.buffer == Buffer::output)
                return rank;  // its own block of what it sends
            return location(schedule, static_cast<int>(rank), in_place, place, step.block);
        };
        for (uint32_t s = 0; s < schedule.steps.size(); ++s) {
            const Step &send = schedule.steps[s];
            if (send.kind != StepKind::send || send.block >= long_blocks)
                continue;
            std::vector<uint32_t> writes;
            for (uint32_t w = 0; w < schedule.steps.size(); ++w) {
                const Step &write = schedule.steps[w];
                const bool nothing_to_do = write.kind == StepKind::copy && at(write.from, write) == at(write.to, write);
                if (write.kind != StepKind::send && write.block < long_blocks && !nothing_to_do &&
                    at(write.to, write) == at(send.from, send))
                    writes.push_back(w);
            }
            const auto drop = [&](size_t &reason, const auto &holds) {
                const size_t before = writes.size();
                std::erase_if(writes, holds);
                reason += before - writes.size();
            };
            drop(reasons.written_before, [&](uint32_t w) {
                order.follow(order.begin(rank, w));
                return order.marked(order.begin(rank, s));
            });
            if (writes.empty())
                continue;
            const auto follows = [&](uint32_t w) { return order.marked(order.begin(rank, w)); };
            order.follow(order.end(rank, s));
            drop(reasons.send_ended, follows);
            const uint32_t use = matches[rank][s].step;
            order.follow(order.begin(static_cast<size_t>(send.peer), use));
            drop(reasons.receiver_used, follows);
            if (!writes.empty())
                return fmt::format("{} may overwrite what {} sent, neither after that send's end nor after {} used it",
                                   describe(static_cast<int>(rank), writes[0], schedule.steps[writes[0]]),
                                   describe(static_cast<int>(rank), s, send),
                                   describe(send.peer, use, schedules[static_cast<size_t>(send.peer)].steps[use]));
        }
    }
    return {};
}

}  // namespace flx::algorithms
