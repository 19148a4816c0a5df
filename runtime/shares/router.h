/// \file router.h
/// Where an executor asks over which links to send, and tells what it saw.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/shares/partition.h"

namespace flx {

/// Chooses vectors and learns from what happened. One thread at a time.
class Router {
  public:
    Router() = default;
    Router(const Router &) = delete;
    Router &operator=(const Router &) = delete;
    virtual ~Router() = default;
    /// The vector for a block of `bytes` to `peer`. Links of weight 0 only where it does not reach.
    virtual const PartitionVector &vector(int peer, size_t bytes, int phase) = 0;
    /// Links over which `peer` may send to this rank, as a bit mask.
    [[nodiscard]] virtual uint32_t incoming_links(int peer) const = 0;
    /// Links over which this rank may send to `peer`, as a bit mask: `peer` looks at them. Others never carry anything.
    [[nodiscard]] virtual uint32_t outgoing_links(int /*peer*/) const { return 0; }
    /// Links that may take cells of a message of `bytes` to `peer` without a slice of their own, as a bit mask.
    [[nodiscard]] virtual uint32_t takers(int /*peer*/, size_t /*bytes*/) const { return 0; }
    /// What `link` was found to deliver to `peer` in operations before, bytes/ns; 0: not known.
    [[nodiscard]] virtual double rate(int /*link*/, int /*peer*/) const { return 0; }
    /// Whether cells may move between links that work. Not where shares are forced.
    [[nodiscard]] virtual bool may_move_cells() const { return true; }
    /// `link` was seen to be lost towards `peer` in the middle of an operation.
    virtual void lost(int /*link*/, int /*peer*/) {}
};

}  // namespace flx
