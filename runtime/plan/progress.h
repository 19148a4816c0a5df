/// \file progress.h
/// How far an operation has come, for those who look at it.
#pragma once

#include <cstdint>

namespace flx {

/// Of an operation that goes stage by stage: where its stage is. Others have one part.
enum class Part : uint8_t { all, within_host, between_hosts };

constexpr const char *name_of(Part part) {
    return part == Part::within_host ? "within the host" : part == Part::between_hosts ? "between hosts" : "";
}

/// Of one that waits.
struct Progress {
    uint16_t steps_done = 0;
    uint16_t steps = 0;  ///< of the schedule or the exchange that links carry, on this rank; 0: it has none
    uint8_t phase = 0;   ///< the first that has a step which is not done
    uint8_t phases = 0;  ///< of the schedule; 0: it has none
    Part part = Part::all;
    uint8_t spare = 0;
};
static_assert(sizeof(Progress) == sizeof(uint64_t));

/// A part of a call that is over: a phase of its schedule, or a stage.
struct PhaseDone {
    int64_t began_ns = 0;  ///< CLOCK_MONOTONIC; 0: with the call
    int64_t ended_ns = 0;  ///< its last step
    uint64_t bytes = 0;    ///< that this rank sent over links in it
    uint8_t phase = 0;     ///< from 0; steps of a later one may be done before its last one is
    uint8_t phases = 0;
    Part part = Part::all;
};

}  // namespace flx
