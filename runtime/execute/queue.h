/// \file queue.h
/// The operations of a communicator that were issued and have not completed. Collectives begin in the order of their
/// numbers, which all ranks give alike; messages between pairs begin at once, since what they wait for may be behind a
/// collective. Small ones run side by side: they take long because of hops, not because of bytes. Of larger ones each
/// has all links to itself. Which run side by side is each rank's own affair. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/execute/eager.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/inbox.h"
#include "runtime/execute/pending.h"
#include "runtime/link/layout.h"
#include "runtime/link/slot.h"
#include "runtime/plan/call_log.h"
#include "runtime/shares/routes.h"

namespace flx {

class Queue {
  public:
    /// Operations that take less are brief: their waits do not yield to a program that keeps the core.
    static constexpr size_t kBriefBytes = 128 << 10;

    /// All outlive it.
    Queue(const Layout &layout, const LinkSlots &links, Routes &routes, CallLog &calls)
        : layout_(layout), links_(links), routes_(routes), calls_(calls), message_counts_(0) {}

    /// When links are what they will be. `comm`: the communicator's id.
    void start(uint32_t comm);
    /// Whether links to other hosts are looked at. Before the first operation.
    void set_over_rails(bool over_rails) { over_rails_ = over_rails; }
    /// From now on operations have noted, when they are done, when their phases were.
    void time_phases();
    /// Short messages may go on the spot over `link`, the first one, which carries all.
    void allow_eager(uint32_t comm, Link &link);

    /// A pending operation, as new. std::bad_alloc.
    Pending &acquire();
    void recycle(Pending &pending);
    [[nodiscard]] uint64_t next_sequence() { return ++sequence_; }
    /// The last that was given.
    [[nodiscard]] uint64_t sequence() const { return sequence_; }
    /// Issues what acquire() gave.
    void submit(Pending &pending) { waiting_.push_back(&pending); }
    /// Messages that are being gathered, and have numbers; null: none are.
    void hold(const Pending *group) { group_ = group; }

    /// One turn of everything that is under way.
    Status turn(bool &moved);
    /// After every turn: as Inbox. True if something was copied.
    bool set_aside_if_stuck() { return inbox_->set_aside_if_stuck(executor_links_); }
    /// All has ended, with this error.
    void abandon(const Status &status);
    /// No operation that begins from now on is alone, nor is what runs.
    void disturb();

    [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }
    [[nodiscard]] bool runs() const { return !running_.empty(); }
    /// Exactly one operation runs, and none waits.
    [[nodiscard]] bool runs_one() const { return running_.size() == 1 && waiting_.empty(); }
    /// Of those that run the oldest; null: none does.
    [[nodiscard]] const Operation *oldest() const { return running_.empty() ? nullptr : &running_.front()->operation; }
    [[nodiscard]] const Pending *oldest_pending() const { return running_.empty() ? nullptr : running_.front(); }
    /// One that must complete before all collectives have; null: there is none.
    [[nodiscard]] Pending *last_collective();
    /// Whom what runs needs, for Watch::check. Where a call waits for an operation that has not begun, it needs those
    /// before it.
    void awaited(std::vector<Awaited> &result) const;
    /// How far the oldest that runs has come.
    [[nodiscard]] Progress progress() const {
        return running_.empty() ? Progress() : running_.front()->executor->progress();
    }
    /// The least number in the call log of those that have not completed; `none` where there is no such.
    [[nodiscard]] uint64_t oldest_call(uint64_t none) const;

    // Short messages on the spot (eager.h).
    /// Null where they cannot, or while something is under way.
    [[nodiscard]] Eager *eager() { return idle() ? eager_.get() : nullptr; }
    [[nodiscard]] Inbox &inbox() { return *inbox_; }
    /// Says of messages that went on the spot that they are done.
    void done_at_once(const Pending &pending);

  private:
    static constexpr size_t kMostSideBySide = 16;

    Executor &idle_executor();
    [[nodiscard]] bool may_begin(const Pending &pending) const;
    Status begin_ready(bool &moved);
    Status begin_exchange(Pending &pending);
    [[nodiscard]] Routes::Outward for_other_hosts(const Exchange &exchange) const;
    void complete(size_t index);
    void learn(const Pending &pending);
    void end_lending();
    void note_done(const Pending &pending);
    void say_ended(const Pending &pending);
    [[nodiscard]] uint64_t ended_messages(int peer) const;

    const Layout &layout_;
    const LinkSlots &links_;
    Routes &routes_;
    CallLog &calls_;
    uint32_t comm_ = 0;
    bool over_rails_ = false;
    bool times_phases_ = false;
    uint64_t sequence_ = 0;
    MessageCounts message_counts_;
    std::vector<Link *> executor_links_;
    std::unique_ptr<Inbox> inbox_;
    std::unique_ptr<Eager> eager_;  ///< null where more than shared memory may carry messages
    std::vector<std::unique_ptr<Executor>> executors_;
    std::vector<Executor *> idle_executors_;
    std::vector<std::unique_ptr<Pending>> pendings_;
    std::vector<Pending *> idle_pendings_;
    std::vector<Pending *> waiting_;  ///< issued and not begun, in order
    std::vector<Pending *> running_;  ///< by executors, in the order in which they began
    const Pending *group_ = nullptr;
};

}  // namespace flx
