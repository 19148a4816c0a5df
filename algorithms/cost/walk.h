/// \file walk.h
/// One execution of a step graph over a model of the machines: list scheduling in the order of time. A rank does one
/// thing at a time; what a host sends, and what it gets, goes through its rails one after another, and what leaves a
/// group of hosts through what leads out of that group.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/cost/model.h"
#include "algorithms/cost/step_graph.h"

namespace flx::algorithms {

/// How blocks are cut: into parts that go one after another, as executors pipeline their cells.
struct Parts {
    double bytes = 0;
    uint32_t count = 1;
};

/// What the end waited for, from the start on, in nanoseconds: the sum is the time of the call.
struct CriticalPath {
    double messages = 0;  ///< work of sending and receiving, apart from bytes
    double copies = 0;
    double sums = 0;
    double wire = 0;     ///< bytes on rails, or on what leads out of groups where they take longer there
    double queue = 0;    ///< waiting for rails, or for what leads out of groups
    double latency = 0;  ///< that of ways out of groups among it
    int near_hops = 0;
    int far_hops = 0;
};

/// What all ranks did. Where one host stands for all, times as many.
struct WalkReport {
    double near_bytes = 0;             ///< that ranks sent within their hosts
    double far_bytes = 0;              ///< to other hosts
    std::vector<double> across_bytes;  ///< by level of the fabric: out of a group
    double near_messages = 0;
    double far_messages = 0;
    double far_block = 0;  ///< bytes of a block, which is a message where it goes to another host
    CriticalPath path;
};

/// Nanoseconds from the start to the end of the last rank, and the work of the busiest rank.
struct Walked {
    double end = 0;
    double busiest = 0;
};

Walked walk(const StepGraph &graph, const Parts &parts, const CostModel &model, const Fabric &fabric,
            WalkReport *report);

}  // namespace flx::algorithms
