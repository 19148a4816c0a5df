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
    /// An error as soon as a rank of the communicator is gone. `awaited`: the rank that kernels have been waiting for;
    /// -1: none. From the watcher's thread.
    virtual Status look(int awaited) = 0;
    /// Lets the program's own traffic move, while a blocking call waits.
    virtual void progress() = 0;
};

}  // namespace flx::cuda
