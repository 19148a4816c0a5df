/// \file liveness_peer.h
/// What the liveness responder keeps of its peers. Private to liveness.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/paths.h"
#include "runtime/process/liveness_doors.h"
#include "runtime/process/liveness_stream.h"
#include "runtime/process/liveness_wire.h"

namespace flx::liveness {

/// The most that one gap between questions adds to a peer's silence. A process that did not ask, or that was stopped
/// itself, did not listen either.
inline constexpr int64_t kSilencePerQuestion = 1'000'000'000;
/// The same of a path, which is asked more often.
inline constexpr int64_t kPathSilencePerQuestion = 50'000'000;
inline constexpr size_t kBrokenKept = 1024;

struct Path {
    Address address;
    bool refused = false;         // its port is closed there for datagrams
    bool refused_stream = false;  // and for connections
    const Door *door = nullptr;   // from which the system sends there; null: not known
};

struct Peer {
    uint64_t host = 0;
    PublicKey key{};
    std::unique_ptr<Session> session;  // made when something is said
    std::vector<Address> listens;      // all that it said
    std::vector<Path> paths;           // those that can be asked
    Stream *stream = nullptr;
    int64_t stream_tried_ns = 0;
    uint64_t by_datagram = 0;  // answers
    uint64_t by_stream = 0;
    uint64_t answers = 0;
    int64_t answered_ns = 0;  // when the latest question was asked that was answered by datagram
    bool waits = false;       // a question was sent since the last answer
    int64_t asked_ns = 0;     // when the last question was sent; 0: never
    int64_t silence_ns = 0;   // of the questions before the last one
    uint32_t asked_comm = 0;  // of the last question
    uint64_t asked_number = 0;
    uint32_t next_comm = 0;    // of a question that the rate limit held back, if about another communicator,
    uint64_t next_number = 0;  // and its number

    [[nodiscard]] int64_t silent(int64_t now) const {
        return waits ? silence_ns + std::min(now - asked_ns, kSilencePerQuestion) : 0;
    }
};

/// A route from one device of this host to one address of a peer.
struct Route {
    uint64_t uid = 0;
    uint32_t device = 0;  // index; 0: as the system routes
    const Door *door = nullptr;
    Address remote;
    PathReport report;
    int64_t asked_ns = 0;  // the last question
    int64_t silence_ns = 0;

    [[nodiscard]] int64_t silent(int64_t now) const {
        return report.unanswered != 0 ? silence_ns + std::min(now - asked_ns, kPathSilencePerQuestion) : 0;
    }
};

/// How a message came.
struct Origin {
    const Door *door = nullptr;
    Came came;
    Stream *stream = nullptr;  // or by none of these but a stream
};

/// Communicators that are broken, the latest kBrokenKept. The first word on each counts.
class BrokenList {
  public:
    void add(uint32_t comm, const Status &why) {
        if (find(comm) != nullptr)
            return;
        if (list_.size() == kBrokenKept)
            list_.pop_front();
        list_.emplace_back(comm, why);
    }
    [[nodiscard]] const Status *find(uint32_t comm) const {
        const auto found = std::find_if(list_.begin(), list_.end(), [&](const auto &b) { return b.first == comm; });
        return found == list_.end() ? nullptr : &found->second;
    }

  private:
    std::deque<std::pair<uint32_t, Status>> list_;
};

}  // namespace flx::liveness
