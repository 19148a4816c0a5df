/// \file lone_executor.h
/// An executor that has its inbox to itself and carries out one operation after the other, as a communicator does
/// whose calls all block.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/wait.h"
#include "runtime/execute/executor.h"

namespace flx::testing {

class LoneExecutor {
  public:
    /// As Executor; what cannot be used yet is copied after `patience_ns`.
    LoneExecutor(int rank, int size, std::vector<Link *> links, Router &router, int64_t patience_ns = 20'000'000)
        : links_(std::move(links)), inbox_(size, patience_ns), executor_(rank, size, 1, links_, router, inbox_) {}

    Executor *operator->() { return &executor_; }

    /// Starts, and returns when done.
    Status run(const Operation &operation, const Plan &plan, Waiter &waiter) {
        FLX_TRY(executor_.start(operation, plan));
        while (!executor_.done()) {
            bool moved = false;
            FLX_TRY(executor_.step(moved));
            const bool set_aside = inbox_.set_aside_if_stuck(links_);
            if (moved) {
                waiter.moved();
            } else if (!executor_.done() && !set_aside) {
                FLX_TRY(executor_.takes_long() ? waiter.pause_at_ease() : waiter.pause());
            }
        }
        executor_.phases_done(phases_);
        executor_.finish();
        return {};
    }
    /// Of the last operation, where they are timed.
    [[nodiscard]] const std::vector<PhaseDone> &phases() const { return phases_; }

  private:
    std::vector<Link *> links_;
    Inbox inbox_;
    Executor executor_;
    std::vector<PhaseDone> phases_;
};

}  // namespace flx::testing
