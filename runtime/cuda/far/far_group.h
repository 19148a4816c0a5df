/// \file far_group.h
/// The GPUs of a communicator whose ranks are on several hosts, as far as collectives and messages go through pinned
/// host memory (far_lanes.h).
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cuda/far/far_lanes.h"
#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/near/group.h"

namespace flx::cuda {

class FarGroup {
  public:
    FarGroup(Bootstrap &bootstrap, std::unique_ptr<FarHost> host, Health &health, const Tiers &tiers)
        : bootstrap_(bootstrap), health_(health), host_(std::move(host)), tiers_(tiers) {}
    ~FarGroup();
    FarGroup(const FarGroup &) = delete;
    FarGroup &operator=(const FarGroup &) = delete;

    /// Collective.
    Status make(const Config &config);

    // These are what Group says of them.
    Status enqueue(const Operation &call, CUstream_st *stream);
    Status post(std::span<const Message> messages, CUstream_st *stream);
    [[nodiscard]] CUstream_st *stream() const { return stream_; }
    [[nodiscard]] int device() const { return device_; }
    Status finish();
    Status add_memory(void *memory, size_t bytes);
    Status remove_memory(void *memory);
    void close();
    [[nodiscard]] std::vector<GpuLink> links() const;

    /// Whether a call can be put on the stream.
    Status ready(CUstream_st *stream) const;
    /// These are what FarLanes says of them.
    Status enqueue_across(const Operation &call, uint64_t apart, CUstream_st *stream);
    Status compare(uint64_t signature) { return lanes_->compare(signature); }
    [[nodiscard]] bool busy() const { return lanes_ != nullptr && lanes_->busy(); }
    /// Why nothing comes any more, if so, here or elsewhere. Any thread.
    [[nodiscard]] Status failure() const;
    /// Any thread. From then on nothing that is on a stream gets to other hosts, and streams are let go.
    void give_up(Status why) { lanes_->give_up(std::move(why)); }
    /// Returns when nothing is under way.
    void drain();
    /// Lines for flx_info. `form`: what carries what.
    [[nodiscard]] std::vector<std::string> report(const std::string &form, const std::vector<GpuLink> &links) const;

  private:
    Status allocate(const Config &config);
    Status side_stream(uint32_t lane, CUstream_st *&stream);
    Status post_apart(std::span<const Message> messages, CUstream_st *stream);

    Bootstrap &bootstrap_;
    Health &health_;
    std::unique_ptr<FarHost> host_;
    const Tiers tiers_;
    int rank_ = 0;
    int ranks_ = 0;
    int device_ = -1;
    FarLayout layout_;
    char *memory_ = nullptr;
    std::unique_ptr<FarLanes> lanes_;
    CUstream_st *stream_ = nullptr;  ///< of blocking calls
    CUevent_st *event_ = nullptr;
    std::vector<CUstream_st *> sides_;  ///< by lane of messages; null until it is needed
    std::vector<std::pair<char *, size_t>> regions_;
};

}  // namespace flx::cuda
