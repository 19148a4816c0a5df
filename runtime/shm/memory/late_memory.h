/// \file late_memory.h
/// Memory of a segment that nobody reserved when the segment was made, as a communicator may never need it. Whoever
/// writes a part of it reserves that part first; nobody may read what was not reserved.
#pragma once

#include <cstddef>

#include "runtime/base/status.h"

namespace flx::shm {

class LateMemory {
  public:
    LateMemory() = default;
    LateMemory(const LateMemory &) = delete;
    LateMemory &operator=(const LateMemory &) = delete;
    virtual ~LateMemory() = default;

    /// Reserves `bytes` from `memory` on, near to the core that asks. Thread-safe. FLX_ERR_SYSTEM, and nothing is
    /// reserved, where that is more than half of what is free in /dev/shm: others need some, too.
    virtual Status reserve(std::byte *memory, size_t bytes) = 0;
    /// So that first uses of what all have reserved do not stop for each page, which is half of what making it takes.
    /// Nothing is done where that would take many ranks long.
    virtual void map_pages(std::byte *memory, size_t bytes) = 0;
    /// Gives it back to the system. What was written there is zero again.
    virtual void give_back(std::byte *memory, size_t bytes) = 0;
};

}  // namespace flx::shm
