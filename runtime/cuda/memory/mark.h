/// \file mark.h
/// A point on a stream: whether the GPU is past it. Also where FLX was built without CUDA, which then has no stream.
#pragma once

#include "runtime/base/status.h"

struct CUstream_st;

namespace flx::cuda {

class Mark {
  public:
    Mark() = default;
    ~Mark();
    Mark(const Mark &) = delete;
    Mark &operator=(const Mark &) = delete;

    /// Behind all that is on the stream now, which is one of the GPU `device`; where it was before it is no more.
    Status put(CUstream_st *stream, int device);
    /// `passed`: what was on the stream before is done, or failed, which the status tells. True of one that was not
    /// put.
    Status look(bool &passed) const;
    /// To no stream.
    void take_off() { put_ = false; }

  private:
    void *event_ = nullptr;  ///< CUDA's; used again
    int device_ = -1;
    bool put_ = false;
};

}  // namespace flx::cuda
