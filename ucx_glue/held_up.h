/// \file held_up.h
/// Connections of TCP that do not take what is to be sent, as the kernel knows them.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "runtime/link/paths.h"

namespace flx::ucx {

/// Numbers of connections.
struct HeldUp {
    size_t broken = 0;   ///< were broken, or end; one counts until it was closed
    size_t full = 0;     ///< have no room, and were left
    size_t waiting = 0;  ///< have room for what waits to be sent
};

enum class Break : uint8_t { still, full };

/// Breaks connections with the host at `address` that have no room for more, all or those that stand
/// still: of which nothing was acknowledged for 100 ms. Whoever reads from one next finds it ended, and what was not
/// delivered is lost. Nothing is found where the kernel does not tell.
///
/// `events`: a descriptor of epoll that watches connections, or further ones of its kind. No other connection of the
/// process is looked at.
HeldUp break_held_up(int events, const HostAddress &address, Break which);

/// The address in a socket's: of IPv4 or IPv6, but for those that mean nothing without a device (fe80::).
HostAddress host_of(const sockaddr &address);

}  // namespace flx::ucx
