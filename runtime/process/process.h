/// \file process.h
/// What belongs to the process and is shared by its communicators: who it is, knobs, rails, the liveness responder.
/// Threads may make, use and free communicators of their own at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "probe/rail_plan.h"
#include "runtime/base/config.h"
#include "runtime/base/status.h"
#include "runtime/plan/call_log.h"
#include "runtime/process/guard.h"
#include "runtime/process/liveness.h"
#include "runtime/process/movable.h"
#include "runtime/process/reporter.h"
#include "runtime/record/recorder.h"
#include "ucx_glue/rails.h"

namespace flx {

/// A part of a sum, while it exists.
class Promise {
  public:
    Promise() = default;
    Promise(std::shared_ptr<std::atomic<size_t>> sum, size_t part) : sum_(std::move(sum)), part_(part) {
        *sum_ += part;
    }
    Promise(Promise &&other) noexcept : sum_(std::move(other.sum_)), part_(std::exchange(other.part_, 0)) {}
    Promise &operator=(Promise &&other) noexcept {
        std::swap(sum_, other.sum_);
        std::swap(part_, other.part_);
        return *this;
    }
    ~Promise() {
        if (sum_ != nullptr)
            *sum_ -= part_;
    }

  private:
    std::shared_ptr<std::atomic<size_t>> sum_;
    size_t part_ = 0;
};

class Process {
  public:
    /// The process's one object: made by the first communicator, gone with the last. `threads`: communicators may be
    /// used from several threads at once, FLX's own among them; `alone`: the program calls from one at a time.
    /// Thread-safe.
    static Status shared(bool threads, bool alone, std::shared_ptr<Process> &result);
    /// That object where there is one. Thread-safe.
    static std::shared_ptr<Process> existing();
    /// One of its own, for ranks that are threads.
    static Status make(bool threads, std::shared_ptr<Process> &result);
    /// A second one, with rails of its own, for threads of FLX's that carry out collectives beside the program's. Made
    /// by the first that asks, gone with the last that keeps it. Thread-safe.
    Status beside(std::shared_ptr<Process> &result);
    ~Process();
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    [[nodiscard]] const Config &config() const { return config_; }
    [[nodiscard]] uint64_t uid() const { return uid_; }
    /// Ranks with equal texts can share memory; FLX_HOST_ID overrides.
    [[nodiscard]] const std::string &memory_host() const { return memory_host_; }
    /// Ranks with equal texts have the same network devices.
    [[nodiscard]] const std::string &network_host() const { return network_host_; }
    [[nodiscard]] const std::string &hostname() const { return hostname_; }
    [[nodiscard]] Liveness &liveness() { return *liveness_; }

    /// An id greater than any that was claimed: what this process proposes for a new communicator. Thread-safe.
    [[nodiscard]] uint32_t free_comm_id() const;
    /// Takes `id`; false where it is no longer free, since another thread made a communicator meanwhile. Ids grow, so
    /// one that every member could claim is unique in each of them, for ever. Thread-safe.
    bool claim_comm_id(uint32_t id);

    /// The index of the process with `uid` for rails. Thread-safe.
    int index_of(uint64_t uid);

    /// Opens the rails of `plan` that are not open yet. Never null; the process's, and open as long as it lives, since
    /// peers that used a rail once know its address. Rails that fail are in problems(). Thread-safe.
    ucx::Rails *open_rails(const probe::RailPlan &plan);

    /// Communicators that can be used. One that was removed is not moved any more. Thread-safe.
    void add(Movable &comm);
    void remove(Movable &comm);
    /// Whether there are any. Thread-safe.
    [[nodiscard]] bool has_communicators();
    /// Moves what is under way on all but `comm`, on which the caller waits (null: on none): a peer may wait for that
    /// first. One that another thread is in is left to it.
    void move_others(const Movable *comm);
    /// Whether another thread may move a communicator while its own is not in it.
    [[nodiscard]] bool threads() const { return threads_; }
    /// Whether no thread of the program makes a call while another is in one.
    [[nodiscard]] bool alone() const { return alone_.load(std::memory_order_relaxed); }
    /// The communicator with this id, where it is found at once; null: it is not, or somebody moves them. It is what
    /// add() was given.
    Movable *find(uint32_t comm);
    /// The call in which this process waits for long.
    [[nodiscard]] BlockedCall &blocked_call() { return blocked_call_; }

    /// Where calls are recorded.
    [[nodiscard]] record::Recorder &recorder() { return *recorder_; }
    /// Says what goes on on this host.
    [[nodiscard]] Reporter &reporter() { return *reporter_; }

    /// `ranks` of the program are on this host, as far as a communicator or the launcher knows. The most so far.
    int ranks_here(int ranks);

    /// Bytes of shared memory that communicators may still reserve, since they began with less. Thread-safe.
    [[nodiscard]] size_t promised_memory() const { return *promised_; }
    /// So many more, until the promise goes.
    Promise promise_memory(size_t bytes) { return {promised_, bytes}; }

    /// What this process's communicators have found out, for further ones, by a key of what it depends on. Thread-safe.
    void remember(const std::string &key, std::string found);
    [[nodiscard]] bool remembers() const;
    /// Empty: nothing.
    [[nodiscard]] std::string recall(const std::string &key) const;

    /// What lost rails have cost so far. Thread-safe.
    [[nodiscard]] ucx::FailoverCounters failover_counters();

    /// A thread begins or ends an operation that uses rails. Who leaves while others are inside may leave the rails to
    /// them; the last one sees to it that nothing stays behind.
    void enter_rails() {
        inside_rails_.fetch_add(1, std::memory_order_acq_rel);
        rails_->enter();
    }
    void leave_rails() {
        const bool restless = rails_->restless();
        rails_->leave();
        inside_rails_.fetch_sub(1, std::memory_order_acq_rel);
        if (restless && guard_)
            guard_->stay_up();
    }
    [[nodiscard]] bool rails_in_use() const { return inside_rails_.load(std::memory_order_acquire) != 0; }

  private:
    Process() = default;

    Config config_;
    uint64_t uid_ = 0;
    bool threads_ = false;
    std::atomic<bool> alone_{true};
    BlockedCall blocked_call_;
    record::Recorder *recorder_ = nullptr;
    std::string memory_host_;
    std::string network_host_;
    std::string hostname_;
    std::unique_ptr<Liveness> liveness_;
    std::unique_ptr<Reporter> reporter_;
    mutable std::mutex mutex_;  ///< of what follows; taken only where communicators are made
    uint32_t free_comm_id_ = 1;
    std::unordered_map<uint64_t, int> peers_;
    std::unordered_map<std::string, std::string> remembered_;
    std::shared_ptr<std::atomic<size_t>> promised_ = std::make_shared<std::atomic<size_t>>(0);
    std::unique_ptr<ucx::Rails> rails_;
    std::unique_ptr<Guard> guard_;
    int ranks_here_ = 1;
    std::weak_ptr<Process> beside_;
    class List;
    std::atomic<bool> listed_{false};  ///< somebody has the list
    std::vector<Movable *> communicators_;
    alignas(64) std::atomic<int> inside_rails_{0};
};

}  // namespace flx
