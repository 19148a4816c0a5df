/// \file between.h
/// What the stages between hosts, of an operation that goes stage by stage (staged.h), are given to. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/execute/pending.h"
#include "runtime/plan/operation.h"

namespace flx {

/// Of no bytes, addresses may be null; what is in its place already stays.
inline void put(std::byte *to, const std::byte *from, size_t bytes) {
    if (to != from && bytes != 0)
        std::memcpy(to, from, bytes);
}

/// What a stage between hosts is given to.
class Between {
  public:
    virtual ~Between() = default;
    /// Memory that lasts until the operation is done. std::bad_alloc.
    virtual std::byte *aside(size_t bytes) = 0;
    /// Gives a collective among `group`, this rank among them, with blocks that are the group's. `root`: index in it.
    virtual Status give(const Operation &operation, const algorithms::Algorithm &algorithm, const Blocks &blocks,
                        const std::vector<int> &group, int root) = 0;
    /// Messages that are to be given with give_messages(), and have the number of the operation that is named there.
    virtual Exchange &messages() = 0;
    virtual Status give_messages(const Operation &operation) = 0;
    /// The number of a further operation, which every rank of the communicator takes.
    virtual uint64_t next_number() = 0;
    /// Returns when all that was given is done.
    virtual Status carry() = 0;
};

}  // namespace flx
