/// \file reach.h
/// Which lines a communicator may use to a process: those on which it has a link that serves the process. What the
/// process has beside them (rails that FLX_LINKS leaves out, other communicators' links) is nothing to it: its peers
/// look for nothing there. Whoever asks for a communicator, in whatever matter, asks here.
///
/// All of it runs with the gate held.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/base/id_ranges.h"
#include "ucx_glue/line.h"
#include "ucx_glue/rail_link.h"

namespace flx::ucx {

class Reach {
  public:
    void add(Line &line) { lines_.push_back(&line); }
    void attached(const RailLink &link);
    void detached(const RailLink &link);

    /// Whether what is the communicator's may leave by the line, to whomever. What one that is gone has left behind, or
    /// what goes through this process for others, whose communicator it does not know, may use any.
    [[nodiscard]] bool may_leave(const Line &line, uint32_t comm) const;
    /// Whether the communicator may use the line to the target's process.
    [[nodiscard]] bool may_use(const Target &target, uint32_t comm) const;
    /// f(target) for each line that the communicator may use to the process, of a communicator that is there.
    template <typename Function>
    void each(uint32_t comm, int process, Function &&f) const {
        for (const Line *line : lines_)
            if (const RailLink *link = line->link(comm); link != nullptr && link->serves(process))
                f(*line->target(process));
    }
    /// Whether one of those lines is up.
    [[nodiscard]] bool direct(uint32_t comm, int process) const;
    /// The link that takes what came from the process: of the line with this index if it may, else any. Null: there is
    /// none yet.
    [[nodiscard]] RailLink *landing(uint32_t comm, int process, uint32_t line) const;
    /// Whether the communicator was here and is gone, and nobody waits for what comes for it.
    [[nodiscard]] bool gone(uint32_t comm) const { return gone_.contains(comm); }

  private:
    std::vector<const Line *> lines_;
    std::unordered_map<uint32_t, int> links_;  // of each communicator that is here
    IdRanges gone_;
};

}  // namespace flx::ucx
