/// \file copy_engine.h
/// What copies host memory beside the cores: a GPU's copy engines (runtime/cuda/memory/host_copies.h), or a test's
/// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/shm/memory/pins.h"

namespace flx::shm {

class CopyEngine {
  public:
    /// Bytes of one copy, at most.
    static constexpr size_t kSlice = size_t{2} << 20;
    /// Copies under way, at most.
    static constexpr size_t kSlots = 4;

    CopyEngine() = default;
    CopyEngine(const CopyEngine &) = delete;
    CopyEngine &operator=(const CopyEngine &) = delete;
    /// Returns when nothing is under way.
    virtual ~CopyEngine() = default;

    /// The pins of a mapping, which outlives them.
    virtual std::unique_ptr<Pins> pin(std::byte *mapping) = 0;
    /// Begins a copy from and to memory that is held. False: it failed, and whether bytes will be written is not known
    /// before stop().
    virtual bool begin(std::byte *to, const std::byte *from, size_t bytes) = 0;
    /// So many of the oldest that were under way have ended since this was asked last. False: one failed.
    virtual bool ended(size_t &copies) = 0;
    /// Called after a failure. Nothing is written any more when it returns.
    virtual void stop() = 0;
    /// The engine's name for people.
    [[nodiscard]] virtual const std::string &name() const = 0;
};

}  // namespace flx::shm
