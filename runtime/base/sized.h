/// \file sized.h
/// Structs of flx.h that may grow at their end. A caller's is as long as it was in the flx.h that it was compiled with,
/// and says how long that is; what was added since means "as before" where it is zero. As Linux does for what system
/// calls take (copy_struct_from_user) and give.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "runtime/base/status.h"

namespace flx {

/// No struct of any version is longer: a size beyond is one that nobody set.
inline constexpr size_t kMostStructBytes = 4096;

/// Whether `bytes` may be the size of a version of T. `first`: bytes of its first member, which all versions have.
template <typename T>
constexpr bool is_size_of(size_t bytes, size_t first) {
    return bytes >= first && bytes <= kMostStructBytes && bytes % alignof(T) == 0;
}

/// What a caller's struct of `bytes` says; members beyond are zero in `mine`. False: it sets some that T does not have.
template <typename T>
bool read_sized(const void *theirs, size_t bytes, T &mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto *from = static_cast<const std::byte *>(theirs);
    const size_t known = std::min(bytes, sizeof(T));
    mine = T{};
    std::memcpy(&mine, from, known);
    return std::all_of(from + known, from + bytes, [](std::byte value) { return value == std::byte{0}; });
}

/// Fills a caller's struct of `bytes`: as much of `mine` as it has room for, and zeros in what T does not have.
template <typename T>
void write_sized(const T &mine, void *theirs, size_t bytes) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t known = std::min(bytes, sizeof(T));
    std::memcpy(theirs, &mine, known);
    std::memset(static_cast<std::byte *>(theirs) + known, 0, bytes - known);
}

}  // namespace flx
