/// \file trace_json.h
/// A trace as chrome://tracing and Perfetto read it, of the parts that processes wrote (trace_format.h): JSON, with a
/// row for each communicator of a rank and each of its links, and the clocks of the hosts set by what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/record/trace_part.h"

namespace flx::record {

/// What a trace was made of.
struct TraceMade {
    size_t ranks = 0;
    uint64_t calls = 0;
    uint64_t lost = 0;               ///< calls that are not in it
    std::vector<std::string> notes;  ///< sentences on what is not as it should be
};

/// Of one program, the first rank first; at least one. `file` must not be there. FLX_ERR_SYSTEM: it cannot be written.
Status write_trace(const std::string &file, const std::vector<TracePart> &parts, TraceMade &made);

}  // namespace flx::record
