/// \file share_control.h
/// How much of a large collective on GPUs goes through host memory: what the project's controller makes of rates that
/// were measured when memory was registered, and later of what calls took. Needs no GPU.
#pragma once

#include <array>
#include <memory>

#include "controller.h"
#include "shares.h"

namespace flx::cuda {

inline constexpr int kGpuLinks = 2;  ///< nvlink, pcie
inline constexpr int kGpuKinds = 6;

/// Lies in shared memory; zero at first.
struct ShareTable {
    std::array<std::array<ShareBoard, kSizeClasses>, kGpuKinds> boards;
};

class ShareControl {
  public:
    /// `frozen`: the first shares stay.
    ShareControl(ShareTable &table, int rank, int ranks, bool frozen)
        : table_(table), rank_(rank), ranks_(ranks), frozen_(frozen) {}

    /// Equal on all ranks.
    void set_estimates(Kind kind, const std::array<LinkEstimate, kGpuLinks> &estimates);
    [[nodiscard]] bool knows(Kind kind) const { return first_[index(kind)] != nullptr; }

    struct Turn {
        uint64_t number = 0;   ///< of the call, among those of its kind and size
        double share = 0;      ///< of `message`, over pcie
        bool sampled = false;  ///< the times of this call are wanted
    };
    /// The next call in which `message` bytes a peer may take either link. Learns from earlier ones: rank 0 does, for
    /// all.
    Turn next(Kind kind, uint64_t message);
    /// What a call took here, of which `turn.sampled`: `pcie_bytes` of `message` went that way.
    void tell(Kind kind, uint64_t message, const Turn &turn, uint64_t pcie_bytes, ShareBoard::Times times);

    /// For reports: what the next call would get.
    [[nodiscard]] double first_share(Kind kind, uint64_t message) const;

  private:
    struct Awaited {
        Kind kind = Kind::allgather;
        uint64_t message = 0;
        uint64_t number = 0;
        uint64_t pcie_bytes = 0;
    };
    [[nodiscard]] bool divides(Kind kind, uint64_t message) const;
    static int index(Kind kind) { return static_cast<int>(kind); }
    void learn();
    bool learn_from(const Awaited &awaited);

    ShareTable &table_;
    int rank_;
    int ranks_;
    bool frozen_;
    std::array<std::unique_ptr<Controller>, kGpuKinds> first_;   ///< never told anything: equal on all ranks
    std::array<std::unique_ptr<Controller>, kGpuKinds> learnt_;  ///< rank 0
    std::array<std::array<uint64_t, kSizeClasses>, kGpuKinds> calls_{};
    std::array<std::array<uint32_t, kSizeClasses>, kGpuKinds> proposed_{};  ///< plus 1; 0: none
    std::array<Awaited, 16> awaited_;                                       ///< a ring
    uint64_t awaited_begun_ = 0;
    uint64_t awaited_done_ = 0;
};

}  // namespace flx::cuda
