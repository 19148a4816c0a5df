/// \file order.h
/// The order of one communicator's operations on the GPU: each begins after the one before, also on another stream, in
/// a CUDA graph or in a replay of one. A function of streams and captures; who asks carries out what it says.
#pragma once

#include <cstdint>

namespace flx::nccl {

/// There are two events per communicator: `last`, recorded after every operation, whether it is carried out now or when
/// a graph is replayed; and `captured`, recorded within a capture for that capture's own streams.
class Order {
  public:
    struct Steps {
        bool wait_last = false;      ///< before: the stream waits for `last`
        bool wait_captured = false;  ///< before: for `captured`
        bool external = false;       ///< what is done with `last` becomes nodes of the graph that is captured
    };

    /// For the next operation, on `stream` (a name that no other stream gets, as handles do); `capture` names the
    /// capture under way on it, 0: none. After it `last` is recorded, and in a capture `captured` as well.
    Steps next(uint64_t stream, uint64_t capture) {
        Steps steps;
        steps.external = capture != 0;
        if (capture != 0 && capture == capture_)
            steps.wait_captured = stream != stream_;
        else if (capture != 0)
            steps.wait_last = true;  // whatever comes before the graph, at each replay
        else
            // A replay may have come since, on whatever stream.
            steps.wait_last = any_ && (stream != stream_ || capture_ != 0 || graphs_);
        any_ = true;
        graphs_ = graphs_ || capture != 0;
        stream_ = stream;
        capture_ = capture;
        return steps;
    }

  private:
    uint64_t stream_ = 0;
    uint64_t capture_ = 0;
    bool any_ = false;
    bool graphs_ = false;
};

}  // namespace flx::nccl
