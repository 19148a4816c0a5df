#include "apps/flx_schedule/goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace flx::schedule {

using algorithms::Schedule;
using algorithms::Step;
using algorithms::StepKind;
using algorithms::Written;

namespace {

class Goal {
  public:
    Goal(const Written &written, const GoalOptions &options) : written_(written), options_(options) {
        const size_t elements = options.cell == 0 ? options.elements : options.cell / options.element;
        cell_ = std::max<size_t>(elements, 1);
        most_cells_ = std::max<size_t>(cells(0), 1);
    }

    /// Cells of a block, of which the first ones are longest.
    [[nodiscard]] size_t cells(uint32_t block) const { return (length(block) + cell_ - 1) / cell_; }

    void rank(int rank, std::string &text) const {
        const Schedule &schedule = written_.schedules[static_cast<size_t>(rank)];
        fmt::format_to(std::back_inserter(text), "rank {} {{\n", rank);
        for (uint32_t step = 0; step < schedule.steps.size(); ++step)
            for (size_t cell = 0; cell < cells(schedule.steps[step].block); ++cell)
                operation(rank, schedule, step, cell, text);
        text += "}\n";
    }

  private:
    [[nodiscard]] size_t length(uint32_t block) const {
        return algorithms::block_extent(options_.elements, written_.schedules[0].blocks, block).count;
    }
    [[nodiscard]] size_t bytes(uint32_t block, size_t cell) const {
        return std::min(cell_, length(block) - cell * cell_) * options_.element;
    }
    [[nodiscard]] uint64_t tag(const Step &step, size_t cell) const {
        return (uint64_t{step.phase} * written_.schedules[0].blocks + step.block) * most_cells_ + cell;
    }
    static std::string label(uint32_t step, size_t cell) { return fmt::format("s{}_{}", step, cell); }

    /// The label of the step is that of what ends it.
    void operation(int rank, const Schedule &schedule, uint32_t number, size_t cell, std::string &text) const {
        const Step &step = schedule.steps[number];
        const size_t size = bytes(step.block, cell);
        const std::string name = label(number, cell);
        std::vector<std::string> begins;  // what waits for the steps before
        auto out = std::back_inserter(text);
        const auto receive = [&](int sender, const std::string &called) {
            fmt::format_to(out, "{}: recv {}b from {} tag {}\n", called, size, sender, tag(step, cell));
            begins.push_back(called);
        };
        const auto calculate = [&](double bytes_per_ns, size_t times) {
            const auto ns = static_cast<uint64_t>(static_cast<double>(size * times) / bytes_per_ns);
            fmt::format_to(out, "{}: calc {}\n", name, ns);
            for (const std::string &came : begins)
                fmt::format_to(out, "{} requires {}\n", name, came);
            begins.push_back(name);
        };
        switch (step.kind) {
            case StepKind::send:
                fmt::format_to(out, "{}: send {}b to {} tag {}\n", name, size, step.peer, tag(step, cell));
                begins.push_back(name);
                break;
            case StepKind::recv:
                receive(step.peer, name);
                break;
            case StepKind::recv_reduce:
                receive(step.peer, name + "r");
                calculate(options_.costs.add_bytes_per_ns, 1);
                break;
            case StepKind::gather_reduce:
                for (const int sender : schedule.group_of(step))
                    if (sender != rank)
                        receive(sender, fmt::format("{}r{}", name, sender));
                calculate(options_.costs.add_bytes_per_ns, schedule.group_of(step).size() - 1);
                break;
            case StepKind::copy:
                calculate(options_.costs.copy_bytes_per_ns, 1);
                break;
        }
        for (uint8_t d = 0; d < step.dependencies; ++d) {
            if (!step.holds(d, options_.in_place) || cell >= cells(schedule.steps[step.after[d]].block))
                continue;
            // What comes may come before; what is done with it may not.
            const std::string &waits =
                step.kind == StepKind::recv || step.kind == StepKind::send ? begins.front() : name;
            fmt::format_to(out, "{} requires {}\n", waits, label(step.after[d], cell));
        }
    }

    const Written &written_;
    const GoalOptions &options_;
    size_t cell_ = 1;
    size_t most_cells_ = 1;
};

}  // namespace

std::string to_goal(const Written &written, const GoalOptions &options, std::string &problem) {
    constexpr uint64_t kMost = 20'000'000;
    const Goal goal(written, options);
    uint64_t operations = 0;
    for (const Schedule &schedule : written.schedules)
        for (const Step &step : schedule.steps)
            operations += goal.cells(step.block);
    if (operations > kMost) {
        problem = fmt::format("there would be {} operations, more than {}; take longer cells", operations, kMost);
        return {};
    }
    std::string text = fmt::format("num_ranks {}\n", written.size());
    for (int rank = 0; rank < written.size(); ++rank)
        goal.rank(rank, text);
    return text;
}

}  // namespace flx::schedule
