/// \file health.h
/// What those who wait for other ranks' GPUs ask of the communicator.
#pragma once

#include "runtime/base/status.h"

namespace flx::cuda {

class Health {
  public:
    Health() = default;
    Health(const Health &) = delete;
    Health &operator=(const Health &) = delete;
    virtual ~Health() = default;
    /// An error as soon as a rank of the communicator is gone. `awaited`: the rank that kernels wait for, or -1: none,
    /// as they `said`. If they did not, one that may be waited for, or -1: it is not known. Only one thread has what
    /// they said.
    virtual Status look(int awaited, bool said) = 0;
    /// Lets the program's own traffic move, while a blocking call waits.
    virtual void progress() = 0;
};

}  // namespace flx::cuda
