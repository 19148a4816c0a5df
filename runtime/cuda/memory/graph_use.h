/// \file graph_use.h
/// Whether there are CUDA graphs that use something of a communicator's, which must stay as long as they may be
/// replayed: CUDA tells when the last of them is gone.
#pragma once

#include <memory>

#include "runtime/base/status.h"

struct CUstream_st;

namespace flx::cuda {

class GraphUse {
  public:
    /// The graph that `stream` captures uses it from now on, and so do those that are made of that one. One thread at a
    /// time; puts nothing on the stream.
    Status begin(CUstream_st *stream);
    /// Until the last of them was destroyed and what it had under way has ended. Any thread, beside begin() as well.
    [[nodiscard]] bool lasts() const { return mark_.use_count() > 1; }

  private:
    std::shared_ptr<const char> mark_ = std::make_shared<const char>();
    unsigned long long capture_ = 0;  ///< the last one; CUDA gives no other one its number
};

}  // namespace flx::cuda
