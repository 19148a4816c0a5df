/// \file device_beside.h
/// Two streams of work on a GPU at once, timed by events.
#pragma once

#include <functional>

struct CUstream_st;

namespace flx::bench::lab {

struct Work {
    CUstream_st *stream = nullptr;
    int pieces = 0;
    std::function<void()> put;  ///< one more on the stream
};

/// Seconds that a piece of each took while the other ran as well.
struct Pace {
    double one = 0;
    double other = 0;
};

/// Puts all of `other` on its stream, then all of `one`, and waits. Zero, or CUDA's error.
int run_together(const Work &one, const Work &other, Pace &pace);

}  // namespace flx::bench::lab
