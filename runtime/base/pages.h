/// \file pages.h
/// The size of the system's pages: 4 KiB, or up to 64 KiB, as on many machines with ARM processors.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace flx::shm {

/// A huge page's. Such are mapped as one where address and offset in the file agree in the bits below it.
inline constexpr size_t kHuge = size_t{2} << 20;

inline size_t page_bytes() {
    static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

}  // namespace flx::shm
