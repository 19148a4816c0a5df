/// \file staged_link.h
/// The PCIe link: through pinned host memory that all ranks of the host share, beside NVLink
/// (runtime/cuda/protocol/staging.h). Kernels copy (runtime/cuda/protocol/lane.h); where multiprocessors are spared
/// copy engines do, and streams exchange flags.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/memory/stream_flags.h"
#include "runtime/cuda/protocol/shares.h"
#include "runtime/cuda/protocol/staging.h"
#include "runtime/link/bootstrap.h"
#include "runtime/shm/memory/segment.h"

namespace flx::cuda {

class StagedLink {
  public:
    /// `flags`: used with copy engines instead of kernels where they are open.
    explicit StagedLink(StreamFlags &flags) : flags_(flags) {}
    StagedLink(const StagedLink &) = delete;
    StagedLink &operator=(const StagedLink &) = delete;
    ~StagedLink() { close(); }

    /// Collective: shares, pins and maps up to `pinned` bytes of each rank, near its GPU `device`, and `table` more.
    /// An error, on all ranks, leaves it closed. `blocks`: that a kernel may have at most; equal on all ranks.
    Status open(Bootstrap &bootstrap, int device, uint64_t pinned, uint64_t table, uint32_t blocks);
    /// Called when nothing runs any more.
    void close();
    [[nodiscard]] bool opened() const { return segment_ != nullptr; }
    [[nodiscard]] uint64_t pinned() const { return pinned_; }
    [[nodiscard]] int node() const { return node_; }
    /// Zero at first, and every rank's.
    [[nodiscard]] void *table() const { return segment_->base(); }

    /// An operation's share: lanes begin after what is on `stream`.
    Status begin(const Staging &staging, CUstream_st *stream);
    /// Lets the lanes wait for `event`.
    Status after(CUevent_st *event);
    /// The steps whose bytes lie before `end` in each part, of both lanes.
    Status advance(uint64_t end);
    /// `stream` waits for both lanes. `done`, unless null, is recorded then.
    Status finish(CUstream_st *stream, CUevent_st *done);

  private:
    class StreamLane;

    [[nodiscard]] CUstream_st *stream_of(Lane lane) const { return lane == Lane::out ? out_ : in_; }
    Status pin(int device, uint64_t ranks, uint64_t rank);
    Status launch(Lane lane, uint32_t first, uint32_t last);
    Status enqueue(Lane lane, uint32_t first, uint32_t last);

    StreamFlags &flags_;
    std::unique_ptr<shm::Segment> segment_;
    uint64_t table_bytes_ = 0;
    uint64_t pinned_ = 0;
    uint32_t teams_ = 1;
    char *slots_ = nullptr;  ///< as the GPU sees them
    int node_ = -1;          ///< of NUMA; -1: there is one
    bool registered_ = false;
    CUstream_st *out_ = nullptr;
    CUstream_st *in_ = nullptr;
    CUevent_st *event_ = nullptr;
    Staging staging_;
    uint32_t step_ = 0;
    // By signal: the steps of this operation that streams have signalled, and those that they have awaited.
    std::array<uint32_t, 2> told_{};
    std::array<uint32_t, 2> heard_{};
};

}  // namespace flx::cuda
