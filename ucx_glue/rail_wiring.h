/// \file rail_wiring.h
/// What is asked of rails while a communicator is made, and never again.
#pragma once

#include <cstddef>

#include "runtime/link/link.h"
#include "ucx_glue/rails.h"

namespace flx::ucx {

/// Connections of one rail to one process, each of which takes a descriptor over TCP: one for chunks, one for
/// acknowledgements (rail.h).
inline constexpr size_t kConnections = 2;
/// Those over TCP that were not made yet, and may be, to all processes that are known.
size_t connections_to_make(const Rails &rails);
/// Whether Rails::connect was called for the pair.
bool knows(const Rails &rails, int rail, int process);

/// The peer has no such link, which one rank alone may have dropped: from now on this end of it, which Rails::link
/// made, does not reach the peer, and what came from there is given back. What a line loses is sent again only where
/// the peer looks for it.
void part(Link &link, int peer);

}  // namespace flx::ucx
