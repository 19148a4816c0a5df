/// \file kept_memory.h
/// Memory that operations use one after the other: it grows to what they need and is kept, so that repeated ones
/// allocate nothing. What one large operation needed, and none of many after it, goes back to the system.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace flx {

class KeptMemory {
  public:
    static constexpr size_t kAlwaysKept = size_t{64} << 20;
    static constexpr int kPatience = 16;  ///< so many operations in a row that need at most half of it: it goes back

    /// Gives at least `bytes`, at the beginning of a cache line, with anything in it; they are valid until the next
    /// call. Null: the system has no more. To be called once for every operation, with 0 for one that needs none.
    std::byte *take(size_t bytes);
    [[nodiscard]] size_t bytes() const { return bytes_; }

  private:
    std::unique_ptr<std::byte, void (*)(void *)> memory_{nullptr, &std::free};
    size_t bytes_ = 0;
    int in_vain_ = 0;
};

}  // namespace flx
