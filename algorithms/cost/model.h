/// \file model.h
/// What a prediction knows of the machines: plain data, the same on all ranks.
#pragma once

#include <vector>

namespace flx::algorithms {

/// How messages go between two ranks of one kind: of one host, or of two.
struct TierCost {
    double latency_ns = 0;    ///< from the end of the sender's work to the beginning of the receiver's
    double send_ns = 0;       ///< of the sender's work for each message
    double receive_ns = 0;    ///< of the receiver's
    double bytes_per_ns = 1;  ///< of a rank's copies within a host; of all rails of a host together, each way, between
};

struct CostModel {
    TierCost near;
    TierCost far;
    // Where ranks show each other something in shared memory: until one sees what all have shown.
    double wait_ns = 300;
    double wait_rank_ns = 150;  ///< in addition, for each rank of the host
    /// Of the sender's work and of the receiver's for a message between hosts, in addition, where none goes back from
    /// that peer which could carry its acknowledgement.
    double alone_ns = 0;
    double copy_bytes_per_ns = 8;  ///< what a rank does with bytes that it sends to, or got from, another host
    double add_bytes_per_ns = 6;
};

/// Switches that join groups of hosts. What goes from one group to another shares what leads out of the group.
struct Level {
    int hosts = 1;          ///< of a group; hosts that follow each other are one
    double taper = 1;       ///< what the group's hosts send together at most, over what leads out of it
    double latency_ns = 0;  ///< of the way out of a group and into another, in addition
};

/// A host whose ranks take so many times as long for messages, copies and sums.
struct SlowHost {
    int host = -1;  ///< -1: there is none
    double times = 1;
};

/// What planners do not know: the network between hosts, from the inside out, and a host that is slow. Without levels,
/// all hosts are on one switch that blocks nothing.
struct Fabric {
    std::vector<Level> levels;
    SlowHost slow = {};
};

}  // namespace flx::algorithms
