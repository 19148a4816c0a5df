#include "algorithms/stages.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

class Stages {
  public:
    Stages(int rank, const Composition &composition) : rank_(rank), input_readers_(composition.blocks) {
        schedule_.blocks = composition.blocks;
        schedule_.input = composition.input;
        schedule_.output = composition.output;
        schedule_.scratch_slots = static_cast<uint16_t>(composition.scratch_slots);
    }

    /// Appends the steps that this rank, one of the group's, has in the stage.
    void add(const Stage &stage, const Algorithm &algorithm);
    Schedule take(uint8_t phases);

  private:
    using Location = std::tuple<Buffer, uint16_t, uint32_t>;
    static Location location(const Place &place, uint32_t block) { return {place.buffer, place.slot, block}; }
    uint32_t append(Step step, uint32_t first_of_stage);
    uint8_t group_index(const std::vector<int32_t> &group);
    uint32_t scratch_slots(uint32_t slots);

    int rank_;
    Schedule schedule_;
    std::map<Location, uint32_t> writers_;              ///< the last step that wrote it
    std::vector<std::vector<uint32_t>> input_readers_;  ///< by block: steps that read it from the input
};

/// The first of them.
uint32_t Stages::scratch_slots(uint32_t slots) {
    const uint32_t first = schedule_.scratch_slots;
    schedule_.scratch_slots = static_cast<uint16_t>(first + slots);
    return first;
}

uint8_t Stages::group_index(const std::vector<int32_t> &group) {
    const auto found = std::find(schedule_.groups.begin(), schedule_.groups.end(), group);
    if (found != schedule_.groups.end())
        return static_cast<uint8_t>(found - schedule_.groups.begin());
    schedule_.groups.push_back(group);
    return static_cast<uint8_t>(schedule_.groups.size() - 1);
}

/// `first_of_stage`: steps from there on have their dependencies from the stage's own algorithm.
uint32_t Stages::append(Step step, uint32_t first_of_stage) {
    const auto index = static_cast<uint32_t>(schedule_.steps.size());
    if (step.from.buffer != Buffer::none) {
        const auto writer = writers_.find(location(step.from, step.block));
        if (writer != writers_.end() && writer->second < first_of_stage)
            step.depends(writer->second);
        if (step.from.buffer == Buffer::input)
            input_readers_[step.block].push_back(index);
    }
    if (step.to.buffer == Buffer::output && schedule_.output == Layout::single) {
        // In place the result lies where block 0 of the input is until it was sent or added.
        for (const uint32_t reader : input_readers_[0])
            if (reader != index)
                step.depends_in_place(reader);
    }
    if (step.to.buffer != Buffer::none)
        writers_[location(step.to, step.block)] = index;
    schedule_.steps.push_back(step);
    return index;
}

void Stages::add(const Stage &stage, const Algorithm &algorithm) {
    const auto own = std::find(stage.group.begin(), stage.group.end(), rank_);
    const Request request{stage.collective, static_cast<int>(own - stage.group.begin()),
                          static_cast<int>(stage.group.size()), stage.root, nullptr};
    const Schedule part = algorithm.build(request);
    size_t most = 0;
    for (const std::vector<uint32_t> &blocks : stage.blocks)
        most = std::max(most, blocks.size());
    const uint32_t first_slot = scratch_slots(part.scratch_slots * static_cast<uint32_t>(most));
    const auto first_step = static_cast<uint32_t>(schedule_.steps.size());
    schedule_.phases = std::max(schedule_.phases, part.phases);

    const auto place = [&](const Place &of, uint32_t block, size_t copy) {
        switch (of.buffer) {
            case Buffer::input:
                return stage.input[block];
            case Buffer::output:
                return stage.output[block];
            case Buffer::scratch:
                return scratch(first_slot + of.slot * static_cast<uint32_t>(most) + static_cast<uint32_t>(copy));
            case Buffer::none:
                break;
        }
        return Place{};
    };
    std::vector<std::vector<uint32_t>> made(part.steps.size());  // by step of the part, for each of its block's blocks
    for (size_t i = 0; i < part.steps.size(); ++i) {
        const Step &step = part.steps[i];
        const std::vector<uint32_t> &blocks = stage.blocks[step.block];
        for (size_t copy = 0; copy < blocks.size(); ++copy) {
            Step whole = step;
            whole.block = blocks[copy];
            whole.peer = step.peer < 0 ? step.peer : stage.group[static_cast<size_t>(step.peer)];
            whole.from = place(step.from, whole.block, copy);
            whole.to = place(step.to, whole.block, copy);
            whole.finish = step.finish && stage.finishes;
            whole.dependencies = 0;
            whole.in_place_only = 0;
            if (step.kind == StepKind::gather_reduce) {
                std::vector<int32_t> group;
                for (const int32_t member : part.group_of(step))
                    group.push_back(stage.group[static_cast<size_t>(member)]);
                whole.group = group_index(group);
            }
            if (step.kind == StepKind::copy && whole.from == whole.to) {
                made[i].push_back(kNoStep);
                continue;
            }
            for (uint8_t d = 0; d < step.dependencies; ++d) {
                const std::vector<uint32_t> &before = made[step.after[d]];
                if ((step.in_place_only >> d & 1) == 0 && copy < before.size() && before[copy] != kNoStep)
                    whole.depends(before[copy]);
            }
            made[i].push_back(append(whole, first_step));
        }
    }
}

Schedule Stages::take(uint8_t phases) {
    schedule_.phases = std::max(schedule_.phases, phases);
    return std::move(schedule_);
}

}  // namespace

Schedule schedule_of(const Composition &composition, int rank, const Algorithm &near, const Algorithm &far,
                     uint8_t phases) {
    Stages stages(rank, composition);
    for (const Stage &stage : composition.stages)
        stages.add(stage, stage.tier == Stage::Tier::near ? near : far);
    return stages.take(phases);
}

}  // namespace flx::algorithms
