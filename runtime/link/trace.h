/// \file trace.h
/// What one rank's executor and links did with chunks, in order: for tests that replay it against the rules of the
/// protocol (tests/proof/trace_rules.h). Nothing is recorded, and a null pointer compared, unless a test attaches one.
/// Of exchanges (runtime/execute/exchange.h) only an alltoall(v) outside of a group is recorded: other messages are not
/// in the order of operations.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/link/link.h"

namespace flx {

/// Each with the chunk's header, its peer and the link, unless it says otherwise. Cells may be a part of the chunk's.
enum class TraceKind : uint8_t {
    begins,        ///< an operation; the sequence only
    sends,         ///< for the first time, from where it lies
    copies,        ///< likewise, from a copy: the source is free
    arrives,       ///< what it carries is for the running operation
    uses,          ///< cells are placed or added
    drops,         ///< cells that were used before
    keeps,         ///< a copy, and releases the arrival before it is used, or before its operation begins here
    acknowledges,  ///< the arrival is released
    acknowledged,  ///< the sender learns of it
    loses,         ///< the link to that peer; no header
    resends,       ///< over that link
    returns        ///< from the operation; the sequence only
};

struct TraceEvent {
    TraceKind kind{};
    int link = -1;
    int peer = -1;
    ChunkHeader header{};
};

/// One thread.
class Trace {
  public:
    void note(TraceKind kind, int link, int peer, const ChunkHeader &header) {
        events_.push_back({kind, link, peer, header});
    }
    [[nodiscard]] const std::vector<TraceEvent> &events() const { return events_; }

  private:
    std::vector<TraceEvent> events_;
};

}  // namespace flx
