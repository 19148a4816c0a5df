#include "algorithms/stages.h"

#include <algorithm>

namespace flx::algorithms {

Stages::Stages(int rank, uint32_t blocks) : rank_(rank), input_readers_(blocks) {
    schedule_.blocks = blocks;
}

Stages &Stages::layouts(Layout input, Layout output) {
    schedule_.input = input;
    schedule_.output = output;
    return *this;
}

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

void Stages::copy(uint32_t block, Place from, Place to) {
    append({.kind = StepKind::copy, .block = block, .from = from, .to = to}, UINT32_MAX);
}

void Stages::add(const Stage &stage) {
    const auto own = std::find(stage.group.begin(), stage.group.end(), rank_);
    const Request request{stage.collective, static_cast<int>(own - stage.group.begin()),
                          static_cast<int>(stage.group.size()), stage.root, nullptr};
    const Schedule part = stage.algorithm->build(request);
    size_t most = 0;
    for (const std::vector<uint32_t> &blocks : stage.blocks)
        most = std::max(most, blocks.size());
    const uint32_t first_slot = scratch_slots(part.scratch_slots * static_cast<uint32_t>(most));
    const auto first_step = static_cast<uint32_t>(schedule_.steps.size());
    schedule_.phases = std::max(schedule_.phases, part.phases);

    const auto place = [&](const Place &of, uint32_t block, size_t copy) {
        switch (of.buffer) {
            case Buffer::input:
                return stage.input(block);
            case Buffer::output:
                return stage.output(block);
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

Schedule Stages::take() {
    return std::move(schedule_);
}

}  // namespace flx::algorithms
