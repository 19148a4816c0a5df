#include "apps/flx_trainer/buckets.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace flx::trainer {
namespace {

constexpr std::size_t kCorruptBytes = 4096;

}  // namespace

std::vector<Bucket> plan_buckets(std::size_t elements, std::size_t bucket_bytes) {
    const std::size_t most = std::max<std::size_t>(bucket_bytes / sizeof(float), 1);
    std::vector<Bucket> buckets;
    for (std::size_t end = elements; end > 0;) {
        const std::size_t count = std::min(most, end);
        end -= count;
        buckets.push_back({end, count});
    }
    return buckets;
}

void corrupt(std::span<float> chunk) {
    const std::size_t count = std::min(chunk.size(), kCorruptBytes / sizeof(float));
    // The exponent's top bit: values below 1 grow by 2^128 and stay finite, 0 becomes 2.
    constexpr std::uint32_t kMask = 0x40000000;
    for (float &value : chunk.last(count)) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        bits ^= kMask;
        std::memcpy(&value, &bits, sizeof(bits));
    }
}

}  // namespace flx::trainer
