/// \file farewell.h
/// Where ranks that give up a group of GPUs, each when it likes, say that they write to nobody's memory any more. A
/// rank whose memory peers write into may use it for something else once all of them have said so or are gone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/link/bootstrap.h"
#include "runtime/shm/memory/segment.h"

namespace flx::cuda {

class Farewell {
  public:
    /// Collective over ranks of one host.
    Status open(Bootstrap &bootstrap);
    /// Nothing of this rank's is under way any more, nor can a graph be replayed that writes.
    void say();
    /// Whether all others have said so, or their processes have ended. True where it was not opened: nobody knows of
    /// this rank's memory then.
    [[nodiscard]] bool all_said() const;

  private:
    [[nodiscard]] bool gone(int rank) const;

    std::unique_ptr<shm::Segment> segment_;
    mutable std::vector<int64_t> seen_gone_ns_;  ///< by rank; not 0: its process was no more then
    int rank_ = 0;
    int ranks_ = 1;
};

}  // namespace flx::cuda
