/// \file tiered_group.h
/// The GPUs of a communicator whose ranks are on several hosts, as many on each: large collectives go by NVLink within
/// a host, and only what is left goes between hosts (tiers.h). All else is FarGroup's.
///
/// What ends one tier ends the other. Where the far way gives up, or hears that another rank did, the near kernels are
/// told to; where a near peer is gone, the far way gives up before kernels do, so that nothing of theirs gets to other
/// hosts. A rank that lets its stream go has told all others before: who finishes with what came from it finds out
/// when the call ends, or the next one begins. Calls that do not belong together are found by FarLanes::compare.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/far/far_group.h"
#include "runtime/cuda/far/tiers.h"
#include "runtime/cuda/near/device_group.h"

namespace flx::cuda {

class TieredGroup final : public Group {
  public:
    /// `process`: as Group::make.
    TieredGroup(Bootstrap &bootstrap, uint64_t process, const Tiers &tiers, std::unique_ptr<FarHost> host,
                Health &health);
    ~TieredGroup() override;

    /// Collective. `why_flat`: as Group::make_far.
    Status make(const Config &config, const std::string &why_flat);

    Status enqueue(const Operation &call, CUstream_st *stream, std::span<const Showing> shown) override;
    Status run(const Operation &call) override;
    Status post(std::span<const Message> messages, CUstream_st *stream) override;
    [[nodiscard]] CUstream_st *stream() const override { return far_.stream(); }
    [[nodiscard]] int device() const override { return far_.device(); }
    Status finish() override;
    [[nodiscard]] bool failed() const override;
    [[nodiscard]] const char *way(const Operation &call) const override;
    Status add_memory(void *memory, size_t bytes) override;
    Status remove_memory(void *memory) override;
    // NCCL's programs keep what goes between hosts.
    Status expect_shown() override { return {}; }
    void show(const Operation & /*call*/, bool /*frozen*/, Showing &mine) override { mine = {}; }
    Status open_shown(std::span<const Showing> /*all*/) override { return {}; }
    void settle_shown(std::span<const Showing> /*all*/, bool /*opened*/) override {}
    void close_shown() override {}
    void close() override;
    void abandon() override;
    [[nodiscard]] std::vector<GpuLink> links() const override;
    [[nodiscard]] std::vector<Decision> explain() const override {
        return near_ != nullptr ? near_->explain() : std::vector<Decision>();
    }
    [[nodiscard]] std::vector<std::string> report() const override;

  private:
    /// The health of the near group, whose ranks are those of this host.
    class NearHealth final : public Health {
      public:
        explicit NearHealth(TieredGroup &group) : group_(group) {}
        Status look(int awaited, bool said) override;
        void progress() override { group_.health_.progress(); }

      private:
        TieredGroup &group_;
    };

    Status make_near(const Config &config);
    void free_near();
    Status find_shared_gpus();
    [[nodiscard]] bool in_tiers(const Operation &call) const;
    [[nodiscard]] Status failure() const;
    const algorithms::Composition &stages_of(const Operation &call);
    Status put(const TierStep &step, CUstream_st *stream);

    Bootstrap &bootstrap_;
    Health &health_;
    const uint64_t process_;
    const Tiers tiers_;
    NearHealth near_health_;
    FarGroup far_;
    std::unique_ptr<Bootstrap> host_;
    std::unique_ptr<DeviceGroup> near_;  ///< null: all is FarGroup's
    std::string why_flat_;
    uint64_t least_bytes_ = 0;  ///< of a vector that goes in tiers
    bool shared_ = false;       ///< ranks have GPUs in common
    int device_ = -1;
    char *staging_ = nullptr;
    uint64_t staging_bytes_ = 0;
    std::map<std::pair<algorithms::Collective, int>, algorithms::Composition> stages_;  ///< by root; kept once made
    std::vector<TierStep> steps_;  ///< of the call that is being put on its stream
};

}  // namespace flx::cuda
