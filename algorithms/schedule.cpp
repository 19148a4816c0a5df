#include "schedule.h"

#include <cassert>

namespace flx::algorithms {

Step &Step::depends(uint32_t step) {
    assert(dependencies < kMaxDependencies);
    after[dependencies++] = step;
    return *this;
}

}  // namespace flx::algorithms
