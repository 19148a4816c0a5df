/// \file stages.h
/// Private to the algorithms: composes a schedule of stages, each an algorithm among some of the ranks on some of the
/// blocks. What a stage reads waits for the step of an earlier stage that wrote it, cell by cell, so stages overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "algorithms/builder.h"

namespace flx::algorithms {

/// What an algorithm does for one stage.
struct Stage {
    const Algorithm *algorithm = nullptr;
    Collective collective = Collective::allreduce;
    std::vector<int> group;  ///< ranks of the whole; their indices are the algorithm's ranks. One may be alone
    int root = 0;            ///< index in `group`
    /// By the algorithm's block: the blocks of the whole that it stands for.
    std::vector<std::vector<uint32_t>> blocks;
    /// Where this rank's input and output of the stage are, by block of the whole.
    std::function<Place(uint32_t)> input;
    std::function<Place(uint32_t)> output;
    bool finishes = false;  ///< its sums are final
};

class Stages {
  public:
    /// For one rank, of a schedule that is cut into `blocks`.
    Stages(int rank, uint32_t blocks);

    /// Appends the steps that this rank, one of the group's, has in the stage.
    void add(const Stage &stage);
    /// Copies a block of the input to the output; nothing where they are the same memory.
    void copy(uint32_t block, Place from, Place to);
    /// Scratch memory for `slots` blocks: the first slot.
    uint32_t scratch_slots(uint32_t slots);
    /// All ranks say the same number of phases, whichever stages they take part in: at least so many.
    void phases(uint8_t least) { schedule_.phases = std::max(schedule_.phases, least); }
    /// Says how blocks lie in the buffers.
    Stages &layouts(Layout input, Layout output);
    Schedule take();

  private:
    using Location = std::tuple<Buffer, uint16_t, uint32_t>;
    static Location location(const Place &place, uint32_t block) { return {place.buffer, place.slot, block}; }
    uint32_t append(Step step, uint32_t first_of_stage);
    uint8_t group_index(const std::vector<int32_t> &group);

    int rank_;
    Schedule schedule_;
    std::map<Location, uint32_t> writers_;              ///< the last step that wrote it
    std::vector<std::vector<uint32_t>> input_readers_;  ///< by block: steps that read it from the input
};

}  // namespace flx::algorithms
