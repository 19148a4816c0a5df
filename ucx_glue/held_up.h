/// \file held_up.h
/// Connections of TCP that do not take what is to be sent, as the kernel knows them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flx::ucx {

/// Numbers of connections.
struct HeldUp {
    size_t broken = 0;   ///< had no room, and were broken, or had ended; one counts until it was closed
    size_t waiting = 0;  ///< have room again for what waits to be sent
};

/// Breaks each connection with the host `ipv4` (network byte order) that has no room for more: whoever reads from it
/// next finds it ended, and what was not delivered is lost. Nothing is found where the kernel does not tell.
///
/// `events`: a descriptor of epoll that watches connections, or further ones of its kind. No other connection of the
/// process is looked at.
HeldUp break_held_up(int events, uint32_t ipv4);

}  // namespace flx::ucx
