/// \file eager.h
/// Short messages between ranks of one host, sent and received on the spot: to issue an operation and to run an
/// executor takes several times as long as to carry eight bytes. What is on the link is what an executor would send:
/// either side may take the short way or leave the rest of its messages to an executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/execute/exchange.h"
#include "runtime/execute/inbox.h"
#include "runtime/link/link.h"

namespace flx {

class Eager {
  public:
    /// Longer messages are for executors.
    static constexpr size_t kMostBytes = 8 << 10;

    /// `link`, of this index, reaches all peers; both outlive it. Links that keep the order of what they carry only.
    Eager(uint32_t comm, Link &link, int index, Inbox &inbox, int size);

    /// Begins an exchange that was started, while no other operation is under way. False: it is for an executor, all of
    /// it.
    [[nodiscard]] bool begin(const Exchange &exchange);
    /// Does what can be done now, and marks it done. True: more may come of it later; false: everything is done, or
    /// something came that is an executor's to judge.
    bool step(Exchange &exchange);

    // One message of an exchange that was not made yet; `bytes` not 0, at most kMostBytes. `signature`: of the length.
    enum class Got : uint8_t { nothing, message, other };
    /// False: there is no room now.
    bool send(int peer, uint64_t sequence, const void *from, size_t bytes);
    /// After `other`, which was kept for an executor, the rest is for executors.
    Got receive(int peer, uint64_t sequence, void *to, size_t bytes);

  private:
    bool send(int peer, uint64_t sequence, uint32_t signature, const void *from, size_t bytes);
    bool receive(int peer, Exchange &exchange, bool &others);

    uint32_t comm_;
    Link &link_;
    int index_;
    Inbox &inbox_;
    std::vector<uint32_t> open_;  // steps
};

}  // namespace flx
