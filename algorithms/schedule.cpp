#include "algorithms/schedule.h"

#include <cassert>

namespace flx::algorithms {

Step &Step::depends(uint32_t step) {
    assert(dependencies < kMaxDependencies);
    after[dependencies++] = step;
    return *this;
}

Step &Step::depends_in_place(uint32_t step) {
    in_place_only = static_cast<uint8_t>(in_place_only | 1U << dependencies);
    return depends(step);
}

}  // namespace flx::algorithms
