#include "tests/proof/interleave/programs.h"

namespace flx::interleave {

std::vector<Family> all_families() {
    std::vector<Family> all;
    for (std::vector<Family> &families :
         std::vector{fused_families(), channel_families(), stream_families(), mapped_families()})
        for (Family &family : families)
            all.push_back(std::move(family));
    return all;
}

}  // namespace flx::interleave
