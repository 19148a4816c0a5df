/// \file line.h
/// This process's connection to a store, which all of its groups of ranks there share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"
#include "runtime/store/server.h"
#include "runtime/store/wire.h"

namespace flx::store {

class Line {
  public:
    /// The process's connection as that rank of that store, which is made if there is none; rank 0 makes the store,
    /// too. Joins it once more: `group` is that of all ranks. Thread-safe.
    /// `meanwhile`, if there is one, is called again and again until then, and its error ends the wait.
    static Status join(const Place &place, const Meanwhile &meanwhile, std::shared_ptr<Line> &result, uint64_t &group);

    Line(const Place &place, uint64_t process) : place_(place), process_(process) {}
    Line(const Line &) = delete;
    Line &operator=(const Line &) = delete;

    [[nodiscard]] const Place &place() const { return place_; }
    /// For a group that this rank is the first member of: no other group at the store has it.
    [[nodiscard]] uint64_t new_id() const;

    /// Thread-safe, as all that follow. A payload of more than the store takes is an error.
    Status send(Kind kind, uint64_t group, uint32_t index, std::span<const std::byte> payload);
    /// What the store answers of `group`; `meanwhile` as in join(). What cannot come is the store's error.
    Status receive(uint64_t group, const Meanwhile &meanwhile, Frame &answer);

  private:
    using Clock = std::chrono::steady_clock;

    static std::string key_of(const Place &place);
    static Status find(const Place &place, std::shared_ptr<Line> &line);
    static Status nap(Clock::time_point until, const Meanwhile &meanwhile);
    Status connect(double deadline_s, Clock::time_point until, const Meanwhile &meanwhile);
    Status join_once(double deadline_s, Clock::time_point until, const Meanwhile &meanwhile, uint64_t &group,
                     bool &again);
    /// Reads what is there. With the lock.
    void pump();
    [[nodiscard]] Status broken() const;
    [[nodiscard]] bool ended();

    Place place_;
    uint64_t process_;
    std::unique_ptr<Server::Hold> server_;  ///< of rank 0
    std::mutex connecting_;
    std::atomic<bool> connected_ = false;  ///< once
    std::mutex mutex_;
    OwnDescriptor socket_;
    Incoming in_;
    Outgoing out_;
    std::map<uint64_t, std::deque<Frame>> came_;
    std::string why_ended_;  ///< empty: it has not
    bool foreign_ = false;   ///< what it was connected to is no store
    std::optional<Frame> refused_;
};

}  // namespace flx::store
