#include "runtime/base/kept_memory.h"

#include "runtime/base/counters.h"

namespace flx {

std::byte *KeptMemory::take(size_t bytes) {
    constexpr size_t kLine = 64;
    in_vain_ = bytes_ > kAlwaysKept && bytes <= bytes_ / 2 ? in_vain_ + 1 : 0;
    if (bytes <= bytes_ && in_vain_ < kPatience)
        return memory_.get();
    memory_.reset();  // first: nobody needs what was in it
    bytes_ = 0;
    in_vain_ = 0;
    if (bytes == 0)
        return nullptr;
    Telemetry::count(telemetry().allocations);
    const size_t lines = (bytes + kLine - 1) / kLine * kLine;
    memory_.reset(static_cast<std::byte *>(std::aligned_alloc(kLine, lines)));
    if (memory_)
        bytes_ = lines;
    return memory_.get();
}

}  // namespace flx
