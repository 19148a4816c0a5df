/// \file far_group.h
/// The GPUs of a communicator whose ranks are on several hosts: collectives and messages go through pinned host memory
/// (far_lanes.h).
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "driver.h"
#include "far_lanes.h"
#include "group.h"

namespace flx::cuda {

class FarGroup final : public Group {
  public:
    FarGroup(Bootstrap &bootstrap, std::unique_ptr<FarHost> host, Health &health)
        : bootstrap_(bootstrap), health_(health), host_(std::move(host)) {}
    ~FarGroup() override;

    /// Collective.
    Status make(const Config &config);

    Status enqueue(const Call &call, CUstream_st *stream, std::span<const Showing> shown) override;
    Status run(const Call &call) override;
    Status post(std::span<const Message> messages, CUstream_st *stream) override;
    [[nodiscard]] CUstream_st *stream() const override { return stream_; }
    Status finish() override;
    [[nodiscard]] bool failed() const override { return !lanes_->failure().ok(); }
    [[nodiscard]] const char *way(const Call &call) const override;
    Status add_memory(void *memory, size_t bytes) override;
    Status remove_memory(void *memory) override;
    // NCCL's programs keep what goes between hosts.
    Status expect_shown() override { return {}; }
    void show(const Call & /*call*/, bool /*frozen*/, Showing &mine) override { mine = {}; }
    Status open_shown(std::span<const Showing> /*all*/) override { return {}; }
    void settle_shown(std::span<const Showing> /*all*/, bool /*opened*/) override {}
    void close_shown() override {}
    void close() override;
    [[nodiscard]] std::vector<GpuLink> links() const override;
    [[nodiscard]] std::vector<std::string> report() const override;

  private:
    Status allocate(const Config &config);
    Status side_stream(uint32_t lane, CUstream_st *&stream);
    Status post_apart(std::span<const Message> messages, CUstream_st *stream);

    Bootstrap &bootstrap_;
    Health &health_;
    std::unique_ptr<FarHost> host_;
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
