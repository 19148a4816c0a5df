#include "runtime/shm/memory/huge_pages.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#ifndef MADV_COLLAPSE  // Linux 6.1; older kernels say that they do not know it
#define MADV_COLLAPSE 25
#endif

namespace flx::shm {

size_t HugePages::page_bytes(std::string &why) {
    const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
    std::stringstream enabled;
    enabled << std::ifstream(folder + "enabled").rdbuf();
    size_t bytes = 0;
    std::ifstream(folder + "hpage_pmd_size") >> bytes;
    if (bytes == 0)
        why = "this kernel has no transparent huge pages";
    else if (enabled.str().find("[never]") != std::string::npos)
        why = fmt::format("{}enabled says never", folder);
    else
        return bytes;
    return 0;
}

void HugePages::used(const void *memory, size_t bytes) {
    // Some pages may be in use just now, or no huge one be free.
    constexpr uint32_t kLastTry = kUsesBefore + 2;
    if (page_bytes_ == 0 || bytes < page_bytes_)
        return;
    const auto address = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = (address + page_bytes_ - 1) / page_bytes_ * page_bytes_;
    const uintptr_t end = (address + bytes) / page_bytes_ * page_bytes_;
    if (begin >= end)
        return;
    auto *range =
        std::ranges::find_if(ranges_, [&](const Range &known) { return known.begin == begin && known.end == end; });
    if (range == ranges_.end()) {
        range = &ranges_[oldest_++ % ranges_.size()];
        *range = {begin, end};
    }
    if (range->uses == kLastTry || ++range->uses < kUsesBefore)
        return;
    // All at once, as the kernel first waits for every core.
    const bool done = madvise(reinterpret_cast<void *>(begin), end - begin, MADV_COLLAPSE) == 0;
    moved_ += done ? (end - begin) / page_bytes_ : 0;
    if (done || errno == EINVAL)  // or it is not memory for that, or not a kernel
        range->uses = kLastTry;
}

}  // namespace flx::shm
