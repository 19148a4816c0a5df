/// \file eager.h
/// Short messages between ranks of one host, sent and received on the spot: to issue an operation and to run an
/// executor takes several times as long as to carry eight bytes. What is on the link is what an executor would send:
/// either side may take the short way or leave the rest of its messages to an executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exchange.h"
#include "inbox.h"
#include "link.h"

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

  private:
    bool send(int peer, const Exchange::Message &message);
    bool receive(int peer, Exchange &exchange, bool &others);

    uint32_t comm_;
    Link &link_;
    int index_;
    Inbox &inbox_;
    std::vector<uint32_t> open_;  // steps
};

}  // namespace flx
