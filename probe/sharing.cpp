#include "probe/sharing.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace flx::probe {

uint32_t links_that_share(std::span<const Rates> links) {
    constexpr double kSlowed = 1.5;  // two of one wire are at 2; what is slowed less may be noise
    constexpr double kLeast = 0.7;   // of one link's rate alone, that they carry together
    constexpr double kMost = 1.3;
    constexpr double kFaster = 1.3;  // no link is so much faster among others: the measurement was disturbed
    uint32_t mask = 0;
    double used = 0;
    for (size_t i = 0; i < std::min<size_t>(links.size(), 32); ++i) {
        const Rates &link = links[i];
        if (link.together > kFaster * link.alone && link.alone > 0)
            return 0;
        if (link.together <= 0 || link.alone < kSlowed * link.together)
            continue;
        mask |= 1U << i;
        used += link.together / link.alone;
    }
    return std::popcount(mask) > 1 && used >= kLeast && used <= kMost ? mask : 0;
}

}  // namespace flx::probe
