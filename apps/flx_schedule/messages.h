/// \file messages.h
/// The messages of a schedule that is right (algorithms::prove), and which of them can travel at once. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/written.h"

namespace flx::schedule {

struct Message {
    int sender = 0;
    int receiver = 0;
    uint8_t phase = 0;
    uint32_t block = 0;
    int hop = 0;  ///< messages that must have come before it, one after the other
};

/// In the order of senders and their steps.
std::vector<Message> messages_of(const algorithms::Written &written);
/// Messages in the longest chain.
int hops(const std::vector<Message> &messages);

}  // namespace flx::schedule
