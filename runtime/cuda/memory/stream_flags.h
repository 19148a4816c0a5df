/// \file stream_flags.h
/// Flags between the ranks' streams that no kernel sets or awaits: the front ends of GPUs write and poll them
/// (cuStreamBatchMemOp), so they take no multiprocessor and wait for none. They lie in host memory that all ranks have
/// mapped: the processor can set them as well, which lets streams go whose peer is gone.
#pragma once

#include <memory>
#include <vector>

#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/protocol/flag_words.h"
#include "runtime/link/bootstrap.h"
#include "runtime/shm/memory/segment.h"

namespace flx::cuda {

class StreamFlags {
  public:
    using Channel = FlagWords::Channel;

    StreamFlags() = default;
    StreamFlags(const StreamFlags &) = delete;
    StreamFlags &operator=(const StreamFlags &) = delete;
    ~StreamFlags() { close(); }

    /// Collective over ranks of one host; an error on all ranks where one cannot.
    Status open(Bootstrap &bootstrap);
    /// Called when nothing runs any more.
    void close();
    [[nodiscard]] bool opened() const { return segment_ != nullptr; }

    /// What FlagWords does, put on a stream.
    Status begin(CUstream_st *stream);
    Status end(CUstream_st *stream);
    Status tell(Channel channel, uint32_t peers, uint32_t times, CUstream_st *stream);
    Status hear(Channel channel, uint32_t peers, uint32_t times, CUstream_st *stream);

    /// Whether an operation is under way on the GPU. Any thread.
    [[nodiscard]] bool busy() const;
    /// Ends all waits. The data that they find then are of no use.
    void release();

  private:
    Status put(CUstream_st *stream);
    Status map(uint64_t bytes);

    std::unique_ptr<shm::Segment> segment_;
    bool registered_ = false;
    CUdeviceptr mapped_ = 0;  ///< as the GPU sees them
    FlagWords words_;
    std::vector<FlagStroke> strokes_;
    std::vector<CUstreamBatchMemOpParams> operations_;
};

}  // namespace flx::cuda
