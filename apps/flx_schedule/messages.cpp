#include "apps/flx_schedule/messages.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace flx::schedule {

using algorithms::Schedule;
using algorithms::Step;
using algorithms::StepKind;
using algorithms::Written;

namespace {

/// Hops before each step of each rank can be done.
class Hops {
  public:
    explicit Hops(const Written &written) : written_(written) {
        for (int rank = 0; rank < written.size(); ++rank) {
            const std::vector<Step> &steps = written.schedules[static_cast<size_t>(rank)].steps;
            known_.emplace_back(steps.size(), kUnknown);
            for (uint32_t step = 0; step < steps.size(); ++step)
                if (steps[step].kind == StepKind::send)
                    senders_[{rank, steps[step].peer, steps[step].phase, steps[step].block}] = step;
        }
    }

    /// The walk goes back over what a step waits for, without recursion, as chains are long.
    int before(int rank, uint32_t step) {
        std::vector<std::pair<int, uint32_t>> todo{{rank, step}};
        while (!todo.empty()) {
            const int at = todo.back().first;
            const uint32_t number = todo.back().second;
            const Schedule &schedule = written_.schedules[static_cast<size_t>(at)];
            const Step &one = schedule.steps[number];
            int most = 0;
            bool all = true;
            const auto wait = [&](int other, uint32_t earlier, int hops) {
                const int known = known_[static_cast<size_t>(other)][earlier];
                if (known == kUnknown)
                    todo.emplace_back(other, earlier);
                all = all && known != kUnknown;
                most = std::max(most, known + hops);
            };
            for (uint8_t d = 0; d < one.dependencies; ++d)
                wait(at, one.after[d], 0);
            const auto come = [&](int sender) { wait(sender, senders_.at({sender, at, one.phase, one.block}), 1); };
            if (one.kind == StepKind::recv || one.kind == StepKind::recv_reduce)
                come(one.peer);
            if (one.kind == StepKind::gather_reduce)
                for (const int sender : schedule.group_of(one))
                    if (sender != at)
                        come(sender);
            if (!all)
                continue;
            known_[static_cast<size_t>(at)][number] = most;
            todo.pop_back();
        }
        return known_[static_cast<size_t>(rank)][step];
    }

  private:
    static constexpr int kUnknown = -1;
    const Written &written_;
    std::vector<std::vector<int>> known_;
    std::map<std::tuple<int, int, int, uint32_t>, uint32_t> senders_;  ///< step, by sender, receiver, phase, block
};

}  // namespace

std::vector<Message> messages_of(const Written &written) {
    Hops hops(written);
    std::vector<Message> messages;
    for (int rank = 0; rank < written.size(); ++rank) {
        const std::vector<Step> &steps = written.schedules[static_cast<size_t>(rank)].steps;
        for (uint32_t step = 0; step < steps.size(); ++step)
            if (steps[step].kind == StepKind::send)
                messages.push_back(
                    {rank, steps[step].peer, steps[step].phase, steps[step].block, hops.before(rank, step)});
    }
    return messages;
}

int hops(const std::vector<Message> &messages) {
    int most = 0;
    for (const Message &message : messages)
        most = std::max(most, message.hop + 1);
    return most;
}

}  // namespace flx::schedule
