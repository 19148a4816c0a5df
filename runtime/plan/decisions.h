/// \file decisions.h
/// All that follows from what a call's peers know as well: the way that it goes, its signature, its record in the call
/// log. Programs call the same again and again, so the last decision of each collective is kept. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/plan/call_log.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/planner.h"

namespace flx {

/// Whether the operation is carried out in one go through shared memory, and not over links.
constexpr bool by_shared_memory(const Choice &choice) {
    return choice.way == Way::fused || choice.way == Way::streamed || choice.way == Way::fetched;
}

struct Decided {
    size_t count = SIZE_MAX;  ///< of the call; no call's where it is not kept
    flx_dtype_t dtype = FLX_INT8;
    flx_op_t op = FLX_SUM;
    int root = 0;
    uint32_t signature = 0;
    Choice choice;
    uint64_t shown = 0;  ///< bytes that this rank shows others in shared memory
    CallRecord record;
};

class Decisions {
  public:
    /// `overrides`: FLX_ALGORITHM. Before anything else.
    Status make(int rank, const Agreed &agreed, const std::string &overrides);

    /// The decision for a blocking call. It holds until the next call of this function.
    const Decided &decide(const Call &call) {
        const Operation &operation = call.operation;
        Decided &last = last_[algorithms::index_of(operation.collective)];
        const bool known = last.count == operation.count && last.dtype == operation.dtype && last.op == operation.op &&
                           last.root == operation.root;
        return known ? last : decide_anew(call, last);
    }
    /// The decision for a call that is carried out as `choice` says.
    [[nodiscard]] Decided decide(const Call &call, const Choice &choice, CallKind kind = CallKind::blocking) const;
    /// The same, kept until the next call of this.
    const Decided &decide_once(const Call &call, CallKind kind) {
        return once_ = decide(call, choose(call, true), kind);
    }
    /// `steps`: it goes step by step, as what does not block must.
    [[nodiscard]] Choice choose(const Call &call, bool steps) const;
    [[nodiscard]] std::vector<Planner::Candidate> candidates(algorithms::Collective collective, size_t bytes) const {
        return planner_->candidates(collective, bytes);
    }
    [[nodiscard]] std::vector<Planner::Candidate> all_candidates(algorithms::Collective collective,
                                                                 size_t bytes) const {
        return planner_->all_candidates(collective, bytes);
    }
    [[nodiscard]] const char *name(algorithms::Collective collective, size_t bytes, const Needs &needs) const {
        return planner_->name(collective, bytes, needs);
    }
    const Plan &plan(algorithms::Collective collective, const Choice &choice, int root) {
        return planner_->plan(collective, choice, root);
    }
    const Plan &plan_among(const algorithms::Algorithm &algorithm, algorithms::Collective collective,
                           const std::vector<int> &group, int root) {
        return planner_->plan_among(algorithm, collective, group, root);
    }
    [[nodiscard]] const algorithms::Placement &placement() const { return planner_->placement(); }
    /// Sets the ways for all calls from the next one on: the same on all ranks, between the same calls.
    void set_ways(const shm::Ways &ways) {
        planner_->set_ways(ways);
        last_.fill({});
    }

  private:
    const Decided &decide_anew(const Call &call, Decided &last);
    [[nodiscard]] uint32_t signature_of(const Call &call, const Choice &choice, CallKind kind) const;

    int rank_ = 0;
    int size_ = 1;
    std::unique_ptr<Planner> planner_;
    std::array<Decided, algorithms::kCollectives> last_;  ///< by collective
    Decided once_;
};

}  // namespace flx
