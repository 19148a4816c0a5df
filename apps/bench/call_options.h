/// \file call_options.h
/// What is to be called, as programs that measure are asked for it. Nothing here communicates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/collectives.h"

namespace flx::bench {

struct CallOptions {
    Collective collective = Collective::kAllreduce;
    std::vector<uint64_t> sizes;  ///< bytes, in the order in which they are measured
    flx_dtype_t dtype = FLX_F32;
    flx_op_t op = FLX_SUM;
    int root = 0;
    Traffic traffic;  ///< of alltoallv
    bool in_place = false;
    int warmup = 5;  ///< calls
    std::string json_file;
};

/// This rank's job, still without shape and buffers.
[[nodiscard]] Job job_of(const CallOptions &options, MPI_Comm comm);

/// The shape of a size.
[[nodiscard]] Shape shape_of(const CallOptions &options, uint64_t bytes, int ranks);

/// The shapes of all sizes; of those that follow each other and are alike, one.
[[nodiscard]] std::vector<Shape> shapes_of(const CallOptions &options, int ranks);

}  // namespace flx::bench
