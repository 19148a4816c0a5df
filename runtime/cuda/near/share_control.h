/// \file share_control.h
/// How much of a large collective on GPUs goes through host memory: what the project's controller makes of rates that
/// were measured when memory was registered, and later of what calls took. Needs no GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/cuda/protocol/exchange.h"
#include "runtime/cuda/protocol/shares.h"
#include "runtime/shares/controller.h"

namespace flx::cuda {

inline constexpr int kGpuLinks = 2;  ///< nvlink, pcie
/// Collectives, and allreduces in place: what they bring to be added lands elsewhere, in rounds, and takes other times.
inline constexpr int kShareRows = static_cast<int>(kServed.size()) + 1;

/// Lies in shared memory; zero at first.
struct ShareTable {
    std::array<std::array<ShareBoard, kSizeClasses>, kShareRows> boards;
};

class ShareControl {
  public:
    /// `frozen`: the first shares stay.
    ShareControl(ShareTable &table, int rank, int ranks, bool frozen)
        : table_(table), rank_(rank), ranks_(ranks), frozen_(frozen) {}

    /// Equal on all ranks.
    void set_estimates(Collective collective, const std::array<LinkEstimate, kGpuLinks> &estimates);
    [[nodiscard]] bool knows(Collective collective) const { return first_[row_of(collective)] != nullptr; }

    struct Turn {
        int row = 0;
        uint64_t number = 0;   ///< of the call, among those of its row and size
        double share = 0;      ///< of `message`, over pcie
        bool sampled = false;  ///< the times of this call are wanted
    };
    /// The next call in which `message` bytes a peer may take either link. Learns from earlier ones: rank 0 does, for
    /// all. `in_place`: equal on all ranks.
    Turn next(Collective collective, uint64_t message, bool in_place);
    /// Notes the times of a call of which `turn.sampled`: `pcie_bytes` of `message` went that way.
    void tell(uint64_t message, const Turn &turn, uint64_t pcie_bytes, ShareBoard::Times times);

    /// The share that the first call gets: for reports.
    [[nodiscard]] double first_share(Collective collective, uint64_t message) const;
    /// For each collective and size that was called, how the last one was divided. What calls took is known to rank 0
    /// alone.
    [[nodiscard]] std::vector<Decision> explain() const;

  private:
    static constexpr int kInPlace = kShareRows - 1;
    struct Awaited {
        int row = 0;
        uint64_t message = 0;
        uint64_t number = 0;
        uint64_t pcie_bytes = 0;
    };
    [[nodiscard]] bool divides(Collective collective, uint64_t message) const;
    static int row_of(Collective collective, bool in_place = false) {
        assert(serves(collective));
        return collective == Collective::allreduce && in_place
                   ? kInPlace
                   : static_cast<int>(std::ranges::find(kServed, collective) - kServed.begin());
    }
    void learn();
    bool learn_from(const Awaited &awaited);

    ShareTable &table_;
    int rank_;
    int ranks_;
    bool frozen_;
    std::array<std::unique_ptr<Controller>, kShareRows> first_;   ///< these never learn: equal on all ranks
    std::array<std::unique_ptr<Controller>, kShareRows> learnt_;  ///< rank 0
    std::array<std::array<uint64_t, kSizeClasses>, kShareRows> calls_{};
    std::array<std::array<double, kSizeClasses>, kShareRows> last_{};           ///< shares over pcie
    std::array<std::array<uint64_t, kSizeClasses>, kShareRows> learnt_from_{};  ///< calls
    std::array<std::array<uint32_t, kSizeClasses>, kShareRows> proposed_{};     ///< plus 1; 0: none
    std::array<Awaited, 16> awaited_;                                           ///< a ring
    uint64_t awaited_begun_ = 0;
    uint64_t awaited_done_ = 0;
};

}  // namespace flx::cuda
