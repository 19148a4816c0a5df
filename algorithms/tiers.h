/// \file tiers.h
/// A collective in two tiers, as a list of stages: *near*, among the ranks of a host, and *far*, between hosts. What a
/// host has to send leaves it once, and what it gets comes once. Which algorithm or call carries out a stage, and how
/// long blocks are, is for whoever takes the list: schedules (stages.h), or a GPU's streams
/// (runtime/cuda/far/tiers.h).
///
/// - *leaders*: one rank of each host stands for it. Fewest messages: for what is small.
/// - *lanes*: the vector is cut into as many lanes as the largest host has ranks. Each rank carries a lane (on smaller
///   hosts several) between hosts, so all ranks of a host drive its rails.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/registry.h"

namespace flx::algorithms {

/// A collective among some of the ranks, on some of the blocks, in which this rank takes part.
struct Stage {
    enum class Tier : uint8_t { near, far };
    Tier tier = Tier::near;
    Collective collective = Collective::allreduce;
    std::vector<int> group;  ///< ranks of the whole; their indices are the stage's ranks. One alone copies
    int root = 0;            ///< index in `group`
    /// By block of the stage: the blocks of the whole that it stands for.
    std::vector<std::vector<uint32_t>> blocks;
    /// Where this rank's input and output of the stage are, by block of the whole.
    std::vector<Place> input;
    std::vector<Place> output;
    bool finishes = false;  ///< its sums are final
};

/// What one rank does, in this order.
struct Composition {
    uint32_t blocks = 1;  ///< that the whole is cut into
    Layout input = Layout::whole;
    Layout output = Layout::whole;
    uint32_t scratch_slots = 0;  ///< for what stages leave to each other
    std::vector<Stage> stages;
};

/// How stages are carried out.
enum class Carried : uint8_t {
    /// Cell by cell, each as soon as the stage before has it. On the root's host the root carries all.
    in_cells,
    /// One whole call after the other, of groups that hosts' ranks form by their indices on them. A call puts down this
    /// rank's own block, too, and never a sum within what is added, so hosts' sums lie in scratch. What a root has goes
    /// round its host first, which is fast, so that each rank carries a lane of it.
    in_calls
};

/// `blocks_between`: the blocks of the stages between hosts (of each lane), in the order in which this host first needs
/// them: in this order its sums are made, so that what is between hosts begins early, and not all hosts send to one.
/// Lanes are for allreduce, bcast, allgather and reduce_scatter_block, leaders for those but the last, barrier, reduce,
/// gather and scatter; in calls of those that have a root, by lanes bcast and by leaders reduce.
Composition compose(Family family, const Request &request, const std::vector<uint32_t> &blocks_between,
                    Carried carried = Carried::in_cells);

}  // namespace flx::algorithms
