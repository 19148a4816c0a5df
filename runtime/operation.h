/// \file operation.h
/// One call of a collective, after its arguments were checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flx.h"
#include "schedule.h"

namespace flx {

struct Operation {
    algorithms::Collective collective = algorithms::Collective::barrier;
    const void *in = nullptr;  ///< in place: the same memory as the part of `out` that the collective's rule says
    void *out = nullptr;
    size_t count = 0;  ///< elements of the whole vector: size·recvcount for reduce_scatter_block and allgather
    flx_dtype_t dtype = FLX_INT8;
    flx_op_t op = FLX_SUM;
    int root = 0;
    uint64_t sequence = 0;   ///< within the communicator
    uint32_t signature = 0;  ///< hash of all that must be equal on all ranks
};

}  // namespace flx
