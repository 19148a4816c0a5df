/// \file kernels.h
/// The kernels of a type and reduction, and those that move bytes. No CUDA types: `void *` where a stream is meant.
#pragma once

#include <span>

#include "runtime/cuda/protocol/exchange.h"
#include "runtime/elements/dtype.h"
#include "runtime/include/flx.h"

namespace flx::cuda {

/// Addresses of kernels as the CUDA runtime wants them. Files named *.cuh are in runtime/cuda/kernels.
struct Kernels {
    const void *exchange = nullptr;           ///< tiles between teams of blocks (exchange.h); takes a Job
    const void *exchange_anywhere = nullptr;  ///< the same, faster where Job::on_lines() is false (anywhere.cuh)
    const void *packets = nullptr;            ///< packets that are half flags (packets.cuh); takes a Job
    const void *lines = nullptr;              ///< lines that carry their own flags (lines.cuh); takes a Job
    const void *local =
        nullptr;  ///< what goes beside copy engines: reduces what they brought, or copies `own`; takes a LocalReduce
    const void *bulk = nullptr;  ///< tiles between two ranks by bulk copies (bulk.cuh); takes a Job
};

/// `FLX_AVG` adds. Each of them is one file, since they take the compiler long.
Kernels integer_kernels(flx_dtype_t dtype, flx_op_t op);
Kernels wide_integer_kernels(flx_dtype_t dtype, flx_op_t op);
Kernels half_kernels(flx_dtype_t dtype, flx_op_t op);
Kernels float_kernels(flx_dtype_t dtype, flx_op_t op);
Kernels float8_kernels(flx_dtype_t dtype, flx_op_t op);

inline Kernels kernels_of(flx_dtype_t dtype, flx_op_t op) {
    switch (dtype) {
        case FLX_INT64:
        case FLX_UINT64:
        case FLX_INT32:
        case FLX_UINT32:
            return wide_integer_kernels(dtype, op);
        case FLX_F16:
        case FLX_BF16:
            return half_kernels(dtype, op);
        case FLX_F32:
        case FLX_F64:
            return float_kernels(dtype, op);
        case FLX_F8E4M3:
        case FLX_F8E5M2:
            return float8_kernels(dtype, op);
        default:
            return integer_kernels(dtype, op);
    }
}

/// How Kernels::bulk is launched.
struct BulkLaunch {
    uint32_t threads;
    uint32_t shared_bytes;
};
BulkLaunch bulk_launch();

/// The kernels that only move bytes.
Kernels move_kernels();

/// The kernels of a bcast; both take a Job (runtime/cuda/kernels/relay.cuh, chain.h).
const void *relay_kernel();
const void *chain_kernel();

/// What copy engines brought is reduced with this rank's own input into `out`, which may be one of the sources.
struct LocalReduce {
    Job job;
    const char *sources[kMaxRanks] = {};  ///< by rank
    char *out = nullptr;
    uint64_t bytes = 0;
    /// The channel on which it first says that this rank's copies have come to all peers, and waits until theirs have
    /// come here; 0: neither.
    uint32_t arrived = 0;
    /// The one on which it says at the end that all was read, and waits until peers say so; 0: neither.
    uint32_t consumed = 0;
};

/// Signals to the peers of one mask that this rank got one step further on a channel, then waits until those of the
/// other mask have signalled so. Both are counted apart, so that one stream may signal and another wait.
struct FlagStep {
    Job job;
    uint32_t channel = 0;
    uint32_t tell = 0;
    uint32_t hear = 0;
};
/// Takes a FlagStep; one block of one warp.
const void *flag_step_kernel();

}  // namespace flx::cuda
