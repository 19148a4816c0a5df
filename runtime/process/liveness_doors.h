/// \file liveness_doors.h
/// The sockets of the liveness responder: for each address in use one for datagrams and one that takes connections, at
/// a port of its own. Private to liveness.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"
#include "runtime/process/liveness_wire.h"

namespace flx::liveness {

/// Where a datagram came in.
struct Came {
    Address from;
    uint32_t device = 0;  ///< index; 0: not known
};

class Door {
  public:
    /// Binds `at`, whose port is ignored. FLX_ERR_SYSTEM: says why not.
    static Status open(const Address &at, std::unique_ptr<Door> &result);

    [[nodiscard]] const Address &address() const { return address_; }
    [[nodiscard]] int datagrams() const { return datagrams_.get(); }
    [[nodiscard]] int connections() const { return connections_.get(); }

    /// Never blocks. False: the system knows no way now. A datagram that it drops for want of room counts as sent, as
    /// any may get lost.
    bool send(std::span<const std::byte> bytes, const Address &to) const;
    /// The same by one device of this host, whose index it is; 0: as the system routes.
    void send_by(std::span<const std::byte> bytes, const Address &to, uint32_t device) const;
    /// The next datagram; its length. -1: none now, -2: an error that an earlier one met, and which is cleared now.
    [[nodiscard]] ssize_t receive(std::span<std::byte> bytes, Came &came) const;
    /// The next destination whose port is closed there (ICMP); false: no further one.
    bool next_refused(Address &to) const;

  private:
    Address address_;
    OwnDescriptor datagrams_;
    OwnDescriptor connections_;
};

/// This host's address, without a port, from which the system would send to `to`; nothing: it knows no way.
std::optional<Address> source_towards(const Address &to);

}  // namespace flx::liveness
